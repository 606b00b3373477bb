"""Where documents come from: a folder, one file, rows of JSON, saved pages with a manifest, standard input.

Documents come in an order that does not change; whatever gives none is counted under its reason. Nothing outside a
folder is ever touched: no folder that is a link is entered, and a file that is a link counts only where its target
lies inside. Pipes, sockets and devices are never opened.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recall_cli.errors import InputError
from recall_cli.hub.ingest.decode import check_encoding
from recall_cli.hub.ingest.documents import KINDS, MAX_BYTES, NAMED, Intake, ReadPage, from_file, from_row
from recall_cli.hub.ingest.html_worker import PageReader
from recall_cli.hub.models import Document
from recall_cli.logs.files import read_lines
from recall_cli.logs.report import ReadReport, clean
from recall_cli.logs.rows import MALFORMED, parse_line
from recall_cli.types import Json, Progress


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


READING = "reading"


def documents(
    source: str, intake: Intake, *, encoding: str = "", progress: Progress | None = None
) -> Iterator[Document]:
    """Yield the documents of a source.

    Raises InputError when the source cannot be read at all, and UsageError for an encoding that does not exist.

    :param source: a folder; a file that is a document; JSON lines of documents `{id, title, url, text, updated}` or of
        saved pages `{url, path, title}`, with paths below the file's folder; "-" for such lines on standard input.
    :param encoding: of files that are not UTF-8 and do not say what they are.
    """
    check_encoding(encoding)
    if os.path.isdir(source):
        return of_files(find_files(source, intake.skipped), intake, encoding=encoding, progress=progress)
    if is_document(source):
        return of_files([_lone_file(source)], intake, encoding=encoding)
    return _of_lines(source, intake, encoding, progress)


def is_document(source: str) -> bool:
    """Return whether the name is that of a file which is a document itself, and not one that holds rows."""
    return Path(source).suffix.lower() in KINDS


def of_files(
    files: Iterable[File], intake: Intake, *, encoding: str = "", progress: Progress | None = None
) -> Iterator[Document]:
    """Yield the documents of files that were found."""
    held = list(files)
    with PageReader() as pages:
        for done, file in enumerate(held):
            if progress is not None:
                progress(done, len(held), READING)
            found = read_file(file, pages.read, encoding=encoding)
            if isinstance(found, str):
                intake.skip(file.id, found)
            else:
                yield found
    if progress is not None:
        progress(len(held), len(held), READING)


def read_file(
    file: File, read_page: ReadPage, *, encoding: str = "", told: Mapping[str, str] | None = None
) -> Document | str:
    """Return the document of one file, or the reason why there is none.

    :param told: facts that come before what the file says of itself.
    """
    try:
        with open(file.path, "rb", opener=_opener) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return "not_a_file"
            # It may have grown since it was looked at.
            data = stream.read(MAX_BYTES + 1)
    except OSError:
        return "unreadable"
    if len(data) > MAX_BYTES:
        return "too_large"
    updated = file.mtime_ns / 1e9
    # A file of another suffix comes from a manifest: pages are saved under any name.
    suffix = file.suffix if file.suffix in KINDS else ".html"
    return from_file(
        data, id=file.id, suffix=suffix, updated=updated, encoding=encoding, told=told or {}, read_page=read_page
    )


def _opener(path: str, flags: int) -> int:
    """Open a file without waiting for the writer of a pipe, should one have come into its place."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _lone_file(path: str) -> File:
    try:
        facts = os.stat(path)
    except OSError as error:
        raise InputError(
            f"{clean(path)} cannot be read: {error.strerror or error}", hint="check the path and its permissions"
        ) from error
    if not stat.S_ISREG(facts.st_mode):
        raise InputError(f"{clean(path)} is not a file", hint="name a file, a folder, or - for standard input")
    return File(os.path.basename(path), path, facts.st_size, facts.st_mtime_ns)


def _of_lines(source: str, intake: Intake, encoding: str, progress: Progress | None) -> Iterator[Document]:
    root = "" if source == "-" else os.path.dirname(os.path.realpath(source))
    total = os.path.getsize(source) if os.path.isfile(source) else 0

    def on_bytes(done: int) -> None:
        if progress is not None and total:
            progress(min(done, total), total, READING)

    repairs = ReadReport()  # which lines were read leniently is told by no ingest
    with PageReader() as pages:
        for line in read_lines(source, on_fault=intake.faults.append, on_bytes=on_bytes):
            if line is None:
                intake.skipped["line_too_long"] += 1
                continue
            if not line.strip():
                continue
            row = parse_line(line, repairs)
            found = _of_line(row, root, encoding, pages.read)
            if isinstance(found, str):
                intake.skip(str(row["path"]) if found in NAMED else "", found)
            else:
                yield found


def _of_line(row: Any, root: str, encoding: str, read_page: ReadPage) -> Document | str:
    if row is MALFORMED:
        return "malformed_json"
    if not isinstance(row, dict):
        return "not_an_object"
    if "text" not in row and "path" in row:
        return _saved_page(row, root, encoding, read_page)
    return from_row(row)


def _saved_page(row: Json, root: str, encoding: str, read_page: ReadPage) -> Document | str:
    """Read the file that a manifest's row names. A manifest may come from elsewhere: it opens its own folder only."""
    path, url = row["path"], row.get("url")
    if not isinstance(path, str) or not isinstance(url, str) or not url.strip() or "\0" in path:
        return "no_url_or_path"
    if not root:
        # Lines on standard input lie in no folder.
        return "path_without_folder"
    place = os.path.join(root, path)
    try:
        if not is_inside(place, root):
            return "path_to_outside"
        facts = os.stat(place)
        if not os.path.isfile(place):
            return "not_a_file"
    except OSError:
        return "unreadable"
    except ValueError:
        # A lone surrogate, which no name of a file holds.
        return "no_url_or_path"
    title = row.get("title")
    # What a page from the web says of itself must not put it in the place of another.
    told = {"id": url, "url": url} | ({"title": title} if isinstance(title, str) and title.strip() else {})
    return read_file(File(url, place, facts.st_size, facts.st_mtime_ns), read_page, encoding=encoding, told=told)
