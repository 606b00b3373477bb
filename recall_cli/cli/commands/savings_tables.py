"""The tables of `recall savings` about the replay: a row a tier, and what lifetime, size and a cold start do to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recall_cli.cli.render.blocks import NONE, Block, Line, count, percent, table
from recall_cli.measure.judged import Judged
from recall_cli.measure.savings.wording import usd, usd_digits

NAMES = {"exact": "exact", "normalised": "+ normalised", "semantic": "+ semantic", "combined": "all, at best"}
"""A row a tier; each holds what it adds to the one before it."""
UNITS = {"d": 86_400, "h": 3_600, "min": 60}


def tier_tables(s: Mapping[str, Any]) -> list[Block]:
    """Return what each tier would have answered, what that is worth, and how far the log vouches for the answers."""
    tiers = {name: s["tiers"][name] for name in NAMES if name in s["tiers"]}
    how, pooled = _how(tiers.get("semantic")), _pooled(s)
    blocks: list[Block] = [
        table(
            f"Answered{how}, of {count(s['cacheable'])} cacheable; low, high: 95 % interval",
            ("", "hits", "hit rate", "low", "high", "walls ignored"),
            [(NAMES[name], *_hits(t), pooled[name]) for name, t in tiers.items()],
        )
    ]
    equal = [(NAMES[name], *_equal(t["answers_equal"])) for name, t in tiers.items() if _compared(t)]
    if equal:
        blocks.append(
            table("Its answers, compared with the logged ones", ("", "hits", "equal", "share", "low", "high"), equal)
        )
    blocks.append(
        table(
            "Tokens and dollars of what it would have answered",
            ("", "input", "output", "$ input", "$ output"),
            [(NAMES[name], count(t["input_tokens"]), count(t["output_tokens"]), *_dollars(t)[:2])
             for name, t in tiers.items()],
        )
    )  # fmt: skip
    blocks.append(
        table(
            "Dollars saved; low, high: 90 % interval",
            ("", "$ saved", "low", "high", "of all spent"),
            [(NAMES[name], *_dollars(t)[2:], _share(t, s["spend_usd"])) for name, t in tiers.items()],
        )
    )
    return [*blocks, *map(Line, (*_judged(tiers.get("semantic", {})), *_walls(s), *_sample(s)))]


def replay_tables(s: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the sweeps and the cold start: of the keys, without neighbours, where there is anything to see."""
    if not s["tiers"]["combined"]["hits"]:
        return
    kinds = "exact and normalised matching" if "normalised" in s["tiers"] else "exact matching"
    if s["ttl"]:
        yield table(
            f"By lifetime of an answer ({kinds})",
            ("kept for", "hits", "hit rate", "$ saved"),
            [(_lifetime(row["ttl_s"]), *cells) for row, cells in zip(s["ttl"], _sweep(s["ttl"]), strict=True)],
        )
    if s["capacity"]:
        sizes = ["all" if row["entries"] is row["bytes"] is None else _size(row) for row in s["capacity"]]
        held = [size_of(row["held_bytes"]) for row in s["capacity"]]
        yield table(
            f"By size; the least recently used goes first ({kinds})",
            ("entries", "about", "hits", "hit rate", "$ saved"),
            [(size, about, *cells) for size, about, cells in zip(sizes, held, _sweep(s["capacity"]), strict=True)],
        )
    cold = s["cold_start"]
    if cold is not None:
        yield table(
            f"By sixth of the {'span' if cold['by'] == 'time' else 'requests'}: a cache starts empty",
            ("sixth", "cacheable", "hits", "hit rate", "low", "high"),
            [(str(at), count(part["n"]), *_hits(part)) for at, part in enumerate(cold["sixths"], start=1)]
            + [("last three", count(cold["steady"]["n"]), *_hits(cold["steady"]))],
        )


def _how(semantic: Mapping[str, Any] | None) -> str:
    if semantic is None:
        return ""
    return " by the adaptive policy" if semantic["tau"] is None else f" at tau {semantic['tau']:g}"


def _hits(t: Mapping[str, Any]) -> tuple[str, str, str, str]:
    low, high = t["hit_rate_interval"] if t["n"] else (None, None)
    return count(t["hits"]), percent(t["hit_rate"]), percent(low), percent(high)


