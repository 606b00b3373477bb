"""A folder that is watched: what is edited there is searchable within seconds.

The folder is looked at every few seconds. A file whose size and time of change are what they were is not read again;
all others are, and what has changed in them is embedded. Times lie now and then (a copy keeps its old one, two edits
may share one), so that `paranoid` reads every file at every look, and every watch reads all of them when it begins.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

from recall_cli.errors import InputError, RecallError
from recall_cli.hub.ingest.decode import check_encoding
from recall_cli.hub.ingest.documents import UNREAD, Intake
from recall_cli.hub.ingest.html_worker import PageReader
from recall_cli.hub.ingest.pipeline import ingest, warnings, with_skipped
from recall_cli.hub.ingest.sources import File, find_files, read_file
from recall_cli.hub.models import Document, HubEngine, Report
from recall_cli.hub.search.embedders import hub_embedder
from recall_cli.hub.search.pipeline import Hub
from recall_cli.hub.session import WatchStatus, find_hub, write_pulse
from recall_cli.hub.stores.open import DatabasePlace, HubRegistry, Place, pulse_folder
from recall_cli.logs.report import clean
from recall_cli.types import Embedder, Warn

INTERVAL_S = 2.0
"""Between looks."""
UNSETTLED_S = 10.0
"""How long a folder may keep changing before it is read all the same: an edit must be searchable within 30 s."""
TICK_NS = 2_000_000_000
"""A file that changed so shortly before it was read may change again under the same time: some systems count in 2 s."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """What one look brought into the hub."""

    report: Report
    lag_s: float | None
    """From the earliest edit to its being searchable, at most; None for the first look, which has no edit before it."""
    warnings: list[Warn]


@dataclass(frozen=True, slots=True)
class _Read:
    """A file as it was when it was read."""

    size: int
    mtime_ns: int
    id: str
    """Of its document, "" when it gave none."""
    settled: bool

    def is_still(self, file: File) -> bool:
        return self.settled and (self.size, self.mtime_ns) == (file.size, file.mtime_ns)


class Watch:
    """Keeps a hub like a folder. One thread uses it.

    :param prune: documents whose files are gone are removed, and at the first look all that the folder does not have.
    :param paranoid: read every file at every look.
    """

    def __init__(
        self,
        engine: HubEngine,
        embedder: Embedder,
        folder: str,
        *,
        prune: bool = False,
        paranoid: bool = False,
        encoding: str = "",
    ) -> None:
        self._engine, self._embedder, self._folder = engine, embedder, folder
        self._prune, self._paranoid, self._encoding = prune, paranoid, encoding
        self._read: dict[str, _Read] = {}
        """By path."""
        self._begun = False
        self._looked: float | None = None
        self._seen: dict[str, tuple[int, int]] = {}
        """What had changed at the last look, which waits for the next one to be quiet."""
        self._since = 0.0
        """When the oldest of it was first seen, and `_before` is the look before that one."""
        self._before = 0.0

    def look(
        self, *, now: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic
    ) -> Refresh | None:
        """Look at the folder once; return what that changed in the hub, None for nothing.

        Raises InputError when the folder cannot be listed, or has lost everything at once and pruning would follow;
        and what the hub or its embedder raise. The next look tries again.

        :param now: the time of day, which files are dated by.
        :param clock: what lasts is measured by this one: the time of day may be set.
        """
        started = clock()
        intake = Intake()
        files = {file.path: file for file in find_files(self._folder, intake.skipped)}
        if self._prune and self._read and not files:
            raise InputError(
                f"the folder {clean(self._folder)} has lost all its documents at once; none was removed from the hub",
                hint="mount it again; if it was emptied on purpose, remove the documents with: recall hub rm",
            )
        changed = [file for file in files.values() if self._paranoid or not self._is_known(file)]
        gone = [path for path in self._read if path not in files]
        if self._begun and not self._paranoid and not self._is_quiet(changed, gone, started):
            self._looked = started
            return None
        before = self._before if self._seen else self._looked
        refresh = self._refreshed(changed, gone, intake, now)
        self._looked, self._seen = started, {}
        if not self._begun:
            self._begun = True
            return refresh
        report = refresh.report
        if not (report.added or report.changed or report.removed):
            return None
        return replace(refresh, lag_s=None if before is None else clock() - before)

    def _is_known(self, file: File) -> bool:
        read = self._read.get(file.path)
        return read is not None and read.is_still(file)

    def _is_quiet(self, changed: list[File], gone: list[str], now: float) -> bool:
        """Return whether nothing moved since the last look, or something has moved for too long to wait for the end."""
        seen = {file.path: (file.size, file.mtime_ns) for file in changed} | dict.fromkeys(gone, (-1, -1))
        if seen and not self._seen:
            self._since, self._before = now, now if self._looked is None else self._looked
        quiet, self._seen = seen == self._seen, seen
        return bool(seen) and (quiet or now - self._since >= UNSETTLED_S)

    def _refreshed(self, changed: list[File], gone: list[str], intake: Intake, now: Callable[[], float]) -> Refresh:
        """Bring what has changed into the hub."""
        read: dict[str, _Read] = {}
        found = self._documents(changed, read, intake, now)
        prune = self._prune and not self._begun
        report = Report(revision=self._engine.info().revision)
        one = next(found, None)
        # To compare with all that the hub has is worth it only for something.
        if one is not None:
            fed = chain([one], found)
            report = ingest(self._engine, self._embedder, fed, prune=(lambda: intake.is_whole) if prune else False)
        if intake.is_whole:
            removed = self._orphans(read, gone) if self._prune and self._begun else []
            if removed:
                report.revision = self._engine.apply((), removed)
                report.removed += len(removed)
            for path in gone:
                del self._read[path]
        self._read |= read
        return Refresh(with_skipped(report, intake), None, warnings(self._folder, intake, prune=self._prune))

    def _documents(
        self, files: list[File], read: dict[str, _Read], intake: Intake, now: Callable[[], float]
    ) -> Iterator[Document]:
        """Yield the files' documents, noting what was read."""
        with PageReader() as pages:
            for file in files:
                found = read_file(file, pages.read, encoding=self._encoding)
                if found == "unreadable":
                    # Read at the next look again.
                    intake.skipped["unreadable"] += 1
                    continue
                settled = abs(now() * 1e9 - file.mtime_ns) > TICK_NS
                if isinstance(found, str):
                    intake.skip(file.id, found)
                    # The document of a file that cannot be read is still there: it stays until the file goes.
                    kept = self._read.get(file.path) if found in UNREAD else None
                    read[file.path] = _Read(file.size, file.mtime_ns, kept.id if kept else "", settled)
                else:
                    read[file.path] = _Read(file.size, file.mtime_ns, found.id, settled)
                    yield found

    def _orphans(self, read: dict[str, _Read], gone: list[str]) -> list[str]:
        """Return the ids that some file gave and none gives any more."""
        before = {self._read[path].id for path in gone}
        before |= {self._read[path].id for path in read if path in self._read}
        after = {one.id for path, one in (self._read | read).items() if path not in gone}
        return sorted(before - after - {""})


