"""What people see of hubs: a list, a state, what an ingest did, an answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from recall_cli.cli.output import View, note, warn
from recall_cli.cli.render.blocks import NONE, Block, Line, count, number, table
from recall_cli.errors import RecallError
from recall_cli.hub.ingest.documents import REASONS
from recall_cli.hub.search.rerank import NO_RERANKER
from recall_cli.types import Result

if TYPE_CHECKING:
    from recall_cli.hub.ingest.watch import Refresh

SNIPPET, NAME = 240, 40
"""Characters of a passage and of a title that people are shown; `--format json` has all of them."""


def list_view(result: Result) -> Sequence[Block]:
    """Return what people see of all hubs: what fits 80 columns; `status` and `--json` have the rest."""
    rows = [
        (row["hub"], row.get("visibility", row.get("error", "")), *_counts(row), _model(row.get("embedder", NONE)))
        for row in result.rows
    ]
    if not rows:
        return [Line("there is no hub yet; make one with: recall hub add NAME")]
    return [table("Hubs", ("hub", "visibility", "documents", "chunks", "changed (UTC)", "embedder"), rows)]


def status_view(result: Result) -> Sequence[Block]:
    """Return what people see of one hub."""
    facts = result.summary
    shown = [
        ("visibility", facts["visibility"]),
        ("documents", count(facts["documents"])),
        ("chunks", count(facts["chunks"])),
        ("revision", count(facts["revision"])),
        ("changed", _when(facts["updated"])),
        ("embedder", f"{facts['embedder']} ({facts['dim']} numbers a vector)"),
        ("alpha", f"{number(facts['alpha'], 2)}, the weight of vectors against words"),
        ("min-score", f"{number(facts['min_score'], 3)}, the cosine below which nothing is returned"),
    ]
    watched = facts["watched"]
    if watched is not None:
        shown += [
            ("watched folder", watched["source"]),
            ("last looked", f"{number(watched['looked_ago_s'])} s ago"),
            ("last edit searchable", _after(watched["lag_s"])),
            ("slowest edit searchable", _after(watched["slowest_lag_s"])),
        ]
    return [table(facts["hub"], ("", ""), shown, left=2)]


def ingest_view(result: Result) -> Sequence[Block]:
    """Return what people see of an ingest."""
    row = result.rows[0]
    columns = ("added", "changed", "unchanged", "removed", "skipped", "chunks", "embedded", "reused", "revision", "s")
    values = (
        *(count(row[name]) for name in columns[:4]),
        count(sum(row["skipped"].values())),
        count(row["chunks"]),
        count(row["embedded"]),
        count(row["chunks"] - row["embedded"]),
        count(row["revision"]),
        number(row["seconds"], 2),
    )
    title = "Would be done" if result.params.get("dry_run") else "Done"
    skipped = [
        (REASONS.get(reason, reason), count(times))
        for reason, times in sorted(row["skipped"].items(), key=lambda item: -item[1])
    ]
    return [
        table(title, columns, [values], left=0),
        *([table("Skipped", ("what", "count"), skipped)] if skipped else []),
    ]


def answer_view(*, explain: bool) -> View:
    """Return what shows people an answer.

    :param explain: show every score and every step's time too.
    """

    def view(result: Result) -> Sequence[Block]:
        if not result.rows:
            return [Line(_nothing(result.params))]
        more = ("bm25", "fused", "rerank") if explain else ()
        passages = [Line(f"{n}. {_name(row)}: {_cut(row['text'], SNIPPET)}") for n, row in enumerate(result.rows, 1)]
        rows = [
            (
                f"{n}. {_cut(_name(row), NAME)}",
                row["source"],
                number(row["score"], 3),
                number(row["scores"]["cosine"], 3),
                *(number(row["scores"][name], 3) for name in more),
            )
            for n, row in enumerate(result.rows, 1)
        ]
        scores = table("Scores", ("document", "found by", "score", "cosine", *more), rows, left=2)
        return [*passages, scores, *(_steps(result.summary) if explain else ()), *_fallback(result)]

    return view


def say_refreshed(refresh: Refresh) -> None:
    """Tell on standard error what a look at a watched folder brought."""
    report = refresh.report
    done = f"{report.added:,} added, {report.changed:,} changed, {report.removed:,} removed"
    after = "" if refresh.lag_s is None else f"; searchable within {refresh.lag_s:.1f} s"
    note(f"revision {report.revision}: {done}{after}")
    warn(refresh.warnings)


def say_failed(error: RecallError) -> None:
    """Tell on standard error why a look at a watched folder failed."""
    note(f"warning: {error}", error.hint)


def _nothing(params: dict[str, Any]) -> str:
    if params["min_score"] is None:
        return f"nothing found; what the hub holds, and its own min-score, shows: recall hub status {params['hub']}"
    return f"nothing found with a cosine of {params['min_score']:g} or more"


def _steps(summary: dict[str, Any]) -> Sequence[Block]:
    steps = summary["timings_ms"]
    return [table("Milliseconds", tuple(steps), [tuple(number(took, 2) for took in steps.values())], left=0)]


def _fallback(result: Result) -> Sequence[Block]:
    if result.params["rerank"] == NO_RERANKER or result.summary["reranked"]:
        return []
    reason = result.summary.get("rerank_error", "the server has no reranker: recall serve --hub-rerank")
    return [Line(f"not reranked ({reason}): this is the fused order")]


def _counts(row: dict[str, Any]) -> tuple[str, ...]:
    return (count(row.get("documents")), count(row.get("chunks")), _when(row.get("updated"))[: len("2026-11-30 06:57")])


def _model(embedder: str) -> str:
    """Return an embedder without its endpoint's address, which would fill a line by itself."""
    return embedder.partition("@")[0] if embedder.startswith("openai:") else embedder


def _when(seconds: float | None) -> str:
    return NONE if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(" ", "seconds")


def _after(seconds: float | None) -> str:
    return NONE if seconds is None else f"within {number(seconds)} s"


def _name(row: dict[str, Any]) -> str:
    return str(row["title"] or row["doc_id"])


def _cut(text: str, chars: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= chars else line[:chars].rsplit(" ", 1)[0] + " …"
