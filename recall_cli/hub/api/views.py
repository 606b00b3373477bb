"""An answer, a hub and a report as JSON: what the API sends, and every other face of the hub shows."""

from __future__ import annotations

from typing import Any

from recall_cli.hub.models import Answer, HubInfo, Match, Report

STEPS = ("embed", "vector", "lexical", "fuse", "rerank", "total")


def answer_json(answer: Answer) -> dict[str, Any]:
    """Return an answer, JSON-ready."""
    return {
        **about(answer),
        **outcome(answer),
        "results": [match_json(match) for match in answer.results],
    }


def about(answer: Answer) -> dict[str, Any]:
    """Return what an answer is about: known before anything is found."""
    return {
        "hub": answer.hub.slug,
        "revision": answer.hub.revision,
        "embedder": answer.hub.embedder,
        "level": answer.question.level.value,
    }


def outcome(answer: Answer) -> dict[str, Any]:
    """Return how an answer came about: known at its end."""
    return {
        "reranked": answer.reranked,
        **({"rerank_error": answer.rerank_error} if answer.rerank_error else {}),
        "cached": answer.cached,
        "timings_ms": {step: round(answer.timings_us.get(step, 0.0) / 1e3, 3) for step in STEPS},
    }


def match_json(match: Match) -> dict[str, Any]:
    """Return one result, JSON-ready. Its `score` ranks; `scores.cosine` is the one that `min_score` is held against."""
    passage = match.passage
    return {
        "doc_id": passage.doc_id,
        "title": passage.title,
        "url": passage.url,
        "chunk_id": passage.chunk_id,
        "ordinal": passage.ordinal,
        "text": passage.text,
        "score": match.score,
        "source": match.source.value,
        "scores": scores_json(match),
    }


def scores_json(match: Match) -> dict[str, float | None]:
    """Return a result's scores by name; `rerank` is None where nobody reranked."""
    return {"cosine": match.cosine, "bm25": match.bm25, "fused": match.fused, "rerank": match.rerank}


def hub_json(hub: HubInfo) -> dict[str, Any]:
    """Return a hub's state, JSON-ready: what whoever may ask it may know."""
    return {
        "hub": hub.slug,
        "visibility": hub.visibility.value,
        "revision": hub.revision,
        "documents": hub.documents,
        "chunks": hub.chunks,
        "embedder": hub.embedder,
        "dim": hub.dim,
        "alpha": hub.alpha,
        "min_score": hub.min_score,
        "updated": hub.updated,
    }


def report_json(report: Report) -> dict[str, Any]:
    """Return what an ingest did, JSON-ready."""
    return {
        "revision": report.revision,
        "added": report.added,
        "changed": report.changed,
        "unchanged": report.unchanged,
        "removed": report.removed,
        "skipped": report.skipped,
        "chunks": report.chunks,
        "embedded": report.embedded,
        "seconds": round(report.seconds, 6),
    }