def watch_hub(
    place: Place,
    slug: str,
    folder: str,
    *,
    prune: bool = False,
    paranoid: bool = False,
    encoding: str = "",
    interval_s: float = INTERVAL_S,
    told: Callable[[Refresh], None],
    failed: Callable[[RecallError], None],
) -> None:
    """Look at a folder again and again, until SIGTERM. A look that fails is told, and the next one tries again.

    Raises NoSuchHub when the hub is not there, or no longer; InputError when the folder is not there at the beginning;
    UsageError for an encoding that does not exist.

    :param place: where the hubs are; signs of life are left in a folder (`pulse`).
    :param told: is given what each look changed.
    :param failed: is given an error when it is another one than at the look before.
    """
    check_encoding(encoding)
    if not os.path.isdir(folder):
        raise InputError(f"there is no folder {clean(folder)}", hint="name the folder whose edits the hub shall follow")
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    hubs = HubRegistry(place, hub_embedder)
    pulse, beats = WatchStatus(os.path.realpath(folder), time.time()), pulse_folder(place, slug)
    if isinstance(place, DatabasePlace):
        with suppress(OSError):
            beats.mkdir(parents=True, exist_ok=True)
    seen: Hub | None = None
    last = ""
    try:
        while not stop.is_set():
            hub = find_hub(hubs, place, slug)
            # One that was made anew knows nothing of what was read before; one that was moved has another embedder.
            if hub is not seen:
                seen = hub
                work = Watch(hub.engine, hub.embedder, folder, prune=prune, paranoid=paranoid, encoding=encoding)
            try:
                refresh = work.look()
            except RecallError as error:
                if str(error) != last:
                    failed(error)
                last = str(error)
            else:
                last = ""
                pulse = _beat(pulse, refresh)
                write_pulse(beats, pulse)
                if refresh is not None:
                    told(refresh)
            stop.wait(interval_s)
    finally:
        signal.signal(signal.SIGTERM, before)
        hubs.close()


def _beat(pulse: WatchStatus, refresh: Refresh | None) -> WatchStatus:
    now = time.time()
    if refresh is None:
        return replace(pulse, looked=now)
    lags = [lag for lag in (refresh.lag_s, pulse.slowest_lag_s) if lag is not None]
    return replace(pulse, looked=now, refreshed=now, lag_s=refresh.lag_s, slowest_lag_s=max(lags, default=None))
