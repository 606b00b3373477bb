"""`recall hub eval`: how well a hub answers labelled questions, by each leg alone and fused.

The unit is the document: of several chunks the best one counts. Measures are nDCG, recall and reciprocal rank of the
first ten; every interval is a bootstrap over questions.

Questions (`--queries`) are JSON Lines or CSV with an id and a text. Judgements (`--qrels`) are rows of question,
document and gain, with a header, or as TREC writes them (`question 0 document gain`, without one). No row is dropped
unsaid.

Two settings can be fitted to them. The weight of the vector leg is judged on questions the fit has not seen.
`min_score` is learned from questions that a hub can answer and questions that it cannot, by the cache's adaptive
policy with the cosine as the only evidence: serve when the best candidate is near enough, and hold the share of wrong
answers.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli import stats
from recall_cli.cache.policy.adaptive import AdaptivePolicy
from recall_cli.errors import InputError
from recall_cli.hub.models import HubInfo, Question, Settings
from recall_cli.hub.search.fusion import Whitening, fused, order
from recall_cli.hub.search.pipeline import Gathered, Hub
from recall_cli.measure.evaluate.evidence_fit import auc
from recall_cli.measure.evaluate.pairs import finite, first, insist, left_out, rows_of
from recall_cli.measure.prompts import read_text, standard_input
from recall_cli.measure.result import new_result
from recall_cli.types import Evidence, Ids, Progress, Result, Vector, Warn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recall_cli.hub.search.rerank import LlmReranker

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

ID = ("_id", "id", "qid", "query-id", "query_id")
TEXT = ("text", "question", "query")
QUESTION = ("query-id", "query_id", "qid", "question_id", "query", "question")
DOCUMENT = ("corpus-id", "corpus_id", "doc_id", "docid", "doc", "document")
GAIN = ("score", "relevance", "rel", "gain", "label")
TREC = ("query-id", "iteration", "corpus-id", "score")

QUERIES_HINT = 'Give one question a line: {"_id": "1", "text": "..."}.'
QRELS_HINT = "Give columns query-id, corpus-id, score (tab-separated, with that header), or TREC's four columns."


@dataclass(frozen=True, slots=True)
class Judged:
    """A question and what is known to answer it."""

    id: str
    text: str
    gains: Mapping[str, float]
    """By document: how well it answers, above 0. A document that is not here does not answer."""


@dataclass(frozen=True, slots=True)
class Judgements:
    """The questions that have an answer, and what was left out on the way to them."""

    questions: tuple[Judged, ...]
    warnings: tuple[Warn, ...]


def load_judgements(queries: str, qrels: str) -> Judgements:
    """Return the questions that at least one document answers. Raises InputError when there is none."""
    odd_questions: Counter[str] = Counter()
    odd_gains: Counter[str] = Counter()
    asked, gains = _questions(queries, odd_questions), _gains(qrels, odd_gains)
    said = [*left_out(odd_questions, queries), *left_out(odd_gains, qrels)]
    questions = tuple(Judged(id, text, gains[id]) for id, text in asked.items() if id in gains)
    if not questions:
        raise InputError(
            f"no question of {queries} has a judgement above 0 in {qrels}", hint="the ids of both must be the same"
        )
    if unjudged := len(asked) - len(questions):
        said.append(Warn("UNJUDGED", f"{unjudged:,} questions of {queries} have no judgement above 0: left out"))
    if unknown := len(gains.keys() - asked.keys()):
        said.append(Warn("UNKNOWN_QUESTION", f"{unknown:,} questions of {qrels} are not in {queries}: left out"))
    return Judgements(questions, tuple(said))


def load_foreign(path: str) -> tuple[list[str], list[Warn]]:
    """Return the texts of questions that a hub cannot answer; they need no id. Raises InputError."""
    text, source = read_text(path, standard_input(), "questions")
    skipped: Counter[str] = Counter()
    rows = rows_of(text, source, skipped, QUERIES_HINT, lambda names: not names.isdisjoint(TEXT))
    texts = [found for row in rows if (found := _text(row, skipped))]
    insist(texts, source, skipped, "question", QUERIES_HINT)
    return texts, [*left_out(skipped, source)]


def _questions(path: str, skipped: Counter[str]) -> dict[str, str]:
    text, source = read_text(path, standard_input(), "questions")
    found: dict[str, str] = {}
    for row in rows_of(text, source, skipped, QUERIES_HINT, lambda n: not n.isdisjoint(ID) and not n.isdisjoint(TEXT)):
        id, question = first(row, ID), _text(row, skipped)
        if id is None:
            skipped["without an id"] += 1
        elif str(id) in found:
            skipped["with an id that came before"] += 1
        elif question:
            found[str(id)] = question
    insist(found, source, skipped, "question", QUERIES_HINT)
    return found


def _gains(path: str, skipped: Counter[str]) -> dict[str, dict[str, float]]:
    text, source = read_text(path, standard_input(), "judgements")
    found: dict[str, dict[str, float]] = {}
    for row in rows_of(_with_header(text), source, skipped, QRELS_HINT, _is_qrels_header):
        question, document, gain = first(row, QUESTION), first(row, DOCUMENT), finite(first(row, GAIN))
        if question is None or document is None:
            skipped["without a question and a document"] += 1
        elif gain is None:
            skipped["without a gain that is a number"] += 1
        elif gain > 0:
            found.setdefault(str(question), {})[str(document)] = gain
    insist(found, source, skipped, "judgement above 0", QRELS_HINT)
    return found


def _is_qrels_header(names: set[str]) -> bool:
    return not any(names.isdisjoint(known) for known in (QUESTION, DOCUMENT, GAIN))


def _with_header(text: str) -> str:
    """Return judgements with a header: TREC's have none, and any white space between their four columns."""
    line = text.lstrip().split("\n", 1)[0].split()
    if len(line) != len(TREC) or finite(line[-1]) is None:
        return text
    return "\n".join("\t".join(row.split()) for row in ("\t".join(TREC), *text.splitlines()))


