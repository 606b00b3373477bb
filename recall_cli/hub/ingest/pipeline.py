"""Documents into a hub: only what has changed is cut, only chunks that are new are embedded.

All of it is one write: until it is done, searches see the hub as it was, and so they do when it is never done.
`feed` brings in a whole source, as `recall hub ingest` does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from recall_cli.errors import InputError, StoreMismatch
from recall_cli.hub.ingest.chunk import chunk_digest, cut, document_digest, embedded_text
from recall_cli.hub.ingest.documents import REASONS, TOO_TANGLED, UNKNOWN_ENCODING, Intake
from recall_cli.hub.ingest.sources import documents
from recall_cli.hub.models import Chunk, Document, DocumentState, HubEngine, Report, Upsert
from recall_cli.hub.stores.batches import batches
from recall_cli.logs.report import clean
from recall_cli.types import Embedder, Progress, Vector, Warn

Cut = tuple[Document, DocumentState, list[Chunk]]
Seen = Callable[[Report], None]
"""Is told how far an ingest has come, after each batch."""


def ingest(
    engine: HubEngine,
    embedder: Embedder,
    documents: Iterable[Document],
    *,
    prune: bool | Callable[[], bool] = False,
    dry_run: bool = False,
    progress: Seen | None = None,
) -> Report:
    """Bring documents into a hub and return what that did. Raises StoreMismatch for an embedder that is not the hub's.

    A document without text and title is skipped, and removed if it had some before; one whose id came before in the
    same ingest is skipped too.

    :param prune: remove the documents that were not among these; a function is asked once all were read, for only then
        is it known whether what did not come is gone, or could not be read.
    :param dry_run: only say what would be done; chunks count, but nothing is embedded.
    """
    started = time.perf_counter()
    info = engine.info()
    if info.fingerprint != embedder.fingerprint:
        raise StoreMismatch(
            f"the hub {info.slug} holds vectors of {info.embedder}, not of {embedder.name}",
            hint="use the hub's own embedder, or move the hub to the other one",
        )
    work = _Ingest(engine, embedder, progress, dry_run=dry_run)
    upserts = work.upserts(documents)
    report = work.report
    if dry_run:
        for _ in chain(upserts, work.gone(prune)):
            pass
        report.revision = info.revision
    else:
        # Which ones were not fed is known once all were; `apply` reads the removals last.
        report.revision = engine.apply(upserts, work.gone(prune), fingerprint=embedder.fingerprint)
    report.seconds = time.perf_counter() - started
    return report


def move(engine: HubEngine, embedder: Embedder, *, progress: Seen | None = None) -> Report:
    """Embed all of a hub anew, with another embedder, and return what that did; until it is done nothing changes."""
    started = time.perf_counter()
    info = engine.info()
    report = Report(unchanged=info.documents, revision=info.revision)

    def embed(texts: Sequence[tuple[str, str]]) -> Iterable[tuple[bytes, Vector]]:
        vectors = embedder.embed_many([embedded_text(title, text) for title, text in texts])
        report.chunks += len(texts)
        report.embedded += len(texts)
        if progress is not None:
            progress(report)
        digests = (chunk_digest(embedder.fingerprint, title, text) for title, text in texts)
        return zip(digests, vectors, strict=True)

    if info.fingerprint != embedder.fingerprint:
        report.revision = engine.move(embedder, embed)
    report.seconds = time.perf_counter() - started
    return report


class _Ingest:
    """One ingest under way."""

    def __init__(self, engine: HubEngine, embedder: Embedder, progress: Seen | None, *, dry_run: bool) -> None:
        self.report = Report()
        self._engine, self._embedder, self._progress, self._dry_run = engine, embedder, progress, dry_run
        self._states = dict(engine.documents())
        self._fed: set[str] = set()
        self._emptied: list[str] = []

    def upserts(self, documents: Iterable[Document]) -> Iterator[Upsert]:
        """Yield the documents that are new or have changed, with their chunks and vectors."""
        for batch in batches(self._changed(documents)):
            yield from self._embedded(batch)
            if self._progress is not None:
                self._progress(self.report)

    def gone(self, prune: bool | Callable[[], bool]) -> Iterator[str]:
        """Yield the stored documents that are to be removed, counting them: emptied ones and, if asked, unfed ones."""
        unfed = (id for id in self._states if id not in self._fed)
        for id in chain(self._emptied, unfed if (prune() if callable(prune) else prune) else ()):
            self.report.removed += 1
            yield id

    def _changed(self, documents: Iterable[Document]) -> Iterator[Cut]:
        report, fingerprint = self.report, self._embedder.fingerprint
        for document in map(_well_formed, documents):
            if document.id in self._fed:
                self._skip("duplicate_id")
                continue
            self._fed.add(document.id)
            if not document.text.strip() and not document.title.strip():
                self._skip("empty")
                if document.id in self._states:
                    self._emptied.append(document.id)
                continue
            digest = document_digest(document.title, document.url, document.text)
            before = self._states.get(document.id)
            if before is not None and before.digest == digest:
                report.unchanged += 1
                continue
            if before is None:
                report.added += 1
            else:
                report.changed += 1
            pieces = cut(document, fingerprint)
            report.chunks += len(pieces)
            yield document, DocumentState(digest, len(pieces)), pieces

    def _embedded(self, batch: list[Cut]) -> Iterator[Upsert]:
        """Yield the batch with its vectors: those that are stored, and the others embedded, each text once."""
        texts = {
            chunk.digest: embedded_text(document.title, chunk.text) for document, _, pieces in batch for chunk in pieces
        }
        vectors = dict(self._engine.known(list(texts)))
        new = [digest for digest in texts if digest not in vectors]
        self.report.embedded += len(new)
        if self._dry_run:
            return
        vectors.update(zip(new, self._embedder.embed_many([texts[digest] for digest in new]), strict=True))
        for document, state, pieces in batch:
            yield document, state, pieces, np.stack([vectors[chunk.digest] for chunk in pieces])

    def _skip(self, reason: str) -> None:
        self.report.skipped[reason] = self.report.skipped.get(reason, 0) + 1


def _well_formed(document: Document) -> Document:
    """Return the document with lone surrogates replaced: no database and no client could take them."""
    parts = (document.id, document.text, document.title, document.url)
    try:
        "".join(parts).encode()
    except UnicodeEncodeError:
        id, text, title, url = (part.encode("utf-8", "replace").decode() for part in parts)
        return Document(id, text, title, url, document.updated)
    return document


ODD = {
    UNKNOWN_ENCODING: (
        "is not UTF-8, and nothing says what then",
        "are not UTF-8, and nothing says what then",
        "name the encoding, as in --encoding cp1252",
    ),
    TOO_TANGLED: (
        "takes more time or memory than a page may, and was left out",
        "take more time or memory than a page may, and were left out",
        "no page for readers is so made: see what wrote it, or bring its text in as .txt",
    ),
}
"""What is said of one file, and of many, that gave no document for such a reason, and what to do."""


@dataclass(frozen=True, slots=True)
class Fed:
    """What came of a source."""

    report: Report
    warnings: list[Warn]


def feed(
    engine: HubEngine,
    embedder: Embedder,
    source: str,
    *,
    prune: bool = False,
    dry_run: bool = False,
    encoding: str = "",
    progress: Progress | None = None,
) -> Fed:
    """Bring a source's documents into a hub. Raises InputError when it has none: then nothing is changed.

    :param source: as `sources.documents` reads it.
    :param prune: remove the hub's documents that the source does not have; none when not all of it could be read.
    :param dry_run: only say what would be done.
    """
    intake = Intake()
    read = _at_least_one(documents(source, intake, encoding=encoding, progress=progress), source, intake)
    report = ingest(engine, embedder, read, prune=(lambda: intake.is_whole) if prune else False, dry_run=dry_run)
    return Fed(with_skipped(report, intake), warnings(source, intake, prune=prune))


def with_skipped(report: Report, intake: Intake) -> Report:
    """Return the report, with what the source could not give counted in."""
    for reason, times in intake.skipped.items():
        report.skipped[reason] = report.skipped.get(reason, 0) + times
    return report


def warnings(source: str, intake: Intake, *, prune: bool) -> list[Warn]:
    """Return what whoever fed the source should know and may mend."""
    found = [Warn("source_broken", fault, "what could be read was taken") for fault in intake.faults]
    for reason, (one, many, hint) in ODD.items():
        times = intake.skipped[reason]
        if times:
            first = clean(intake.named[reason])
            which = f"{first} {one}" if times == 1 else f"{times:,} files, such as {first}, {many}"
            found.append(Warn(reason, which, hint))
    if prune and not intake.is_whole:
        found.append(
            Warn(
                "not_pruned",
                f"no document was removed: not all of {_named(source)} could be read",
                "what could not be read may still be there; mend it and ingest again",
            )
        )
    return found


def _at_least_one(found: Iterable[Document], source: str, intake: Intake) -> Iterator[Document]:
    """Pass documents on. A source that gives none is a mistake: with pruning it would empty the hub."""
    empty = True
    for document in found:
        empty = False
        yield document
    if empty:
        reasons = ", ".join(f"{REASONS.get(why, why)}: {times:,}" for why, times in intake.skipped.most_common())
        raise InputError(
            f"{_named(source)} holds no document{f' ({reasons})' if reasons else ''}",
            hint="name a folder of .md, .txt or .html files, or JSON lines with an id and a text each",
        )


def _named(source: str) -> str:
    return "standard input" if source == "-" else clean(source)
