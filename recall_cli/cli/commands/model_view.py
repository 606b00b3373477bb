"""What `recall model` shows: tables of a build's files, and of what embedders tell apart."""

from __future__ import annotations

from typing import Any

from recall_cli.cli.render.blocks import Block, bare, count, number, rate, table
from recall_cli.types import Result


def view(result: Result) -> list[Block]:
    """Return the tables of a `model build` or `model eval` result."""
    if result.command == "model build":
        files = [(row["file"], count(row["bytes"]), row["sha256"]) for row in result.rows]
        return [table("Model folder", ("file", "bytes", "SHA-256"), files)]
    if result.command == "model fit":
        return _fit(result)
    kinds = {row["measure"] for row in result.rows}
    drawn = {"pairs": _pairs, "cache": _cache, "traps": _traps, "graded": _graded, "cost": _cost}
    return [
        draw([row for row in result.rows if row["measure"] == kind]) for kind, draw in drawn.items() if kind in kinds
    ]


def _fit(result: Result) -> list[Block]:
    """Return the cross-validated comparison, and which tokens moved most."""
    summary = result.summary
    rates, spans = summary["hit_rate_at_false_hit"], summary["hit_rate_at_false_hit_interval"]
    shares = list(rates["before"])
    compared = table(
        f"{summary['should_hit']:,} pairs that should hit, {summary['traps']:,} traps, scored by weights of the others",
        ("weights", "AUC", *(f"at {100 * float(share):g} % of traps" for share in shares)),
        [
            (
                name.replace("_", "-"),
                bare(summary["auc"][name], summary["auc_interval"][name], 3),
                *(rate(rates[name][share], spans[name][share]) for share in shares),
            )
            for name in summary["auc"]
        ],
    )
    if not summary["saved"]:
        return [compared]
    moved = [(row["token"], number(row["factor"], 2)) for row in result.rows]
    return [compared, table("Tokens whose weight changed most", ("token", "factor"), moved)]


def _pairs(rows: list[dict[str, Any]]) -> Block:
    return table(
        "Same intent or not: random pairs, and each utterance's nearest of either kind",
        ("data", "pairs", "embedder", "n", "AUC", "true positives at 1 % false"),
        [
            (
                row["data"],
                row["pairs"],
                row["embedder"],
                count(row["n"]),
                _plain(row, "auc"),
                _rate(row, "tpr_at_fpr_1"),
            )
            for row in rows
        ],
        left=3,
    )


def _cache(rows: list[dict[str, Any]]) -> Block:
    return table(
        "A cache whose cutoff is chosen on one half of the queries and scored on the other",
        (
            "data",
            "budget of false hits",
            "embedder",
            "queries",
            "hits",
            "false of queries",
            "false of hits",
            "in sample",
        ),
        [
            (
                row["data"],
                f"{100 * row['budget']:g} % of {row['budget_of']}",
                row["embedder"],
                count(row["n"]),
                _rate(row, "hit_rate"),
                _rate(row, "false_hit_rate", 2),
                _rate(row, "false_per_hit"),
                f"{100 * row['hit_rate_in_sample']:.1f} %",
            )
            for row in rows
        ],
        left=3,
    )


def _traps(rows: list[dict[str, Any]]) -> Block:
    shares = [key for key in rows[0] if key.startswith("hit_rate_at_") and key.count("_") == 3]
    return table(
        "Paraphrases against traps: should-hit pairs served where a share of the traps is",
        ("data", "traps", "embedder", "pairs", "AUC", *(f"at {100 * float(key[12:]):g} % of traps" for key in shares)),
        [
            (
                row["data"],
                row["against"],
                row["embedder"],
                count(row["n"]),
                _plain(row, "auc"),
                *(_rate(row, key) for key in shares),
            )
            for row in rows
        ],
        left=3,
    )


def _graded(rows: list[dict[str, Any]]) -> Block:
    return table(
        "Graded pairs: rank correlation of cosine and grade",
        ("data", "embedder", "pairs", "Spearman"),
        [(row["data"], row["embedder"], count(row["n"]), _plain(row, "spearman")) for row in rows],
        left=2,
    )


def _cost(rows: list[dict[str, Any]]) -> Block:
    return table(
        "Microseconds to embed one prompt of 8 to 16 words, one thread; bytes of the model's files",
        ("embedder", "p50", "p99", "bytes"),
        [
            (row["embedder"], number(row["embed_us"]["p50"]), number(row["embed_us"]["p99"]), count(row["bytes"]))
            for row in rows
        ],
    )


def _plain(row: dict[str, Any], key: str) -> str:
    """Write a figure that is no rate, with its interval."""
    return bare(row[key], row[f"{key}_interval"], 4)


def _rate(row: dict[str, Any], key: str, digits: int = 1) -> str:
    return rate(row[key], row[f"{key}_interval"], digits)
