"""`recall eval --log`: a request log as a stream of questions whose answers are known, since they were given.

Nobody wrote down which answers say the same; the comparator of `cache.answers.compare` tells, two by two. It answers
same, different or unsure, and its verdicts are both the truth that hits are held against and the labels a policy learns
from. What it gets wrong the tables get wrong too, so the report says what they rest on: what was left out, where the
truth comes from, the comparator's own error rates, what a judge cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.cache.answers.compare import Comparator
from recall_cli.cache.answers.llm_judge import Judge
from recall_cli.cache.answers.verdict import Same
from recall_cli.cache.embed.registry import DEFAULT_EMBEDDER, make_embedder, read_vectors
from recall_cli.cache.request import parse_body
from recall_cli.errors import InputError
from recall_cli.logs.read import read_log
from recall_cli.logs.report import ReadReport, clean
from recall_cli.measure.evaluate import comparator, policies
from recall_cli.measure.evaluate.floors import TextEvidence
from recall_cli.measure.evaluate.labels import Verdicts
from recall_cli.measure.evaluate.replay import Stream, Trace
from recall_cli.measure.evaluate.streams import numbers
from recall_cli.measure.pricing.book import PriceBook
from recall_cli.measure.savings.replay import time_order
from recall_cli.measure.savings.rows import SAMPLED, exclusion
from recall_cli.measure.savings.savings import reading
from recall_cli.stats import wilson
from recall_cli.types import LogRecord, Progress, Request, Vector, Warn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


@dataclass(slots=True)
class LoggedRequests:
    """The cacheable requests of a log in the order of the replay, and what was left out."""

    requests: list[Request] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    starts: list[float | None] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    """Where each stands in the log, as `name:line`."""
    excluded: Counter[str] = field(default_factory=Counter)
    """Reason -> requests that no cache may answer."""
    tally: ReadReport = field(default_factory=ReadReport)


@dataclass(frozen=True, slots=True)
class LoggedStream:
    """A log as a source of one stream: its questions in time order, or in another order of a seed's."""

    name: str
    questions: Stream
    asked: LoggedRequests
    verdicts: Verdicts
    rules: Comparator
    """The comparator without a judge."""
    allow_sampled: bool
    judge: Judge | None = None

    def stream(self, seed: int) -> Stream:
        """Return the log in time order: the same for every seed."""
        return copy(self.questions)

    def params(self) -> dict[str, Any]:
        """Return what was asked for."""
        return {
            "log": self.name,
            "allow_sampled": self.allow_sampled,
            "judge": self.judge.name if self.judge else None,
            "judge_limit": self.judge.limit if self.judge else None,
        }


def load(
    log: str,
    *,
    embedder: str = DEFAULT_EMBEDDER,
    allow_sampled: bool = False,
    judge: Judge | None = None,
    progress: Progress | None = None,
) -> LoggedStream:
    """Return a log as a stream. Raises InputError when it cannot be read or holds nothing a cache could answer."""
    tally = ReadReport()
    asked = _collect(read_log(log, tally, on_bytes=reading([log], progress)), tally, allow_sampled=allow_sampled)
    name = "stdin" if log == "-" else clean(log)
    if not asked.requests:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in asked.excluded.most_common())
        raise InputError(
            f"none of the {tally.records:,} requests of {name} may be answered by a cache ({reasons})",
            hint="admit sampled calls with --allow-sampled, if one answer is as good as another to you"
            if asked.excluded[SAMPLED]
            else "recall savings LOG says what each reason costs",
        )
    texts = [request.text for request in asked.requests]
    own = make_embedder(embedder)
    vectors = read_vectors(own, texts)
    names = sorted({clean(request.namespace) for request in asked.requests})
    spaces = {space: place for place, space in enumerate(names)}
    # The rules' constants were measured with the bundled embedder: another one would mean something else by 0.45.
    bundled = own if embedder == DEFAULT_EMBEDDER else make_embedder(DEFAULT_EMBEDDER)
    rules = Comparator(bundled)
    verdicts = Verdicts(asked.answers, rules)
    questions = Stream(
        name,
        tuple(names),
        np.array([spaces[clean(request.namespace)] for request in asked.requests], dtype=np.int64),
        vectors,
        np.array(verdicts.answer, dtype=np.int64),
        numbers([request.identity for request in asked.requests]),
        pair=TextEvidence(texts),
        wall=_walls(asked.requests, vectors),
        same=verdicts,
        prompts=texts,
        embedder=embedder,
    )
    source = LoggedStream(name, questions, asked, verdicts, rules, allow_sampled, judge)
    if judge is not None:
        # Every pair that some cutoff would serve is compared first, so that the few calls go to the nearest ones.
        policies.grid(Trace(questions))
        judged = Comparator(bundled, judge, judge.name)
        verdicts.ask(judge, judged, lambda i, j: float(vectors[i] @ vectors[j]), progress)
    return source


def _collect(records: Iterator[LogRecord], tally: ReadReport, *, allow_sampled: bool) -> LoggedRequests:
    """Return the requests that a cache may answer, in time order as far as the log tells."""
    asked = LoggedRequests(tally=tally)
    for record in records:
        request = parse_body(record.provider, record.request, tenant=record.tenant)
        reason = exclusion(record, request, allow_sampled=allow_sampled)
        if reason or not isinstance(request, Request) or record.answer is None:
            asked.excluded[reason or "no_answer"] += 1
            continue
        asked.requests.append(request)
        asked.answers.append(record.answer)
        asked.starts.append(record.start)
        asked.sources.append(record.source)
    order = time_order(np.array(asked.starts, dtype=np.float64)).tolist()
    asked.requests = [asked.requests[place] for place in order]
    asked.answers = [asked.answers[place] for place in order]
    asked.starts = [asked.starts[place] for place in order]
    asked.sources = [asked.sources[place] for place in order]
    return asked


