"""What people see of right and wrong answers: traffic, look-alikes, and conversations that end in the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.peers import traffic, traps
from benchmarks.peers.streams import BUDGETS
from recall_cli.cli.render.blocks import NONE, Block, Line, percent, rate, table

Row = Mapping[str, Any]
LOOSER = max(BUDGETS)

READING = (
    "text-world: generated questions, many with a look-alike, in wordings that the embedder was not fitted to. The ten "
    "weights that adaptive starts from were learned on pairs of both sets, among others. Rates with 95 % intervals. "
    "Right and wrong are of all requests, repeats among them. * chosen with the answers known: nobody could set it "
    "beforehand. static is recall's embedder, for all; minilm is the int8 form of the model that sulci embeds with by "
    "default. vcache is the policy of its paper, written by us; its promise is of queries. Rules were replayed; each "
    "package answered the first questions itself, and ≈ marks one that did otherwise."
)
TRAPS_READING = (
    "Each pair meets an empty cache: served of what should hit, and of the traps. adaptive and vcache learn from "
    "answers and have seen none. The evidence's ten weights were learned on fow-cache-dev among others, and recall's "
    "embedder and second opinion were chosen with it in sight; nothing of the peers was. In conversations recall "
    "serves nothing across other earlier turns, whatever they say."
)


def quality(rows: Sequence[Row]) -> list[Block]:
    """Return the tables of the works `streams` and `traps`."""
    of = {work: [row for row in rows if row["ran"] and row["workload"] == work] for work in ("streams", "traps")}
    flowing = [on_traffic(name, part(of["streams"], name)) for name in traffic.SETS]
    talks = (traps.TALKS, traps.WORLD_TALKS)
    return [
        *flowing,
        Line(READING),
        on_pairs(part(of["traps"], traps.PAIRS)),
        on_talks([row for name in talks for row in part(of["traps"], name)], talks),
        Line(TRAPS_READING),
    ]


def part(rows: Sequence[Row], name: str) -> list[Row]:
    """Return the rows of a set: ours first, and what a cache does by itself before what hindsight would have set."""
    found = [row for row in rows if row["set"] == name]
    return sorted(found, key=lambda row: (row["setting"] == "hindsight", not row["arm"].startswith("recall")))


def on_traffic(name: str, rows: Sequence[Row]) -> Block:
    """Return what each cache did over the streams of one set."""
    shown = [
        (
            row["arm"] + ("" if row.get("follows_replay", True) else " ≈"),
            set_to(row),
            row["embedder"],
            rate(row["hit_rate"], row["hit_rate_interval"]),
            rate(row["false_hit_rate"], row["false_hit_interval"]),
            percent(row["served_right"]),
            percent(row["served_wrong"]),
        )
        for row in rows
    ]
    columns = ("cache", "set to", "vectors", "hit rate", "wrong, of hits", "right, of all", "wrong, of all")
    return table(f"Hits and wrong answers: {name}", columns, shown, left=3)


def on_pairs(rows: Sequence[Row]) -> Block:
    """Return what each cache serves of pairs that look alike, by the kind of trap."""
    kinds = [name for name, kind in rows[0]["categories"].items() if not kind["same"]] if rows else []
    shown = [
        (
            row["arm"],
            set_to(row),
            row["embedder"],
            rate(row["hit_rate"], row["hit_rate_interval"], 0),
            rate(row["trap_rate"], row["trap_rate_interval"], 0),
            *(percent(row["categories"][kind]["rate"], 0) for kind in kinds),
        )
        for row in rows
    ]
    columns = ("cache", "set to", "vectors", "should hit", "traps", *kinds)
    return table(f"Pairs that look alike: what is served of {traps.PAIRS}", columns, shown, left=3)


def on_talks(rows: Sequence[Row], names: Sequence[str]) -> Block:
    """Return what each cache serves of conversations, a set beside the other."""
    cells = {(key(row), row["set"]): row for row in rows}
    shown = []
    for row in rows:
        # What serves next to nothing at 5 % serves no more at 1 %: the document has both.
        if row["set"] == names[0] and row["budget"] in (None, LOOSER):
            others = [cells.get((key(row), name)) for name in names]
            shown.append(
                (
                    row["arm"],
                    set_to(row, value=False),
                    row["embedder"],
                    *(cell for other in others for cell in served(other)),
                )
            )
    heads = [head for name in names for head in (f"{name.split()[0]}: should hit", "traps")]
    return table(
        "Conversations whose traps end in the same words", ("cache", "set to", "vectors", *heads), shown, left=3
    )


def key(row: Row) -> tuple[Any, ...]:
    """Return what tells a row from the others of its set."""
    return row["arm"], row["embedder"], row["setting"], row["budget"]


def served(row: Row | None) -> tuple[str, str]:
    """Return what is served of what should hit, and of the traps."""
    if row is None:
        return NONE, NONE
    return rate(row["hit_rate"], row["hit_rate_interval"], 0), rate(row["trap_rate"], row["trap_rate_interval"], 0)


def set_to(row: Row, *, value: bool = True) -> str:
    """Return what a cache was set to, and by whom.

    :param value: whether to tell the number: in hindsight it is another one for each set.
    """
    number = row.get("threshold", row.get("delta"))
    if row["setting"] == "promise":
        return f"promise {percent(row['budget'], 0)}"
    if row["setting"] == "default":
        told = percent(number, 0) if "delta" in row else f"{number:.5g}" if number is not None else ""
        return f"default {told}".strip()
    if not value:
        return f"best for {percent(row['budget'], 0)} *"
    return f"best for {percent(row['budget'], 0)} *: " + ("none" if number is None else f"{number:.5g}")
