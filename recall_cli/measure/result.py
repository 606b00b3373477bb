"""The result document: one shape for everything that is measured, stable for scripts to read."""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import orjson

from recall_cli import __version__
from recall_cli.errors import InputError, RecallError, UsageError
from recall_cli.measure.environment import environment
from recall_cli.types import Result, Warn

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
