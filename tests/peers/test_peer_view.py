"""The tables of a run: who is better stands there whoever it is, and who did not run stands apart."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.peers.headline import headline
from benchmarks.peers.view import view
from recall_cli.cli.render.blocks import Line, Table
from recall_cli.cli.render.text import to_markdown
from recall_cli.measure import compare
from recall_cli.measure.result import new_result
from recall_cli.types import Result


def ratio(value: float) -> dict[str, Any]:
    return {"ratio": value, "interval": [value * 0.9, value * 1.1], "rounds": 5}


def took(p50: float, p99: float | None) -> dict[str, Any]:
    return {"p50": p50, "p50_interval": [p50 * 0.95, p50 * 1.05], "p99": p99}


def document(speed: float = 1.0) -> Result:
    """A run in which a dictionary is faster than recall at exact hits, and a proxy replays what recall does not."""
    hit = {"workload": "latency", "kind": "exact", "entries": 1_000, "ran": True, "n": 1_000, "right": 1.0}
    load = {"workload": "throughput", "kind": "exact", "ran": True, "hits": 1.0, "right": 1.0, "failed": 0, "n": 10}
    flood = {"workload": "flood", "kind": "proxy", "ran": True, "callers": 16, "errors": [], "wrong": 0}
    case = {"workload": "streaming", "ran": True, "provider": "openai"}
    result = new_result("benchmarks/peers", {})
    result.rows = [
        hit | {"arm": "recall", "lookup_us": took(12.0 * speed, 20.0)},
        hit | {"arm": "a map", "lookup_us": took(6.0, None), "cpu_over_recall": ratio(0.5)},
        hit | {"arm": "a liar", "right": 0.5, "lookup_us": took(1.0, 2.0), "cpu_over_recall": ratio(0.1)},
        *(
            load | {"arm": arm, "connections": n, "requests_per_s": [rate] * 5, "p50_us": [9.0] * 5, "cpu_us": [7.0]}
            | ({} if arm == "recall serve" else {"over_recall": ratio(0.005)})
            for arm, rate in (("recall serve", 2_000.0), ("slow proxy", 10.0)) for n in (64, 1)
        ),
        flood | {"arm": "recall serve", "upstream_calls": [1, 1, 2]},
        flood | {"arm": "slow proxy", "upstream_calls": [16, 16, 16], "errors": ["HTTP Error 500"], "wrong": 5},
        {"workload": "eviction", "arm": "recall serve", "ran": True, "lost_rate": 0.1, "lost_interval": [0.05, 0.2],
         "lru_lost_rate": 0.1, "wrong": 3},
        *(
            case | {"arm": "recall serve", "kind": f"{kind}, stream then whole", "replayed": kept, "faults": []}
            for kind, kept in (("text", True), ("tool call", False))
        ),
        case | {"arm": "slow proxy", "kind": "tool call, whole then whole", "replayed": True, "faults": []},
        case | {"arm": "slow proxy", "kind": "text, whole then whole", "replayed": True, "faults": ["usage"]},
        *(
            {"workload": work, "arm": "absent", "ran": False, "why": "it takes a hub",
             "published": [{"figure": "51 % of hits", "conditions": "its pairs", "source": "its table"}]}
            for work in ("latency", "flood")
        ),
    ]  # fmt: skip
    return result


def line(block: Any, *names: str) -> tuple[str, ...]:
    assert isinstance(block, Table)
    (found,) = [row for row in block.rows if row[: len(names)] == names]
    return found


def test_a_faster_peer_stands_beside_recall_as_faster_and_a_wrong_one_as_wrong() -> None:
    hits = view(document())[1]
    assert line(hits, "recall")[2:4] == ("12.0 / 20.0", "1")
    assert line(hits, "a map")[2:4] == ("6.0 / –", "0.50 [0.45, 0.55]")
    assert line(hits, "a liar")[2] == "1.0 / 2.0 (50.0 % right)"


def test_proxies_and_what_they_ask_of_the_provider() -> None:
    _, _, proxies, behaviour, streams, *_ = view(document())
    assert line(proxies, "slow proxy", "exact")[2:5] == ("100 %", "10.0", "0.0050 [0.0045, 0.0055]")
    assert line(behaviour, "recall serve", "proxy")[2:] == ("1 of 16", "10.0 % [5.0, 20.0]", "10.0 %", "3")
    assert line(behaviour, "slow proxy", "proxy")[2:] == (
        "16 of 16, with errors, 5 of 48 answered wrong",
        "–",
        "–",
        "–",
    )
    assert line(streams, "recall serve")[1:4] == ("1", "0", "0")
    assert line(streams, "slow proxy")[1:4] == ("0 (usage)", "0", "1")


def test_what_did_not_run_is_in_no_table_but_its_own() -> None:
    *others, absent = view(document())
    assert line(absent, "absent") == (
        "absent",
        "latency, flood",
        "it takes a hub",
        "51 % of hits (its pairs; its table)",
    )
    assert "absent" not in to_markdown(others)


def test_a_work_that_was_not_run_is_said_not_to_be_measured() -> None:
    result = document()
    result.rows = [row for row in result.rows if row["workload"] == "latency" and row["ran"]]
    proxies = view(result)[2]
    assert isinstance(proxies, Line)
    assert "not measured" in proxies.text


@pytest.mark.parametrize(("speed", "said"), [(1.0, "no difference shown"), (3.0, "worse")])
def test_two_runs_are_compared_by_the_command(speed: float, said: str) -> None:
    verdicts = {(row["where"], row["measure"]): row["verdict"] for row in compare.run(document(), document(speed)).rows}
    assert verdicts["latency, recall, exact, entries=1000", "lookup_us.p50"] == said
    assert ("throughput, slow proxy, exact, connections=64", "requests_per_s") in verdicts


def test_the_headline_gives_each_cache_its_own_figures_and_a_dash_for_what_it_is_not() -> None:
    result = document()
    judged = {"workload": "traps", "set": "fow-cache-dev", "setting": "default", "embedder": "static", "ran": True}
    result.rows += [
        judged | {"arm": "recall", "hit_rate": 0.5, "trap_rate": 0.6},
        judged | {"arm": "gptcache", "hit_rate": 0.9, "trap_rate": 0.9},
        judged | {"arm": "recall", "setting": "hindsight", "hit_rate": 1.0, "trap_rate": 0.0},
    ]
    table = headline(result.rows)
    assert line(table, "recall")[1:] == ("12", "–", "2,000", "1", "1 of 1", "0 of 1", "50 %", "60 %")
    assert line(table, "GPTCache")[1:] == ("–", "–", "–", "–", "–", "–", "90 %", "90 %")
