"""What people see of a run: a table a work, wins and losses alike, and who did not run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.peers.headline import headline
from benchmarks.peers.quality_view import quality
from benchmarks.peers.streaming import KINDS
from recall_cli.cli.render.blocks import NONE, Block, Line, Table, count, number, percent, rate, table
from recall_cli.types import Result

Row = Mapping[str, Any]
READING = (
    "Caches take turns in rounds; × recall is a ratio to recall's of the same rounds: of processor time in the first "
    "table, of requests a second in the second. Peers embed with recall's static embedder, in their own process, and "
    "their stores lie in a file system in memory, as recall's does. GPTCache's limit of 1,000 entries and LiteLLM's of "
    "200 were lifted, but for the stream that evicts. In the last table an answer that is not among the right ones, "
    "where no reason stands, was fetched again: recall stores no tool calls, LiteLLM keeps streamed and whole apart."
)
APIS = {"openai": "OpenAI", "anthropic": "Anthropic"}


def view(result: Result) -> Sequence[Block]:
    """Return a line a cache; hits, proxies, behaviour, streams; right and wrong answers; and what did not run."""
    ran: dict[str, list[Row]] = {}
    for row in result.rows:
        if row["ran"]:
            ran.setdefault(row["workload"], []).append(row)
    blocks = [
        headline(result.rows),
        hits(ran.get("latency", [])),
        proxies(ran.get("throughput", [])),
        behaviour(ran.get("flood", []), ran.get("eviction", [])),
        streams(ran.get("streaming", [])),
        Line(READING),
        *quality(result.rows),
        absent([row for row in result.rows if not row["ran"]]),
    ]
    return [said(block) for block in blocks]


def said(block: Block) -> Block:
    """Return a block, or of a table without a row the sentence that nobody measured it."""
    if isinstance(block, Table) and not block.rows:
        return Line(f"{block.title}: not measured in this run.")
    return block


def hits(rows: Sequence[Row]) -> Block:
    """Return what a hit costs a program that holds the cache."""
    cells = {(row["arm"], row["entries"], row["kind"]): row for row in rows}
    shown = [
        (
            arm,
            count(entries),
            *(text for tier in ("exact", "semantic") for text in hit(cells.get((arm, entries, tier)))),
        )
        for arm, entries in dict.fromkeys((row["arm"], row["entries"]) for row in rows)
    ]
    columns = ("cache", "entries", "exact", "CPU × recall", "semantic", "CPU × recall")
    return table("A hit in the program itself: microseconds, p50 / p99", columns, shown)


def hit(row: Row | None) -> tuple[str, str]:
    """Return a row's time, and the ratio of its processor time to recall's."""
    if row is None:
        return NONE, NONE
    times = f"{number(row['lookup_us']['p50'])} / {number(row['lookup_us']['p99'])}"
    if row["right"] < 1:
        times += f" ({percent(row['right'])} right)"
    return times, over(row, "cpu_over_recall")


def over(row: Row, name: str = "over_recall") -> str:
    """Return a ratio to recall's with its interval, at the digits that tell something."""
    told = row.get(name)
    if told is None:
        return "1"
    digits = 2 if told["ratio"] >= 0.1 else 4
    low, high = told["interval"]
    return f"{told['ratio']:,.{digits}f} [{low:,.{digits}f}, {high:,.{digits}f}]"


def proxies(rows: Sequence[Row]) -> Block:
    """Return what a hit costs through a proxy."""
    cells = {(row["arm"], row["kind"], row["connections"]): row for row in rows}
    shown = []
    for arm, tier in sorted(
        {(row["arm"], row["kind"]) for row in rows}, key=lambda key: (key[1], key[0] != "recall serve", key[0])
    ):
        many, one = cells[arm, tier, 64], cells[arm, tier, 1]
        shown.append((arm, tier, percent(many["right"], 0), number(median(many["requests_per_s"])), over(many),
                      number(median(one["p50_us"]), 0), number(median(many["cpu_us"]), 0)))  # fmt: skip
    columns = ("proxy", "hit", "right", "requests/s, 64 callers", "× recall", "us p50, 1 caller", "CPU us a request")
    return table("A hit through a proxy", columns, shown, left=2)


def behaviour(floods: Sequence[Row], evictions: Sequence[Row]) -> Block:
    """Return how often the provider is asked for one prompt at once, and what a full cache loses."""
    lost = {row["arm"]: row for row in evictions}
    shown = []
    for row in floods:
        full = lost.get(row["arm"])
        asked = f"{number(median(row['upstream_calls']), 0)} of {row['callers']}"
        if row["errors"]:
            asked += ", with errors"
        if row.get("wrong"):
            asked += f", {row['wrong']} of {row['callers'] * len(row['upstream_calls'])} answered wrong"
        shown.append((row["arm"], row["kind"], asked, *repeats(full)))
    columns = ("cache", "as a", "provider asked", "repeats lost", "by plain LRU", "wrong answers")
    return table("The same new prompt at once, and a Zipf stream over four times the capacity", columns, shown, left=2)


def repeats(row: Row | None) -> tuple[str, str, str]:
    """Return what a full cache lost, what plain LRU would have, and what was wrong."""
    if row is None:
        return NONE, NONE, NONE
    return rate(row["lost_rate"], row["lost_interval"]), percent(row["lru_lost_rate"]), count(row["wrong"])


def streams(rows: Sequence[Row]) -> Block:
    """Return in how many of four pairs of modes a stored answer comes back whole, and what is missing elsewhere."""
    shown = [
        (arm, *(cell(part_of(rows, arm, api, kind)) for api, kinds in KINDS.items() for kind in kinds))
        for arm in dict.fromkeys(row["arm"] for row in rows)
    ]
    columns = ("proxy", *(f"{APIS[api]}, {kind}" for api, kinds in KINDS.items() for kind in kinds))
    return table("Stored answers through the official SDKs: right, of 4 (streamed or whole, then streamed or whole)",
                 columns, shown)  # fmt: skip


def part_of(rows: Sequence[Row], arm: str, api: str, kind: str) -> list[Row]:
    """Return the cases of one cell."""
    return [row for row in rows if (row["arm"], row["provider"]) == (arm, api) and row["kind"].startswith(f"{kind},")]


def cell(cases: Sequence[Row]) -> str:
    """Return how many cases came back right, and what was wrong with the others."""
    right = sum(case["replayed"] and not case["faults"] for case in cases)
    wrong = dict.fromkeys(fault.partition(":")[0] for case in cases for fault in case["faults"])
    return f"{right}" + (f" ({', '.join(wrong)})" if wrong else "")


def absent(rows: Sequence[Row]) -> Block:
    """Return who did not run, why, and what others say of it."""
    return table("Not run", ("cache", "work", "why", "published, under conditions of its own"), list(absences(rows)), 4)


def absences(rows: Sequence[Row]) -> Iterator[tuple[str, str, str, str]]:
    """Yield a line an arm and reason, with the works that it holds for."""
    works: dict[tuple[str, str], list[str]] = {}
    said: dict[tuple[str, str], str] = {}
    for row in rows:
        key = row["arm"], row["why"]
        works.setdefault(key, []).append(row["workload"])
        said[key] = "; ".join(f"{one['figure']} ({one['conditions']}; {one['source']})" for one in row["published"])
    for (arm, why), of in works.items():
        yield arm, ", ".join(dict.fromkeys(of)), why, said[arm, why] or NONE
