"""The result document: one shape for everything that is measured, stable for scripts to read."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping
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


class OutFile:
    """An `--out` file: proved writable before the long run, replaced whole by every write.

    Raises UsageError at once when the file cannot be written, so that no run is lost to a typo.
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise UsageError(f"--out {path} is a folder", hint="name a file inside it")
        # A device or a pipe (/dev/stdout, /dev/null) cannot be replaced by a rename: write straight to it.
        self._direct = self.path.exists() and not self.path.is_file()
        if not self._direct:
            try:
                self._temporary().unlink()
            except OSError as error:
                raise UsageError(
                    f"--out {path} cannot be written: {error.strerror}", hint="name a file in a folder you can write to"
                ) from error

    def write(self, data: bytes) -> None:
        """Replace the file's content."""
        temporary = None
        try:
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
                f"--out {self.path} could not be written: {error.strerror}",
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


def plain(value: Any) -> Any:
    """Return plain JSON values: numpy scalars, decimals and enums as numbers and text, NaN as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Decimal):
        return float(value)
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