def _text(row: Mapping[str, Any], skipped: Counter[str]) -> str:
    text = first(row, TEXT)
    if isinstance(text, str) and text.strip():
        return text.strip()
    skipped["without a text"] += 1
    return ""


DEPTH = 10
"""Documents of an order that count."""
DISCOUNTS = tuple(1 / math.log2(rank + 2) for rank in range(DEPTH))
"""What a document's gain counts for at ranks 0 to 9."""


def ndcg(order: Sequence[str], gains: Mapping[str, float]) -> float:
    """Return nDCG@10 with linear gains, as trec_eval has it: 1 when no better order exists.

    :param gains: of every document that answers, found or not; one at least.
    """
    found = (gains.get(document, 0.0) for document in order)
    ideal = sorted(gains.values(), reverse=True)
    # An order or an ideal shorter than ten documents ends the sum early.
    return sum(g * d for g, d in zip(found, DISCOUNTS, strict=False)) / sum(
        g * d for g, d in zip(ideal, DISCOUNTS, strict=False)
    )


def recall(order: Sequence[str], gains: Mapping[str, float]) -> float:
    """Return the share of the documents that answer that are among the first ten."""
    return len(gains.keys() & set(order[:DEPTH])) / len(gains)


def reciprocal_rank(order: Sequence[str], gains: Mapping[str, float]) -> float:
    """Return 1 over the rank of the first document that answers; 0 when none of the first ten does."""
    return next((1 / rank for rank, document in enumerate(order[:DEPTH], 1) if document in gains), 0.0)


STEP = 0.05
"""Of the weights that are tried; between neighbours no set of labels this tool is for tells a difference."""
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Fit:
    """The fitted weight, and what is said about it."""

    alpha: float
    summary: dict[str, Any]
    warnings: tuple[Warn, ...] = ()


