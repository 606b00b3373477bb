"""What `recall eval --log` shows: what was left out, where the truth comes from, and what its open part may hide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recall_cli.cli.commands.savings_tables import duration
from recall_cli.cli.render.blocks import NONE, Block, Line, count, number, percent, rate, table
from recall_cli.logs.reasons import words
from recall_cli.measure.judged import NOT_KNOWN, Judged, between
from recall_cli.measure.savings.wording import REASONS, usd

ORDERS = {"time": "in time order", "partly time": "in time order as far as known", "file position": "by file position"}


def opening(workload: str, log: Mapping[str, Any]) -> list[Block]:
    """Return what comes before the policies: the log, what was left out, the comparator and the judge."""
    blocks: list[Block] = [Line(_log(workload, log))]
    left_out = [(REASONS.get(reason, reason), count(n)) for reason, n in log["excluded"].items()]
    left_out += [(f"line: {words(reason)}", count(n)) for reason, n in log["skipped"].items()]
    if left_out:
        blocks.append(table("What is left out, and why", ("reason", "requests"), left_out))
    return [*blocks, *map(Line, _truth(log)), Line("")]


def _log(workload: str, log: Mapping[str, Any]) -> str:
    span = "" if log["span_s"] is None else f" over {duration(log['span_s'])}"
    said = (
        f"{workload}: {count(log['requests'])} requests{span}; {count(log['cacheable'])} can be cached, in "
        f"{count(log['partitions'])} partitions that no hit crosses."
    )
    alone = log["exact_only"] + log["no_known_token"]
    if alone:
        said += f" {count(alone)} can only be answered by an equal one."
    repeats = log["exact_repeats"]
    if repeats["n"]:
        other = Judged(repeats["same"], repeats["different"], repeats["unsure"]).said()
        said += (
            f" {count(repeats['n'])} repeat an earlier one letter for letter and are in no rate: their answer is "
            f"another one than the first in {other}, which no cutoff mends."
        )
    return said


def _truth(log: Mapping[str, Any]) -> Iterator[str]:
    truth, errors = log["truth"], log["truth"]["errors"]
    share = rate(truth["unsure_share"], truth["unsure_interval"])
    yield (
        f"Whether two answers say the same is what the comparator says ({truth['comparator']}). Of "
        f"{count(truth['pairs'])} pairs that some cutoff or policy put together: {count(truth['same'])} same, "
        f"{count(truth['different'])} different, "
        f"{count(truth['unsure'])} unsure ({share}), which give no label."
    )
    yield (
        "The rules' own errors, on generated answers: of pairs that say the same "
        f"{rate(errors['false_different_rate'], errors['false_different_interval'], 2)} are called different "
        f"(n {count(errors['false_different_n'])}), of pairs that do not "
        f"{rate(errors['false_same_rate'], errors['false_same_interval'], 2)} the same "
        f"(n {count(errors['false_same_n'])}). Your answers may be harder. A verdict at all is given on "
        f"{percent(errors['label_share_same'], 0)} of the first and {percent(errors['label_share_different'], 0)} of "
        "the others: rates of judged hits lean low, the bounds do not."
    )
    if "judge" in log:
        yield _judge(log["judge"])


def _judge(judge: Mapping[str, Any]) -> str:
    said, spent = judge["said"], "no list price known"
    if judge["usd"] is not None:
        spent = f"{usd(judge['usd'])} by {judge['price_source']['name']} {judge['price_source']['version']}"
    text = (
        f"{judge['name']} was asked in {count(judge['calls'])} calls (limit {count(judge['limit'])}): {said['same']:,} "
        f"same, {said['different']:,} different, {said['unsure']:,} unsure; {count(judge['input_tokens'])} tokens in, "
        f"{count(judge['output_tokens'])} out, {spent}."
    )
    for what, counts in (("Without a verdict", judge["faults"]), ("Not asked for", judge["not_asked"])):
        if counts:
            text += f" {what}: " + ", ".join(f"{reason} {n:,}" for reason, n in counts.items()) + "."
    return text + " Its own error is not known."


def policies(title: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Block]:
    """Return the policies over one log: rates of what can be judged, and bounds with the rest all right, all wrong."""
    return [
        table(
            title,
            (
                "policy",
                "hit rate",
                "second half",
                "wrong, of judged hits",
                "not judged",
                "wrong, of all",
                "calls saved",
            ),
            [
                (
                    name,
                    rate(row["hit_rate"], row["hit_rate_interval"]),
                    percent(row["hit_rate_second_half"]),
                    _of_judged(row),
                    f"{row['unsure_hits']:,}/{row['hits']:,}",
                    _of_all(row),
                    count(row["calls_saved_net"]),
                )
                for name, row in zip(names, rows, strict=True)
            ],
        ),
        table(
            f"{title}: was it kept?",
            ("policy", "kept", "wrong, of queries", "testable", "feasible", "checks", "without a label"),
            [
                (
                    name,
                    _kept(row),
                    _bounds(row["error_per_query_bounds"]),
                    f"{row['testable']}/{row['runs']}",
                    f"{row['feasible']}/{row['runs']}" if row["hindsight"] else NONE,
                    number(row["audits"] / row["runs"], 0),
                    number(row["unlabelled"] / row["runs"], 0),
                )
                for name, row in zip(names, rows, strict=True)
            ],
        ),
    ]


def _of_judged(row: Mapping[str, Any]) -> str:
    """Return the rate of the judged hits; none where it would read as "nothing is wrong" and not all were judged."""
    if not row["judged_hits"] or (row["unsure_hits"] and not row["false_hits"]):
        return NONE
    return rate(row["false_hit_rate"], row["false_hit_interval"], 2)


def _bounds(bounds: Sequence[float | None]) -> str:
    low, high = bounds
    return NONE if low is None else between(low, high, 2)


def _of_all(row: Mapping[str, Any]) -> str:
    if not row["hits"]:
        return NONE
    return _bounds(row["false_hit_bounds"]) if row["judged_hits"] else NOT_KNOWN


def _kept(row: Mapping[str, Any]) -> str:
    """Return whether the promise was kept, whatever the unsure hits were; "open" where it hangs on them."""
    least, most = row["runs_over_bounds"]
    runs = row["runs"]
    if not row["hits"]:
        return "no hits"
    if runs > 1:
        return f"{runs - most}/{runs}" if least == most else f"{runs - most} to {runs - least} of {runs}"
    return "yes" if not most else "no" if least else "open"


READING = (
    "One log is one stream: intervals take its questions for independent, and those of a burst are not. {order} Each "
    "question is answered before the next comes. Wrong is of served semantic hits; a hit whose answers cannot be told "
    "apart is not judged: wrong, of all, runs from none to all of those, and where none was judged wrong there is no "
    "rate beside it. kept: yes or no whatever those were, open where it hangs on them. * chose its cutoff with the "
    "whole stream known: nobody could run it."
)
SHUFFLED = (
    "Runs are random orders of the same questions, which intervals count once: what drifts or comes in bursts is gone."
)
TIMELY = "The run is in the order of the log."


def reading(order: str) -> str:
    """Return how to read the tables."""
    return READING.format(order=SHUFFLED if order == "shuffled" else TIMELY)
