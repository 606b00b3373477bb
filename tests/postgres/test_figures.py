"""The figures in docs/scaling.md are the recorded ones, and what they must show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "scaling.md"
BLOCK = re.compile(r"(<!-- recall:(figures|hub|plan) -->\n)(.*?)(<!-- /recall:\2 -->)", re.S)


@pytest.fixture(scope="module")
def recorded() -> Any:
    return json.loads((ROOT / "results" / "postgres.json").read_bytes())


def figures(recorded: Any) -> str:
    """The lines of the page."""
    summary = recorded["summary"]
    lines = ["| lookup | entries of its partition | p50 ms | p99 ms | CPU ms |", "| --- | ---: | ---: | ---: | ---: |"]
    for row in sorted(recorded["rows"], key=lambda row: (row["arm"], -row["partition_rows"])):
        p50, p99 = (row["us"][name] for name in ("p50", "p99"))
        tail = "" if p99 is None else f"{p99 / 1e3:.2f}"
        lines.append(
            f"| {row['arm']} | {row['partition_rows']:,} | {p50 / 1e3:.3f} | {tail} | {row['cpu_us'] / 1e3:.3f} |"
        )
    cut, after = (summary["outage"][name] for name in ("cut", "after"))
    held, spread, n = summary["held"], summary["propagation"], summary["entries"]
    disk, stored = summary["database_bytes"] / n, {name: n / s for name, s in summary["store_s"].items()}
    lines += [
        "",
        f"- {summary['server']}, {n:,} entries of 1.6 kB: {disk:,.0f} bytes each on disk with all indexes,",
        f"  {held['bytes_per_entry']:,} in a replica's memory.",
        f"- Stored {stored['shared']:,.0f} a second by one writer ({stored['embedded']:,.0f} with SQLite),",
        f"  brought into memory {held['entries'] / held['s']:,.0f} a second.",
        f"- What one replica stored another served after {spread['p50_ms']:g} ms, at most {spread['max_ms']:g} ms,",
        f"  {spread['times']} times out of {spread['times']}, as an exact and as a semantic hit.",
        f"- The database cut off for {cut['seconds']:g} s under load: {cut['requests']:,} requests,",
        f"  {cut['failed']} failed, the slowest took {cut['max_ms']:g} ms; the first hit came",
        f"  {after['first_hit_s']:g} s after it was back.",
        f"- A replica that nobody asks takes {100 * summary['idle_cpu']:.2f} % of a core.",
    ]
    return "\n".join(lines) + "\n"


def hub(recorded: Any) -> str:
    """What a hub in the database costs beside one in a folder. Wall times hang on the load, so their ratio is told."""
    summary, rows = recorded["summary"], recorded["rows"]
    near = {row["arm"]: row["recall_at_30"] for row in rows if "recall_at_30" in row}
    fed = {row["engine"]: row["chunks"] / row["cpu_s"] for row in rows if row["arm"] == "ingest"}
    here, there = (sum(summary["processor"][place].values()) for place in ("folder", "database"))
    disk, asked = summary["bytes_per_chunk"], summary["ratios"]["question"]
    low, high = asked["interval"]
    lines = [
        "| a hub | folder | database |",
        "| --- | ---: | ---: |",
        f"| a question, processor ms with the database's | {here:.1f} | {there:.1f} |",
        f"| its wall time, ratio | 1 | {asked['ratio']:.1f} ({low:.1f} to {high:.1f}) |",
        f"| recall@30 of the vectors | {near['vector leg, folder']:.3f} | {near['vector leg, database']:.3f} |",
        f"| chunks taken in, a second of our processor time | {fed['folder']:,.0f} | {fed['database']:,.0f} |",
        "",
        f"{summary['server']}, {summary['chunks']:,} chunks, {asked['rounds']} rounds on two cores at a load of"
        f" {recorded['environment']['load_1m']:.0f}.",
        f"On disk a chunk takes {disk['hub_chunks']:,} bytes for its text and words, {disk['hub_vectors']:,} for its",
        f"vector and the graph, and {disk['hub_postings'] + disk['hub_words']:,} for its postings.",
    ]
    return "\n".join(lines) + "\n"


def plan(recorded: Any) -> str:
    """The plan's table."""
    names = {
        "hit_share": "hits",
        "skew": "skew",
        "replicas": "replicas (cores)",
        "held_share_any_replica": "in memory, any replica",
        "held_share_routed": "in memory, routed",
        "databases_for_writes": "databases",
    }
    lines = ["| " + " | ".join(names.values()) + " |", "| " + " | ".join("---:" for _ in names) + " |"]
    lines += ["| " + " | ".join(f"{row[name]:g}" for name in names) + " |" for row in recorded["rows"]]
    memory, disk = (recorded["rows"][0][name] / 1e12 for name in ("bytes_in_memory_all", "bytes_on_disk"))
    lines += ["", f"All entries take {memory:.1f} TB of memory, over all replicas, and {disk:.1f} TB of disk."]
    return "\n".join(lines) + "\n"


def test_the_page_says_what_was_recorded(recorded: Any, request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    lines = {
        "figures": figures(recorded),
        "hub": hub(json.loads((ROOT / "results" / "hub-postgres.json").read_bytes())),
        "plan": plan(json.loads((ROOT / "results" / "plan.json").read_bytes())),
    }
    assert {found[2] for found in BLOCK.finditer(text)} == set(lines)
    fresh = BLOCK.sub(lambda found: found[1] + lines[found[2]] + found[4], text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(fresh, encoding="utf-8")
        text = fresh
    assert fresh == text, "docs/scaling.md is stale: run pytest tests/postgres/test_figures.py --update-golden"


def test_what_was_recorded_is_what_sharing_must_hold(recorded: Any) -> None:
    rows = {(row["arm"], row["partition_rows"]): row for row in recorded["rows"]}
    assert recorded["summary"]["entries"] >= 200_000
    for (arm, _), row in rows.items():
        if arm == "exact, from the database":
            assert row["us"]["p50"] <= 2_000
        if arm == "semantic, from the database":
            assert row["us"]["p50"] <= 15_000
            assert row["recall_at_1_near"] >= 0.98
            assert row["near_n"] >= 200
    for name, ratio in recorded["summary"]["ratios"].items():
        if name.startswith("semantic"):
            assert ratio["ratio"] <= 1.3
    assert recorded["summary"]["propagation"]["max_ms"] < 1_000
    assert recorded["summary"]["propagation"]["times"] >= 200
    assert recorded["summary"]["outage"]["cut"]["seconds"] >= 30
    assert all(recorded["summary"]["outage"][phase]["failed"] == 0 for phase in ("before", "cut", "after"))


def test_a_hub_in_the_database_is_as_small_and_as_right_as_it_must_be() -> None:
    recorded = json.loads((ROOT / "results" / "hub-postgres.json").read_bytes())
    assert recorded["summary"]["chunks"] >= 25_000
    assert recorded["summary"]["bytes_per_chunk"]["hub_postings"] < 3_000
    (found,) = (row for row in recorded["rows"] if row["arm"] == "vector leg, database" and "recall_at_30" in row)
    assert found["recall_at_30"] >= 0.95
    assert all(row["shared_share"] >= 0.98 for row in recorded["rows"] if "shared_share" in row)
