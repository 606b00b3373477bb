"""What the tables of `recall eval --log` rest on: what was left out, where the truth comes from, what a judge cost."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from recall_cli.cache.answers.llm_judge import Judge
from recall_cli.cache.answers.verdict import Same
from recall_cli.measure.evaluate import comparator
from recall_cli.measure.evaluate.from_log import LoggedStream
from recall_cli.measure.pricing.book import PriceBook
from recall_cli.stats import wilson
from recall_cli.types import Warn

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
