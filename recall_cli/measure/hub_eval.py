"""`recall hub eval`: how well a hub answers labelled questions, by each leg alone and fused.

The unit is the document: of several chunks the best one counts. Every interval is a bootstrap over questions.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli import stats
from recall_cli.errors import InputError
from recall_cli.hub.models import HubInfo, Question, Settings
from recall_cli.hub.search.fusion import fused, order
from recall_cli.hub.search.pipeline import Gathered, Hub
from recall_cli.hub.search.whiten import Whitening
from recall_cli.measure import retrieval_fit, retrieval_limit
from recall_cli.measure.judgements import Judged, load_foreign, load_judgements
from recall_cli.measure.ranking import DEPTH, ndcg, recall, reciprocal_rank
from recall_cli.measure.result import new_result
from recall_cli.types import Ids, Progress, Result, Vector, Warn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recall_cli.hub.search.rerank import LlmReranker

    Floats = NDArray[np.float64]

LEXICAL, VECTOR, FUSED, RERANKED = "lexical", "vector", "fused", "reranked"
MEASURES = {"ndcg_at_10": ndcg, "recall_at_10": recall, "mrr_at_10": reciprocal_rank}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured, and what is learned from it."""

    queries: str
    qrels: str
    foreign: str | None = None
    """Questions that the hub cannot answer."""
    fit: bool = False
    target: float = 0.05
    """Share of the answered questions that may be foreign ones."""
    save: bool = False
    """Whether the hub is to keep what was learned."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A labelled question and what the hub's legs found for it."""

    judged: Judged
    found: Gathered

    def of(self, ids: Ids) -> list[str]:
        """Return the documents of chunks, each once, where its best chunk stands."""
        passages = self.found.passages
        return list(dict.fromkeys(passages[id].doc_id for id in ids.tolist() if id in passages))

    def fused(self, alpha: float, whiten: Whitening) -> list[str]:
        """Return the documents in the fused order."""
        found = self.found
        scores: Vector = fused(found.vector, found.vectors, found.bm25, alpha=alpha, whiten=whiten)
        return self.of(found.ids[order(scores)])


def run(hub: Hub, plan: Plan, *, reranker: LlmReranker | None = None, progress: Progress | None = None) -> Result:
    """Measure a hub on labelled questions: a row for each leg, and in the summary what was learned.

    :param reranker: the hub's own, to be measured too: a call a question. Closed at the end.
    Raises InputError for files that hold no labelled question or name no document of the hub, and StoreError.
    """
    judgements = load_judgements(plan.queries, plan.qrels)
    foreign, said = load_foreign(plan.foreign) if plan.foreign else ([], [])
    info = hub.engine.info()
    result = new_result("hub eval", {"hub": info.slug, "fit": plan.fit, "target": plan.target, "seed": plan.seed})
    result.warnings += [*judgements.warnings, *said, *_absent(hub, judgements.questions)]
    asked = [Asked(judged, hub.gather(judged.text, DEPTH)) for judged in _counted(judgements.questions, progress)]
    whiten = hub.whitening(info)
    orders = {
        LEXICAL: [one.of(one.found.worded) for one in asked],
        VECTOR: [one.of(one.found.near) for one in asked],
        FUSED: [one.fused(info.alpha, whiten) for one in asked],
    }
    failures: Counter[str] = Counter()
    if reranker is not None:
        orders[RERANKED] = asyncio.run(_reranked(hub, reranker, asked, failures))
    result.rows = [row_of(info.slug, leg, asked, found, plan.seed) for leg, found in orders.items()]
    learned = _summary(info, asked, orders, plan.seed) | {"rerank_failures": dict(failures)}
    result.summary = {"hubs": {info.slug: learned}}
    if plan.fit:
        fit = retrieval_fit.fit(
            lambda alpha: [ndcg(one.fused(alpha, whiten), one.judged.gains) for one in asked],
            present=info.alpha,
            seed=plan.seed,
        )
        learned["fit"] = fit.summary
        result.warnings += fit.warnings
    if foreign:
        limit = retrieval_limit.learn(
            [best_cosine(one.found) for one in asked],
            [best_cosine(hub.gather(text)) for text in foreign],
            target=plan.target,
            seed=plan.seed,
        )
        learned["min_score"] = limit.summary
        result.warnings += limit.warnings
    if plan.save:
        learned["saved"] = _saved(hub, learned)
    return result