def fit_alpha(score: Callable[[float], Sequence[float]], *, present: float, seed: int = 0) -> Fit:
    """Return the weight with the best mean, and its cross-validated gain over the present one.

    :param score: returns each question's nDCG@10 at a weight, the questions always in the same order.
    """
    alphas = np.round(np.arange(0.0, 1.0 + STEP / 2, STEP), 2)
    table: Floats = np.array([score(float(alpha)) for alpha in alphas])
    now: Floats = np.asarray(score(present))
    n = table.shape[1]
    fold: Ints = np.random.default_rng(seed).permutation(n) % min(FOLDS, n)
    unseen, chosen = np.empty(n), []
    for number in range(fold.max() + 1):
        best = _best(table[:, fold != number], alphas, present) if n > 1 else _best(table, alphas, present)
        chosen.append(float(alphas[best]))
        unseen[fold == number] = table[best, fold == number]
    alpha = float(alphas[_best(table, alphas, present)])
    mean, low, high = stats.mean_interval(unseen, seed=seed)
    gain, least, most = stats.mean_interval(unseen - now, seed=seed)
    summary = {
        "alpha": alpha,
        "present_alpha": present,
        "folds": len(chosen),
        "fold_alphas": chosen,
        "ndcg_at_10_unseen": mean,
        "ndcg_at_10_unseen_interval": [low, high],
        "gain": gain,
        "gain_interval": [least, most],
        "curve": [{"alpha": float(a), "ndcg_at_10": float(m)} for a, m in zip(alphas, table.mean(axis=1), strict=True)],
    }
    if least > 0.0:
        return Fit(alpha, summary)
    said = Warn(
        "NO_GAIN_SHOWN",
        f"a weight fitted to other questions of this file gains {gain:+.3f} nDCG@10 over {present:g} "
        f"[{least:+.3f}, {most:+.3f}]: no gain is shown",
        "keep the present weight, or label more questions",
    )
    return Fit(alpha, summary, (said,))


def _best(table: Floats, alphas: Floats, present: float) -> int:
    """Return the position of the weight with the best mean; of equal ones the nearest to the present weight."""
    means = table.mean(axis=1)
    best = np.flatnonzero(means >= means.max() - 1e-12)
    return int(best[np.argmin(np.abs(alphas[best] - present))])


LEAST_WINDOW = 100
"""The smallest window that the policy takes."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The learned limit, None when none keeps the promise, and what is said about it."""

    min_score: float | None
    summary: dict[str, Any]
    warnings: tuple[Warn, ...] = ()


def learn(answerable: Sequence[float], foreign: Sequence[float], *, target: float, seed: int = 0) -> Limit:
    """Return the lowest cosine that keeps the foreign ones among the answered questions at or under the target.

    Both kinds are taken to be asked as often as the files have them. The shares are of questions held out: the limit
    that each is held against was learned from the other folds.

    :param answerable: best cosine of each question that the hub can answer.
    :param foreign: best cosine of each question that it cannot.
    """
    cosines: Floats = np.array([*answerable, *foreign])
    right: Bools = np.arange(len(cosines)) < len(answerable)
    fold = np.random.default_rng(seed).permutation(len(cosines)) % FOLDS
    answered: Bools = np.zeros(len(cosines), dtype=bool)
    for number in range(FOLDS):
        limit = _learned(cosines[fold != number], right[fold != number], target, seed)
        answered[fold == number] = limit is not None and cosines[fold == number] >= limit
    learned = _learned(cosines, right, target, seed)
    kept, let_through = int(answered[right].sum()), int(answered[~right].sum())
    summary = {
        "min_score": learned,
        "target": target,
        "auc": auc(cosines, right),
        "answerable": len(answerable),
        "answerable_answered": kept / len(answerable),
        "answerable_answered_interval": stats.wilson(kept, len(answerable)),
        "foreign": len(foreign),
        "foreign_answered": let_through / len(foreign),
        "foreign_answered_interval": stats.wilson(let_through, len(foreign)),
        "false_answers": let_through / (kept + let_through) if kept + let_through else None,
        "false_answers_interval": stats.wilson(let_through, kept + let_through),
    }
    if learned is not None:
        return Limit(learned, summary)
    said = Warn(
        "NO_MIN_SCORE",
        f"no cosine keeps foreign questions at {target:.1%} of the answered ones: "
        f"{len(answerable):,} answerable and {len(foreign):,} foreign questions, AUC {summary['auc']:.3f}",
        "give more questions of both kinds, or allow more with --false-answers",
    )
    return Limit(None, summary, (said,))