def _walls(requests: Sequence[Request], vectors: Vector) -> Ints:
    """Return a number for each partition. Exact-only requests get a partition of their own."""
    known: list[bool] = np.any(vectors, axis=1).tolist()
    keys = [
        (request.partition, b"" if found and not request.exact_only else request.identity)
        for request, found in zip(requests, known, strict=True)
    ]
    return numbers(keys)


COMPARED_EACH = 300
"""Generated answer pairs of each kind that the comparator's error rates rest on: half a second."""
EXAMPLES = 10
"""Pairs of every verdict that are named, for the reader to look up and to disagree with."""
MUCH_UNSURE = 0.2
"""Share of unsure pairs from which the reader is told that much of the truth is open."""


def facts(source: LoggedStream) -> dict[str, Any]:
    """Return what was read and left out, and where the truth comes from. To be called after the evaluation."""
    asked, questions = source.asked, source.questions
    starts = [start for start in asked.starts if start is not None]
    errors = comparator.run(each=COMPARED_EACH, comparator=source.rules).summary
    found: dict[str, Any] = {
        "lines": asked.tally.lines,
        "skipped": dict(asked.tally.skipped),
        "faults": list(asked.tally.faults),
        "requests": len(asked.requests) + asked.excluded.total(),
        "excluded": dict(asked.excluded.most_common()),
        "cacheable": len(asked.requests),
        "order": "time" if len(starts) == len(asked.starts) else "partly time" if starts else "file position",
        "span_s": max(starts) - min(starts) if starts else None,
        "partitions": len(questions.partitions()),
        "exact_only": sum(request.exact_only for request in asked.requests),
        "no_known_token": int((~questions.vectors.any(axis=1)).sum()),
        "exact_repeats": _repeats(source),
        "truth": source.verdicts.counts() | {"errors": errors},
        "to_check": [
            {"a": asked.sources[i], "b": asked.sources[j], "verdict": str(said.verdict), "reason": said.reason}
            for i, j, said in source.verdicts.examples(EXAMPLES, 0)
        ],
    }
    if source.judge is not None:
        found["judge"] = source.judge.counts() | _price(source.judge)
    return found


def _repeats(source: LoggedStream) -> dict[str, Any]:
    """Return what the comparator says of requests asked again, letter for letter: how far the model repeats itself.

    Each against the first answer, which is what a cache would have served. No judge is asked for these.
    """
    first: dict[int, int] = {}
    said: Counter[Same] = Counter()
    for i, text in enumerate(source.questions.text.tolist()):
        j = first.setdefault(text, i)
        if i != j:
            said[source.rules(source.asked.answers[j], source.asked.answers[i]).verdict] += 1
    n = said.total()
    return {
        "n": n,
        **{str(verdict): said[verdict] for verdict in Same},
        "different_interval": list(wilson(said[Same.DIFFERENT], n)),
    }


def warnings(source: LoggedStream, facts: dict[str, Any]) -> list[Warn]:
    """Return what a reader of the tables must know."""
    found = []
    truth = facts["truth"]
    if facts["order"] != "time":
        what = f"{source.name} does not say of every request when it was made: those keep their place in the file"
        found.append(Warn("NO_TIMES", what, "add a timestamp to each line"))
    if facts["faults"]:
        found.append(Warn("LOG_DAMAGED", f"{source.name}: {facts['faults'][0]}", "what could be read is counted"))
    if truth["pairs"] and truth["unsure_share"] >= MUCH_UNSURE:
        what = (
            f"of {100 * truth['unsure_share']:.0f} % of {truth['pairs']:,} pairs of answers the comparator cannot tell "
            "whether they say the same: read the bounds beside the rate"
        )
        help = (
            "let more calls decide: --judge-limit" if source.judge else "let a model decide on them: --judge llm:MODEL"
        )
        found.append(Warn("UNSURE", what, help))
    if source.judge is not None:
        found += _judge_warnings(facts["judge"])
    return found


def _judge_warnings(judge: dict[str, Any]) -> list[Warn]:
    decided = sum(judge["said"].values())
    what = f"{judge['name']} decided on {decided:,} pairs; how often it errs is not known"
    help = "look up some of its pairs (to_check, --out FILE) before you rely on a low rate"
    found = [Warn("JUDGE_UNMEASURED", what, help)] if decided else []
    failed = sum(judge["faults"].values())
    if failed:
        most = max(judge["faults"], key=judge["faults"].get)
        what = f"{failed:,} of {judge['calls']:,} calls of {judge['name']} gave no verdict, most often: {most}"
        found.append(Warn("JUDGE_FAILED", what, "their pairs stay unsure; mend the cause and run again"))
    return found


def _price(judge: Judge) -> dict[str, Any]:
    """Return what the judge's tokens cost by list price; None where the table does not know the model."""
    prices = PriceBook()
    cost = prices.cost("openai", judge.model, judge.usage, when=datetime.now(UTC).timestamp())
    return {"usd": float(cost.total) if cost else None, "price_source": prices.source()}