def _pooled(s: Mapping[str, Any]) -> dict[str, str]:
    """Return the hits of each tier if prompts met across tenants, models and system prompts."""
    cells, before = {}, 0
    for name in NAMES:
        if name in s["tiers"] and name != "combined":
            total = s["pooled"].get(name)
            cells[name] = count(None if total is None else total - before)
            before = before if total is None else total
    return cells | {"combined": NONE if NONE in cells.values() else count(before)}


def _judged(semantic: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the semantic tier learnt, and what rules make of its answers."""
    unsure = semantic.get("unlabelled", 0)
    if semantic.get("policy") == "adaptive":
        yield (
            f"The adaptive policy learnt from {count(semantic['labels'])} logged answers, for at most "
            f"{percent(semantic['target'], 1)} wrong, and checked {count(semantic['audits'])} hits: each costs a call."
            + (f" {count(unsure)} more answers could not be judged and are no label." if unsure else "")
        )
    found = semantic.get("judged")
    if found and found["n"]:
        said = Judged(found["same"], found["different"], found["unsure"])
        yield (
            f"Of {count(found['n'])} semantic answers, compared by rules with the logged ones, {count(found['same'])} "
            f"say the same, {count(found['different'])} another thing, {count(found['unsure'])} cannot be told. "
            f"Share that is wrong: {said.said()}."
        )


def _sample(s: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a sample stands for."""
    sample = s["sample"]
    if sample is not None:
        saved = sample["saved_usd_of_all"]
        low, high = map(usd, sample["saved_usd_interval_of_all"])
        yield (
            f"Measured: {percent(sample['share'])} of the namespaces, {percent(sample['requests_share'])} of the "
            f"requests. All of them would have spent about {usd(sample['spend_usd_of_all'])}, and saved {usd(saved)} "
            f"[{low}, {high}]."
        )


def _walls(s: Mapping[str, Any]) -> Iterator[str]:
    """Yield what ignoring the walls would seem to add."""
    total = max(s["pooled"].values(), default=0)
    hits = s["tiers"]["combined"]["hits"]
    if NONE not in _pooled(s).values() and total > hits:
        yield (
            f"A count of prompts alone would read {count(total)} hits instead of {count(hits)}: the last column, where "
            "tenants, models, system prompts, earlier turns and parameters are ignored. No cache may serve those."
        )


def _compared(t: Mapping[str, Any]) -> bool:
    return bool(t.get("answers_equal", {"n": 0})["n"])


def _equal(found: Mapping[str, Any]) -> tuple[str, ...]:
    low, high = found["interval"]
    return count(found["n"]), count(found["equal"]), percent(found["share"]), percent(low), percent(high)


def _priced(t: Mapping[str, Any]) -> bool:
    return bool(t["hits"] > t["hits_without_price"])


def _dollars(t: Mapping[str, Any]) -> list[str]:
    """Return the dollars of a tier: input, output, saved, and the interval of that; dashes when there is no sum."""
    amounts = [t["usd_input"], t["usd_output"], t["usd"], *t["usd_interval"]]
    return column(amounts if _priced(t) else [None] * len(amounts))


def _share(t: Mapping[str, Any], spend: float) -> str:
    return percent(t["usd"] / spend if _priced(t) and spend else None)


def _sweep(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    saved = column([row["usd"] or None for row in rows])
    for row, cell in zip(rows, saved, strict=True):
        yield count(row["hits"]), percent(row["hit_rate"]), cell


def _lifetime(seconds: float | None) -> str:
    """Return a lifetime as it is written with --ttl."""
    if seconds is None:
        return "ever"
    unit, length = next(((unit, n) for unit, n in UNITS.items() if seconds >= n), ("s", 1))
    return f"{seconds / length:g} {unit}"


def _size(row: Mapping[str, Any]) -> str:
    return count(row["entries"]) if row["bytes"] is None else size_of(row["bytes"])


def size_of(n: int) -> str:
    """Return bytes in the unit that fits them."""
    for unit, length in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= length:
            return f"{n / length:,.1f} {unit}"
    return f"{n} B"


def column(amounts: Sequence[float | None]) -> list[str]:
    """Return a column of dollars, with as many decimals as its largest needs."""
    digits = usd_digits(amounts)
    return [NONE if amount is None else usd(amount, digits) for amount in amounts]


def duration(seconds: float) -> str:
    """Return a span of time in the unit that fits it."""
    if seconds >= 86_400:
        return f"{seconds / 86_400:,.1f} days"
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"
