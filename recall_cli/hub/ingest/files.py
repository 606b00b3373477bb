"""The files of a folder that are documents, found without reading one.

Nothing outside the folder is ever touched: no folder that is a link is entered, and a file that is a link counts only
where its target lies inside. Pipes, sockets and devices are never opened.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from recall_cli.errors import InputError
from recall_cli.hub.ingest.documents import KINDS, MAX_BYTES
from recall_cli.logs.clean import clean


@dataclass(frozen=True, slots=True)
class File:
    """A file as a look at its folder tells it."""

    id: str
    """Its path below the folder, with `/`: the same on every machine and every day."""
    path: str
    size: int
    mtime_ns: int

    @property
    def suffix(self) -> str:
        """In lower case, with its dot."""
        return os.path.splitext(self.path)[1].lower()


def find_files(folder: str, skipped: Counter[str]) -> list[File]:
    """Return the files below a folder that may be documents, by id, and count the others.

    Raises InputError when the folder itself cannot be listed.
    """
    root = os.path.realpath(folder)
    try:
        os.scandir(root).close()
    except OSError as error:
        raise InputError(
            f"the folder {clean(folder)} cannot be read: {error.strerror or error}",
            hint="check that it is there and that you may list it",
        ) from error
    return sorted(_walk(root, skipped), key=lambda file: file.id)


def _walk(root: str, skipped: Counter[str]) -> Iterator[File]:
    folders = [root]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            # One folder among many: whatever it holds is not known to be gone.
            skipped["unreadable"] += 1
            continue
        for entry in entries:
            if entry.name.startswith("."):
                skipped["hidden"] += 1
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                found = _look_at(entry, root)
                if isinstance(found, str):
                    skipped[found] += 1
                else:
                    yield found


def _look_at(entry: os.DirEntry[str], root: str) -> File | str:
    if os.path.splitext(entry.name)[1].lower() not in KINDS:
        return "other_type"
    try:
        if entry.is_symlink() and not is_inside(entry.path, root):
            return "link_to_outside"
        facts = entry.stat()
    except OSError:
        return "unreadable"
    if not stat.S_ISREG(facts.st_mode):
        return "not_a_file"
    if facts.st_size > MAX_BYTES:
        return "too_large"
    # A name that is no UTF-8 could be neither stored nor shown.
    id = os.path.relpath(entry.path, root).replace(os.sep, "/").encode("utf-8", "replace").decode()
    return File(id, entry.path, facts.st_size, facts.st_mtime_ns)


def is_inside(path: str, root: str) -> bool:
    """Return whether a path, all its links followed, lies below a folder.

    :param root: a real path, without links.
    """
    real = os.path.realpath(path)
    return real.startswith(root.rstrip(os.sep) + os.sep)