def _learned(cosines: Floats, right: Bools, target: float, seed: int) -> float | None:
    """Return the cutoff that the policy learns from these labels, rounded up; None when it would serve nothing."""
    n = len(cosines)
    # Everything is labelled beforehand, so there is one fit, at the last label.
    policy = AdaptivePolicy(target_false_hit=target, window=max(n, LEAST_WINDOW), warmup=n, seed=seed)
    for at in np.random.default_rng(seed).permutation(n).tolist():
        policy.observe("", Evidence(float(cosines[at])), same=bool(right[at]))
    cutoff = policy.cutoffs()[""]
    return float(np.ceil(cutoff * 1e4) / 1e4) if cutoff <= 1.0 else None


LEXICAL, VECTOR, FUSED, RERANKED = "lexical", "vector", "fused", "reranked"
MEASURES = {"ndcg_at_10": ndcg, "recall_at_10": recall, "mrr_at_10": reciprocal_rank}


@dataclass(frozen=True, slots=True)
class HubEvalPlan:
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
class JudgedQuestion:
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


def run(
    hub: Hub, plan: HubEvalPlan, *, reranker: LlmReranker | None = None, progress: Progress | None = None
) -> Result:
    """Measure a hub on labelled questions: a row for each leg, and in the summary what was learned.

    :param reranker: the hub's own, to be measured too: a call a question. Closed at the end.
    Raises InputError for files that hold no labelled question or name no document of the hub, and StoreError.
    """
    judgements = load_judgements(plan.queries, plan.qrels)
    foreign, said = load_foreign(plan.foreign) if plan.foreign else ([], [])
    info = hub.engine.info()
    result = new_result("hub eval", {"hub": info.slug, "fit": plan.fit, "target": plan.target, "seed": plan.seed})
    result.warnings += [*judgements.warnings, *said, *_absent(hub, judgements.questions)]
    asked = [
        JudgedQuestion(judged, hub.gather(judged.text, DEPTH)) for judged in _counted(judgements.questions, progress)
    ]
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
        fit = fit_alpha(
            lambda alpha: [ndcg(one.fused(alpha, whiten), one.judged.gains) for one in asked],
            present=info.alpha,
            seed=plan.seed,
        )
        learned["fit"] = fit.summary
        result.warnings += fit.warnings
    if foreign:
        limit = learn(
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


async def _reranked(
    hub: Hub, reranker: LlmReranker, asked: Sequence[JudgedQuestion], failures: Counter[str]
) -> list[list[str]]:
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


def row_of(
    slug: str, leg: str, asked: Sequence[JudgedQuestion], orders: Sequence[list[str]], seed: int
) -> dict[str, Any]:
    """Return what the orders of the questions' documents are worth, with intervals over the questions."""
    row: dict[str, Any] = {"hub": slug, "leg": leg, "queries": len(asked)}
    for name, measure in MEASURES.items():
        values = [measure(found, one.judged.gains) for one, found in zip(asked, orders, strict=True)]
        mean, low, high = stats.mean_interval(values, seed=seed)
        row |= {name: mean, f"{name}_interval": [low, high]}
    return row


def _summary(
    info: HubInfo, asked: Sequence[JudgedQuestion], orders: dict[str, list[list[str]]], seed: int
) -> dict[str, Any]:
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