def _saved(hub: Hub, learned: Mapping[str, Any]) -> Settings:
    """Let the hub keep what was learned and shown to be worth it; return that."""
    fit, limit = learned.get("fit"), learned.get("min_score")
    settings: Settings = {}
    if fit and fit["gain_interval"][0] > 0.0:
        settings["alpha"] = fit["alpha"]
    if limit and limit["min_score"] is not None:
        settings["min_score"] = limit["min_score"]
    if settings:
        hub.engine.configure(**settings)
    return settings


async def _reranked(hub: Hub, reranker: LlmReranker, asked: Sequence[Asked], failures: Counter[str]) -> list[list[str]]:
    """Return the documents of each question as the reranker orders them; what failed is counted by reason."""
    try:
        orders = []
        for one in asked:
            answer = await hub.answer(Question(one.judged.text, k=DEPTH, min_score=-1.0))
            failures.update([answer.rerank_error] if answer.rerank_error else [])
            orders.append([match.passage.doc_id for match in answer.results])
        return orders
    finally:
        await reranker.close()


def best_cosine(found: Gathered) -> float:
    """Return the highest cosine of a question's candidates: below `min_score`, it gets no answer. -1 without any."""
    return float(found.cosines.max(initial=-1.0))


def _counted(questions: Sequence[Judged], progress: Progress | None) -> Iterator[Judged]:
    for done, question in enumerate(questions):
        if progress is not None:
            progress(done, len(questions), "questions")
        yield question


def row_of(slug: str, leg: str, asked: Sequence[Asked], orders: Sequence[list[str]], seed: int) -> dict[str, Any]:
    """Return what the orders of the questions' documents are worth, with intervals over the questions."""
    row: dict[str, Any] = {"hub": slug, "leg": leg, "queries": len(asked)}
    for name, measure in MEASURES.items():
        values = [measure(found, one.judged.gains) for one, found in zip(asked, orders, strict=True)]
        mean, low, high = stats.mean_interval(values, seed=seed)
        row |= {name: mean, f"{name}_interval": [low, high]}
    return row


def _summary(info: HubInfo, asked: Sequence[Asked], orders: dict[str, list[list[str]]], seed: int) -> dict[str, Any]:
    quality: dict[str, Floats] = {
        leg: np.array([ndcg(found, one.judged.gains) for one, found in zip(asked, found_by_leg, strict=True)])
        for leg, found_by_leg in orders.items()
    }
    better = max((LEXICAL, VECTOR), key=lambda leg: float(quality[leg].mean()))
    gain, low, high = stats.mean_interval(quality[FUSED] - quality[better], seed=seed)
    wordless = sum(not len(one.found.worded) for one in asked)
    return {
        "documents": info.documents,
        "chunks": info.chunks,
        "embedder": info.embedder,
        "alpha": info.alpha,
        "queries": len(asked),
        "better_leg": better,
        "gain_over_better_leg": gain,
        "gain_over_better_leg_interval": [low, high],
        "no_lexical_candidate": wordless / len(asked),
        "no_lexical_candidate_interval": stats.wilson(wordless, len(asked)),
    }


def _absent(hub: Hub, questions: Sequence[Judged]) -> list[Warn]:
    """Return a warning for judged documents that the hub does not hold: no order can find them.

    Raises InputError where it holds none of them: zeros would say something about the hub, and not about the files.
    """
    there = {id for id, _ in hub.engine.documents()}
    named = {document for question in questions for document in question.gains}
    missing = sorted(named - there)
    if not missing:
        return []
    if len(missing) == len(named):
        raise InputError(
            f"the hub holds none of the {len(named):,} judged documents, as {missing[0]!r}",
            hint="ingest them first, under the ids that the judgements name",
        )
    return [
        Warn(
            "ABSENT_DOCUMENTS",
            f"{len(missing):,} of {len(named):,} judged documents are not in the hub, as {missing[0]!r}: they count "
            "as not found",
            "judgements name documents by the ids they were ingested with",
        )
    ]
