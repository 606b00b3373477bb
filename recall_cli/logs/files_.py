"""From what the user named (files, patterns, folders, "-") to the files to read."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from recall_cli.errors import InputError
from recall_cli.logs.clean import clean
from recall_cli.logs.report import Tally

ENDINGS = frozenset(
    (".jsonl", ".ndjson", ".json", ".log", ".txt", ".csv", ".tsv", ".har", ".db", ".sqlite", ".sqlite3", ".parquet")
)
"""What is read out of a folder. A file that is named is read whatever it is called."""
PACKED = (".gz", ".zst")


def log_files(paths: Sequence[str], tally: Tally) -> list[str]:
    """Return the files, each once, in the order they were named and sorted within a folder or pattern.

    Raises InputError when a folder or pattern holds none.
    """
    found: dict[str, None] = {}
    for path in paths:
        if path != "-" and os.path.isdir(path):
            found |= dict.fromkeys(_in_folder(path, tally))
        elif path != "-" and glob.has_magic(path) and not os.path.exists(path):
            matches = sorted(match for match in glob.glob(path, recursive=True) if os.path.isfile(match))
            if not matches:
                raise InputError(f"no file matches {clean(path)}", hint="check the pattern; ** also looks into folders")
            found |= dict.fromkeys(matches)
        else:
            found[path] = None
    return list(found)


def _in_folder(folder: str, tally: Tally) -> list[str]:
    logs: list[str] = []
    others: Counter[str] = Counter()
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.startswith("."):
                continue
            path = Path(at, name)
            ending = (path.with_suffix("") if path.suffix.lower() in PACKED else path).suffix.lower()
            if ending in ENDINGS:
                logs.append(str(path))
            else:
                others[ending or "none"] += 1
    if not logs:
        raise InputError(f"the folder {clean(folder)} holds no log", hint=f"logs end in {', '.join(sorted(ENDINGS))}")
    if others:
        kinds = ", ".join(f"{clean(ending)} {count}" for ending, count in others.most_common(5))
        tally.faults.append(f"{others.total()} files of {clean(folder)} have other endings and were not read ({kinds})")
    return logs
