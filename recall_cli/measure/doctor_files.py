"""Files and variables that recall reads here: settings, RECALL_* names, and the store, which is only looked at."""

from __future__ import annotations

import difflib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from recall_cli.cache.stores.sqlite_file import connect
from recall_cli.cache.stores.upkeep import read_facts
from recall_cli.measure.findings import Finding, State
from recall_cli.postgres.open import read_shared_facts
from recall_cli.postgres.urls import is_database_url

LEAST_FREE = 1 << 28
"""Bytes free beside a store: SQLite needs as much again as a transaction writes, and a full disk loses writes."""
LIKE = 0.8
"""How like a known name an unread one must be to be called its misspelling; all of them begin alike."""
LONG_LOG = 1 << 28
"""Bytes of write-ahead log that no reader should have to walk: it is folded in at 4 MB when nobody holds it open."""


def settings(files: Sequence[str]) -> Iterator[Finding]:
    """Yield which settings files are in force; each was read, and its names checked, before this runs."""
    if files:
        yield Finding("settings", State.OK, ", ".join(files))
    else:
        yield Finding("settings", State.ABSENT, "no recall.toml here or in the user's folder")


def variables(found: Sequence[str], known: Sequence[str], links: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield which RECALL_* variables are set, by name, and which of them nothing reads.

    :param links: those of them that link to a network service.
    """
    if not found:
        yield Finding("variables", State.ABSENT, "no RECALL_* variable is set")
        return
    if links:
        said = f"{', '.join(links)}: links to a network service, which nothing reads"
        hint = "Kubernetes sets them for a Service called recall: `enableServiceLinks: false` leaves them out"
        yield Finding("variables", State.ABSENT, said, hint)
        found = [name for name in found if name not in links]
    unread = [name for name in found if name not in known]
    for name in unread:
        near = difflib.get_close_matches(name, known, 1, cutoff=LIKE)
        said = f"{name} is set, and nothing reads it"
        if near:
            yield Finding("variables", State.BROKEN, said, f"did you mean {near[0]}?")
        else:
            yield Finding("variables", State.ABSENT, said, "another program's, perhaps: recall knows no such name")
    read = [name for name in found if name not in unread]
    if read:
        yield Finding("variables", State.OK, ", ".join(read))


def store(path: str | None, embedder: str) -> Iterator[Finding]:
    """Yield what a store holds, whether it is whole, and whether its vectors are the embedder's."""
    if path is None:
        yield Finding("store", State.ABSENT, "none was named (--store FILE)")
        return
    from recall_cli.cache.embed.registry import make_embedder

    shared = is_database_url(path)
    facts, namespaces = read_shared_facts(path) if shared else read_facts(Path(path))
    damage = "" if shared else _damage(Path(path))
    if damage:
        hint = "bring back a copy, or carry over what can be read with recall cache export"
        yield Finding("store", State.BROKEN, f"{path} is damaged: {damage}", hint)
        return
    found = (
        f"{path}: {facts['entries']:,} entries, {facts['vectors']:,} vectors of {facts['embedder'] or 'no embedder'}, "
        f"{len(namespaces):,} namespaces, {facts['bytes'] / 1e6:.1f} MB"
    )
    if facts["fingerprint"] and facts["fingerprint"] != make_embedder(embedder).fingerprint:
        hint = f"name that embedder with -e, or move the store: recall cache reembed {path} -e {embedder}"
        yield Finding("store", State.BROKEN, f"{found}; they are not {embedder}'s", hint)
    else:
        yield Finding("store", State.OK, found)
    if not shared:
        yield from _room(Path(path))


def sqlite_library() -> Iterator[Finding]:
    """Yield the SQLite that stores are written with: a write and its reader, in a file of a moment."""
    with tempfile.TemporaryDirectory() as folder, closing(connect(Path(folder) / "x.db")) as db:
        mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    found = f"{sqlite3.sqlite_version}, journal {mode}"
    if mode != "wal":
        hint = "files in the temporary folder take no write-ahead log: keep stores on a local disk"
        yield Finding("SQLite", State.SLOW, found, hint)
    else:
        yield Finding("SQLite", State.OK, found)


def _damage(path: Path) -> str:
    """Return what SQLite finds wrong in a file, "" for nothing."""
    # Not opened read-only: such a connection leaves its -wal and -shm files behind.
    with closing(connect(path)) as db:
        try:
            db.execute("PRAGMA query_only = ON")
            said = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
        except sqlite3.DatabaseError as error:
            return str(error)
    return "" if said == "ok" else said


def _room(path: Path) -> Iterator[Finding]:
    """Yield the disk under a store and the length of its write-ahead log."""
    free = shutil.disk_usage(path.parent).free
    if free < LEAST_FREE:
        hint = "answers are not stored when it is full: free some space, or move the store"
        yield Finding("disk", State.SLOW, f"{free / 1e6:,.0f} MB free beside {path}", hint)
    log = path.with_name(f"{path.name}-wal")
    length = log.stat().st_size if log.is_file() else 0
    if length > LONG_LOG:
        hint = "a process has held a read open for long: end it, and the log is folded in at the next write"
        yield Finding("store log", State.SLOW, f"{log} has {length / 1e6:,.0f} MB", hint)
