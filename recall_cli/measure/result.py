"""The result document: one shape for everything that is measured, stable for scripts to read.

It says where a measurement was made: a p50 without a machine cannot be compared.
"""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import orjson

from recall_cli import __version__
from recall_cli.errors import InputError, RecallError, UsageError
from recall_cli.types import Result, Warn

PACKAGES = ("numpy", "model2vec", "tokenizers", "nanotoken", "hnswlib", "faiss-cpu", "orjson", "blake3", "polars")
"""Versions that change what we measure."""

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM")


def environment() -> dict[str, Any]:
    """Return machine, interpreter, packages, BLAS threads and the state of the source tree."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "usable_cores": _usable_cores(),
        "memory_bytes": _memory_bytes(),
        "load_1m": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "packages": _packages().copy(),
        "blas": _blas(),
        "threads": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "commit": _commit(),
    }


@cache
def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _usable_cores() -> int | None:
    # A container may be given fewer cores than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _blas() -> dict[str, Any]:
    import numpy as np

    try:
        found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        name = {"name": found.get("name"), "version": found.get("version")}
    except (KeyError, TypeError):
        name = {}
    return {**name, "threads": blas_threads()}


def blas_threads() -> int | None:
    """Return how many threads numpy's BLAS may use, as far as its environment variables say."""
    for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(variable, "").isdigit():
            return int(os.environ[variable])
    return _usable_cores()


@cache
def _commit() -> str | None:
    """Return the commit of the checkout this runs from, with "+dirty" for local changes; None elsewhere.

    Asked once: it is the code that was loaded which measures.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        git = ["git", "-C", str(root)]
        head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, timeout=5)
        state = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    if head.returncode:
        return None
    return head.stdout.strip() + ("+dirty" if state.stdout.strip() else "")


SCHEMA_VERSION = 1


def new_result(command: str, params: Mapping[str, Any]) -> Result:
    """Return an empty result stamped with the time and the machine."""
    return Result(command, dict(params), environment(), datetime.now(UTC).isoformat(timespec="seconds"))


def to_document(result: Result) -> dict[str, Any]:
    """Return the JSON-ready document of a result; the keys' order is part of what people read."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": result.command,
        "recall_version": __version__,
        "params": plain(result.params),
        "environment": plain(result.environment),
        "started_at": result.started_at,
        "rows": plain(result.rows),
        "summary": plain(result.summary),
        "warnings": [{"code": w.code, "message": w.message, "hint": w.hint} for w in result.warnings],
    }


def to_json(result: Result) -> bytes:
    """Return the document as indented JSON with a final newline."""
    return orjson.dumps(to_document(result), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def from_json(data: bytes) -> Result:
    """Return the result of a document. Raises InputError when it is not one of a known schema."""
    try:
        document = orjson.loads(data)
        version = document["schema_version"]
        if version != SCHEMA_VERSION:
            raise InputError(
                f"the document has schema {version}; this recall reads schema {SCHEMA_VERSION}",
                hint="read it with the recall that wrote it",
            )
        return Result(
            document["command"],
            document["params"],
            document["environment"],
            document["started_at"],
            document["rows"],
            document["summary"],
            [Warn(**warning) for warning in document["warnings"]],
        )
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"this is not a recall result: {error}", hint="pass a file written with --out") from error


def load(path: str) -> Result:
    """Return the result of a file (`-`: standard input). Raises InputError."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", hint="pass a file written with --out") from error
    return from_json(data)


class OutFile:
    """A file of results (`--out`, `--plot`, `--report`): proved writable before the long run, replaced by every write.

    A symbolic link is followed, a device or a pipe is written to, never replaced.
    Raises UsageError at once when the file cannot be written, so that no run is lost to a typo.
    """

    def __init__(self, path: str, *, inputs: Sequence[str] = (), option: str = "--out") -> None:
        """Prove that the file can be written.

        :param inputs: files the run reads, or writes too: writing over one of them would destroy it.
        :param option: what the user calls it by.
        """
        self.name = path
        self.option = option
        try:
            self.path = Path(os.path.realpath(path))
            if self.path.is_dir():
                raise UsageError(f"{option} {path} is a folder", hint="name a file inside it")
            if any(_same(name, path) for name in inputs if name):
                raise UsageError(
                    f"{option} {path} is the file that is read or written already", hint="name another file"
                )
            self._is_stdout = _is_stdout(path)
            self._direct = self._is_stdout or (self.path.exists() and not self.path.is_file())
            if not self._direct:
                self._temporary().unlink()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"{option} {path!r} cannot be written: {reason}", hint="name a file in a folder you can write to"
            ) from error

    def write(self, data: bytes) -> None:
        """Replace the file's content."""
        temporary = None
        try:
            if self._is_stdout:
                sys.stdout.flush()
                sys.stdout.buffer.write(data)
                return
            if self._direct:
                self.path.write_bytes(data)
                return
            temporary = self._temporary()
            temporary.write_bytes(data)
            # mkstemp makes the file private; a result is as readable as any other file of the user.
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
            temporary.replace(self.path)
        except OSError as error:
            raise RecallError(
                f"{self.option} {self.name} could not be written: {error.strerror}",
                hint="free some space, or name another file",
            ) from error
        finally:
            if temporary is not None:
                temporary.unlink(missing_ok=True)

    def _temporary(self) -> Path:
        # Beside the target: a rename is atomic only within one file system.
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.", suffix=".tmp")
        os.close(handle)
        return Path(name)


def _same(one: str, other: str) -> bool:
    """Return whether two names stand for one file, there already or not."""
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)


def _is_stdout(path: str) -> bool:
    """Return whether the path names what standard output goes to, as /dev/stdout does."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(1)) and sys.stdout is not None
    except OSError:
        return False


def plain(value: Any) -> Any:
    """Return plain JSON values: numpy scalars, decimals and enums as numbers and text, NaN as null."""
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, str):
        # A lone surrogate (a file name that is not UTF-8) has no place in a JSON document.
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
