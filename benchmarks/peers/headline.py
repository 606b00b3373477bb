"""The one table that README has room for: a line a cache, each at its defaults, whoever is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from benchmarks.peers import traps
from recall_cli.cli.render.blocks import NONE, Block, number, percent, table

Row = Mapping[str, Any]
ENTRIES = 1_000


class Names(NamedTuple):
    """What one cache is called in the works: held by a program, as a proxy, and asked for right answers."""

    cache: str
    held: str
    proxy: str
    judged: str


CACHES = (
    Names("recall", "recall", "recall serve", "recall"),
    Names("GPTCache", "gptcache, our embedder", "gptcache server", "gptcache"),
    Names("RedisVL", "redisvl, our embedder", "", "redisvl"),
    Names("LiteLLM, Redis semantic", "litellm, redis-semantic, our embedder", "litellm proxy, redis-semantic",
          "litellm, redis-semantic"),
    Names("LiteLLM, local", "litellm, local", "litellm proxy, local", ""),
    Names("sulci", "sulci, our embedder", "", "sulci"),
)  # fmt: skip


def headline(rows: Sequence[Row]) -> Block:
    """Return a line for each cache."""
    ran = [row for row in rows if row["ran"]]
    shown = [(names.cache, *hit_us(ran, names), per_s(ran, names), asked(ran, names), *replayed(ran, names),
              *served(ran, names)) for names in CACHES]  # fmt: skip
    columns = ("cache", "exact hit, us", "semantic, us", "hits/s as a proxy", "provider asked, of 16",
               "texts replayed", "tool calls", "should hit", "traps")  # fmt: skip
    return table(f"Caches at their defaults, recall's embedder in all, {ENTRIES:,} entries", columns, shown)


def only(rows: Sequence[Row], **told: Any) -> Row | None:
    """Return the row that tells all of this, None when there is none."""
    return next((row for row in rows if all(row.get(key) == value for key, value in told.items())), None)


def hit_us(rows: Sequence[Row], names: Names) -> tuple[str, str]:
    """Return the median microseconds of an exact and of a semantic hit."""
    told = {"workload": "latency", "arm": names.held, "entries": ENTRIES}
    found = (only(rows, kind=kind, **told) for kind in ("exact", "semantic"))
    exact, semantic = (NONE if row is None else number(row["lookup_us"]["p50"], 0) for row in found)
    return exact, semantic


def per_s(rows: Sequence[Row], names: Names) -> str:
    """Return the exact hits a second through the proxy, from 64 callers."""
    row = only(rows, workload="throughput", arm=names.proxy, kind="exact", connections=64)
    if row is None:
        return NONE
    right = "" if row["right"] == 1 else f" ({percent(row['right'], 0)} right)"
    return number(median(row["requests_per_s"]), 0) + right


def asked(rows: Sequence[Row], names: Names) -> str:
    """Return how many of 16 callers of one new prompt reached the provider: through the proxy where there is one."""
    row = only(rows, workload="flood", arm=names.proxy) or only(rows, workload="flood", arm=names.held)
    if row is None:
        return NONE
    return "wrong answers" if row.get("wrong") else number(median(row["upstream_calls"]), 0)


def replayed(rows: Sequence[Row], names: Names) -> tuple[str, str]:
    """Return in how many cases of the SDKs a stored text and a stored tool call came back whole."""
    cases = [row for row in rows if row["workload"] == "streaming" and row["arm"] == names.proxy]
    if not cases:
        return NONE, NONE
    tools = [row for row in cases if row["kind"].startswith("tool call")]
    texts = [row for row in cases if row not in tools]
    right, tool = (f"{sum(row['replayed'] and not row['faults'] for row in of)} of {len(of)}" for of in (texts, tools))
    return right, tool


def served(rows: Sequence[Row], names: Names) -> tuple[str, str]:
    """Return the shares of look-alike pairs served at the default setting: of what should hit, and of the traps."""
    row = only(rows, workload=traps.WORKLOAD, arm=names.judged, set=traps.PAIRS, setting="default", embedder="static")
    return (NONE, NONE) if row is None else (percent(row["hit_rate"], 0), percent(row["trap_rate"], 0))
