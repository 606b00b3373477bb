"""A source into a hub: what `recall hub ingest` does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from recall_cli.errors import InputError
from recall_cli.hub.ingest.documents import TOO_TANGLED, UNKNOWN_ENCODING, Intake
from recall_cli.hub.ingest.pipeline import ingest
from recall_cli.hub.ingest.reasons import REASONS
from recall_cli.hub.ingest.sources import documents
from recall_cli.hub.models import Document, HubEngine, Report
from recall_cli.logs.clean import clean
from recall_cli.types import Embedder, Progress, Warn

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
