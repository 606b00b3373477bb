"""`recall eval`: replays equal real caches, only labels that a cache would have are seen, rates mean what they say."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_cli.cache.policy.adaptive import AdaptivePolicy
from recall_cli.cache.policy.static import StaticPolicy
from recall_cli.errors import GateFailed, RecallError, UsageError
from recall_cli.measure.evaluate import evaluate, policies
from recall_cli.measure.evaluate import replay as trace
from recall_cli.measure.evaluate import rows as eval_rows
from recall_cli.measure.evaluate.evaluate import EvalPlan
from recall_cli.measure.evaluate.policies import ADAPTIVE, BEST, ORACLE, POLICIES, STATIC, Settings, run_seed
from recall_cli.measure.evaluate.replay import CacheReplay, Stream, Trace, replay
from recall_cli.measure.result import to_json
from recall_cli.measure.synthetic.vectors import World, preset
from recall_cli.types import Evidence, Verdict

SMALL = World(name="small", namespaces=3, queries=900, dims=16, intents=10, repeats=0.1, inter=(0.1, 0.4))
LUCK = np.random.default_rng(0).random((900, 2))


def small(seed: int = 0) -> Stream:
    return SMALL.stream(seed)


@pytest.mark.parametrize("tau", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("depth", [1, 64])
def test_all_ways_to_replay_a_static_cutoff_agree(monkeypatch: pytest.MonkeyPatch, tau: float, depth: int) -> None:
    monkeypatch.setattr(trace, "DEPTH", depth)
    traced = Trace(small())
    one = replay(traced, StaticPolicy(tau), LUCK)
    many = policies.at(policies.grid(traced), policies.TAUS.index(tau))
    hits, wrong, exact = by_brute_force(traced.stream, tau)
    for tally in (one, many):
        assert (sum(tally.hits), sum(tally.wrong), tally.exact) == (hits, wrong, exact)
    assert one.hits == many.hits
    assert one.queries == many.queries
    assert sum(one.queries) + one.exact == len(traced.stream)


def by_brute_force(stream: Stream, tau: float) -> tuple[int, int, int]:
    held: list[int] = []
    hits = wrong = exact = 0
    for i in range(len(stream)):
        own = [j for j in held if stream.namespace[j] == stream.namespace[i]]
        if any(stream.text[j] == stream.text[i] for j in own):
            exact += 1
            continue
        best = max(own, key=lambda j: float(stream.vectors[j] @ stream.vectors[i]), default=None)
        if best is not None and float(stream.vectors[best] @ stream.vectors[i]) >= tau:
            hits += 1
            wrong += bool(stream.answer[best] != stream.answer[i])
        else:
            held.append(i)
    return hits, wrong, exact


@settings(max_examples=20)
@given(
    seed=st.integers(0, 1_000), share=st.floats(0.02, 1), depth=st.sampled_from([1, 3, 64]), k=st.sampled_from([2, 8])
)
def test_a_candidate_and_its_margin_are_those_of_a_full_search(seed: int, share: float, depth: int, k: int) -> None:
    stream = replace(SMALL, queries=150, repeats=0.0).stream(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "DEPTH", depth)
        cache = CacheReplay(Trace(stream))
    rng = np.random.default_rng(seed)
    for i in range(len(stream)):
        own = [j for j in range(i) if cache.held[j] and stream.namespace[j] == stream.namespace[i]]
        near = sorted(((float(stream.vectors[j] @ stream.vectors[i]), j) for j in own), reverse=True)[:k]
        found = cache.candidate(i, k)
        if not near:
            assert found is None
        else:
            best, first = near[0][1], near[0][0]
            others = [s for s, j in near if cache.group[j] != cache.group[best]]
            second = others[0] if others else near[-1][0]
            assert found is not None
            assert found[0] == best
            assert found[1:] == pytest.approx((first, first - second), abs=1e-5)
        if rng.random() < share:
            cache.insert(i, int(rng.integers(3)) if own else i)


@dataclass
class Spy:
    """Serves every second candidate, audits every fourth, and writes down what it is told."""

    name: str = "spy"
    candidates: int = 8

    def __post_init__(self) -> None:
        self.open: dict[int, tuple[bool, bool]] = {}
        self.told: list[bool] = []
        self.asked = 0

    def decide(self, namespace: str, evidence: Evidence) -> Verdict:
        self.asked += 1
        serve, audit = self.asked % 2 == 0, self.asked % 4 == 0
        evidence.ticket = self.asked
        self.open[self.asked] = (serve, audit)
        return Verdict(serve, 0.5, audit)

    def unsure(self, namespace: str, evidence: Evidence) -> None:
        pass

    def observe(self, namespace: str, evidence: Evidence, *, same: bool) -> None:
        serve, audit = self.open.pop(evidence.ticket)
        assert not serve or audit, "a hit that nobody checked has no label"
        self.told.append(same)

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        return


def test_a_policy_sees_labels_of_misses_and_audits_alone() -> None:
    spy = Spy()
    tally = replay(Trace(small()), spy, LUCK)
    assert sum(tally.hits) == spy.asked // 2
    assert tally.audits == spy.asked // 4
    assert len(spy.told) == spy.asked - sum(tally.hits) + tally.audits
    assert {serve and not audit for serve, audit in spy.open.values()} == {True}


def test_an_audit_that_says_different_asks_once_more() -> None:
    stream = small()
    # Every comparison says "different" now, so every audit does.
    stream.false_alarm = 1.0
    tally = replay(Trace(stream), Spy(), LUCK)
    assert tally.reasks == tally.audits > 0
    calm = replay(Trace(small()), Spy(), LUCK)
    assert calm.reasks <= calm.audits


def test_hindsight_holds_its_target_or_says_infeasible() -> None:
    table = policies.grid(Trace(small()))
    for target in (0.001, 0.01, 0.05, 0.3):
        best, oracle = policies.best(table, target), policies.oracle(table, target)
        for tally in (best, oracle):
            assert sum(tally.wrong) <= target * sum(tally.hits)
            assert tally.feasible == (sum(tally.hits) > 0)
        if best.feasible:
            assert sum(best.hits) >= max(
                sum(policies.at(table, i).hits)
                for i in range(len(policies.TAUS))
                if sum(policies.at(table, i).wrong) <= target * sum(policies.at(table, i).hits)
            )


def test_nothing_that_never_recurs_is_feasible() -> None:
    table = policies.grid(Trace(replace(SMALL, one_offs=1.0, repeats=0.0).stream(0)))
    assert not policies.best(table, 0.01).feasible
    assert not policies.oracle(table, 0.01).feasible


@pytest.fixture(scope="module")
def result() -> Any:
    plan = EvalPlan(SMALL, runs=3, seed=1_000, settings=Settings(targets=(0.05, 0.2)), processes=1)
    return evaluate.run(plan)


def test_the_document_has_the_columns_of_the_design(result: Any) -> None:
    columns = (
        "workload, policy, target, hit_rate, hit_rate_second_half, false_hit_rate, false_hit_interval, "
        "error_per_query, hits, queries, runs, runs_over_target, testable, feasible, audits, calls_saved_net"
    )
    document = json.loads(to_json(result))
    assert len(document["rows"]) == 2 * len(POLICIES)
    for row in document["rows"]:
        assert set(columns.split(", ")) <= set(row)
        low, high = row["hit_rate_interval"]
        assert low <= row["hit_rate"] <= high
        assert row["calls_saved_net"] == row["hits"] - row["audits"] - row["reasks"]
        assert row["error_per_query"] == pytest.approx(row["false_hits"] / row["queries"])
        assert row["hindsight"] == (row["policy"] in (BEST, ORACLE))
    assert {entry["namespace"] for entry in document["summary"]["namespaces"]} == {"ns0", "ns1", "ns2"}
    assert document["summary"]["seeds"] == [1_000, 1_001, 1_002]


def test_policies_are_compared_only_where_both_hold(result: Any) -> None:
    holds = {(row["policy"], row["target"]): row["holds"] for row in result.rows}
    for entry in result.summary["comparisons"]:
        both = holds[ADAPTIVE, entry["target"]] and holds[entry["against"], entry["target"]]
        assert entry["compared"] == both
        assert both == ("hit_rate_difference" in entry)


def test_the_curve_trades_hits_for_precision(result: Any) -> None:
    static = [point for point in result.summary["curve"] if point["policy"] == "static"]
    assert len(static) == len(policies.TAUS)
    assert static[0]["hit_rate"] > static[-1]["hit_rate"]
    served = [point for point in static if point["hits"]]
    assert served[0]["precision"] < served[-1]["precision"]


def test_processes_change_nothing(result: Any) -> None:
    plan = EvalPlan(SMALL, runs=3, seed=1_000, settings=Settings(targets=(0.05, 0.2)), processes=2)
    assert evaluate.run(plan).rows == result.rows


def test_an_interrupted_run_reports_what_was_finished() -> None:
    def stop(done: int, total: int, what: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    found = evaluate.run(EvalPlan(SMALL, runs=5, seed=1_000, processes=1), progress=stop)
    assert {row["runs"] for row in found.rows} == {2}
    assert "INTERRUPTED" in {warning.code for warning in found.warnings}


@dataclass(frozen=True)
class Deadly:
    """A source whose process is killed at some seeds."""

    deadly: tuple[int, ...]
    name: str = "deadly"

    def stream(self, seed: int) -> Stream:
        if seed in self.deadly:
            # Late enough that the other process has finished its own.
            time.sleep(1.5)
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(SMALL, queries=60).stream(seed)


def test_a_process_that_is_killed_costs_no_finished_run() -> None:
    plan = EvalPlan(Deadly((1_001,)), runs=3, seed=1_000, settings=Settings(policies=(STATIC,)), processes=2)
    found = evaluate.run(plan)
    assert found.rows[0]["runs"] in (1, 2)
    assert "PROCESS_LOST" in {warning.code for warning in found.warnings}
    with pytest.raises(RecallError, match="killed"):
        evaluate.run(replace(plan, source=Deadly((1_000, 1_001)), runs=2))


def test_shuffled_labels_serve_about_nothing() -> None:
    world = replace(preset("tight"), queries=2_500)
    for seed in (1_000, 1_001):
        honest = run_seed(world, seed, Settings(policies=(ADAPTIVE,)))
        shuffled = run_seed(world, seed, Settings(policies=(ADAPTIVE,), shuffle_labels=True))
        assert sum(honest.tallies[ADAPTIVE, 0.01].hits) > 500
        assert sum(shuffled.tallies[ADAPTIVE, 0.01].hits) == 0


def test_another_order_asks_the_same_questions() -> None:
    timely = run_seed(SMALL, 7, Settings(policies=(STATIC,)))
    shuffled = run_seed(SMALL, 7, Settings(policies=(STATIC,), order="shuffled"))
    totals = [sum(run.tallies[STATIC, 0.01].queries) + run.tallies[STATIC, 0.01].exact for run in (timely, shuffled)]
    assert totals == [900, 900]


def test_a_noisy_comparator_costs_hits_and_breaks_no_promise() -> None:
    world = replace(preset("tight"), queries=2_500)
    calm = run_seed(world, 1_000, Settings(policies=(ADAPTIVE,))).tallies[ADAPTIVE, 0.01]
    noisy = run_seed(replace(world, false_alarm=0.02), 1_000, Settings(policies=(ADAPTIVE,))).tallies[ADAPTIVE, 0.01]
    assert sum(noisy.hits) < sum(calm.hits)
    assert sum(noisy.wrong) <= 0.01 * sum(noisy.hits)


def test_a_cold_policy_says_how_many_labels_it_lacks() -> None:
    tally = replay(Trace(replace(SMALL, queries=90).stream(0)), AdaptivePolicy(warmup=100), LUCK[:90])
    assert tally.first_hit_label is None
    assert tally.labels_needed is not None
    assert tally.labels_needed > 0
    found = evaluate.run(EvalPlan(replace(SMALL, queries=90), runs=2, seed=1_000, processes=1))
    assert "COLD" in {warning.code for warning in found.warnings}


def test_the_naive_quantile_serves_what_its_labels_allow() -> None:
    policy = policies.NaivePolicy(0.1, 1.0, 0)
    for i in np.random.default_rng(0).permutation(200).tolist():
        evidence = Evidence(i / 200)
        policy.decide("n", evidence)
        policy.observe("n", evidence, same=i >= 100)
    assert policy.decide("n", Evidence(0.9)).serve
    assert not policy.decide("n", Evidence(0.2)).serve
    assert not policy.decide("other", Evidence(0.9)).serve


@pytest.mark.parametrize(
    "wrong",
    [
        {"runs": 0},
        {"settings": Settings(policies=("none",))},
        {"settings": Settings(order="backwards")},
        {"settings": Settings(targets=())},
        {"settings": Settings(targets=(2.0,))},
    ],
)
def test_plans_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as raised:
        EvalPlan(SMALL, **wrong)
    assert raised.value.hint


def test_an_impossible_promise_is_refused_before_the_run() -> None:
    with pytest.raises(UsageError):
        evaluate.run(EvalPlan(SMALL, runs=1, settings=Settings(targets=(0.9,))))


def test_a_gate_is_on_what_is_proved(result: Any) -> None:
    rows = [row for row in result.rows if row["policy"] == ADAPTIVE]
    worst = max(row["false_hit_interval"][1] for row in rows)
    least = min(row["hit_rate_interval"][0] for row in rows)
    evaluate.check(result)
    evaluate.check(result, max_false_hit=worst, min_hit_rate=least)
    with pytest.raises(GateFailed, match="may be wrong"):
        evaluate.check(result, max_false_hit=worst - 1e-6)
    with pytest.raises(GateFailed, match="as little as"):
        evaluate.check(result, min_hit_rate=least + 1e-6)


def test_as_many_runs_as_allowed_may_be_over() -> None:
    outcome = run_seed(preset("sparse"), 1, Settings(policies=(STATIC,), confidence=0.71))
    over = eval_rows.row("sparse", STATIC, 0.01, [outcome], 0.71)["runs_over_target"]
    assert over == 1  # 0.8 never keeps a hundredth
    kept = replace(outcome, tallies={(STATIC, 0.01): replace(outcome.tallies[STATIC, 0.01], wrong=[0] * 40)})
    for allowed, holds in ((29, True), (30, False)):
        outcomes = [outcome] * allowed + [kept] * (100 - allowed)
        assert eval_rows.row("sparse", STATIC, 0.01, outcomes, 0.71)["holds"] is holds


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux which children a process has")
def test_workers_end_with_a_parent_that_is_killed() -> None:
    program = (
        "from recall_cli.measure.evaluate.evaluate import EvalPlan, run\n"
        "from recall_cli.measure.synthetic.vectors import preset\n"
        "run(EvalPlan(preset('mixed'), runs=400, processes=2), progress=lambda *_: print('run', flush=True))"
    )
    guard = f"if __name__ == '__main__':\n exec({program!r})"
    with subprocess.Popen([sys.executable, "-c", guard], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        workers = [os.pidfd_open(int(child)) for child in children]
        assert len(workers) >= 2
        parent.kill()
        for worker in workers:
            # Readable once the process has ended.
            assert select.select([worker], [], [], 60)[0]
            os.close(worker)
