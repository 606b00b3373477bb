"""Every measurement that may ask a second opinion asks it of hits alone, and what it refuses is a miss."""

import json

import numpy as np
import pytest

from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.policy.static import StaticPolicy
from recall_cli.errors import UsageError
from recall_cli.measure import explain
from recall_cli.measure.bench import bench, policy
from recall_cli.measure.evaluate import pairs_report, policies
from recall_cli.measure.evaluate.pairs import Item
from recall_cli.measure.evaluate.policies import GIVEN, Settings, run_seed
from recall_cli.measure.evaluate.replay import Trace, replay
from recall_cli.measure.evaluate.streams import Classes
from recall_cli.measure.savings import savings
from recall_cli.measure.synthetic.vectors import preset
from recall_cli.measure.workload import bundled
from tests.logs.log_writers import openai_call as call

SAME = ["Can I return the item within 30 days of delivery?", "can i return the item within 30 days of delivery"]
TRAP = "Can I return the item within 60 days of delivery?"
WRONG = "Should I return the item within 30 days of delivery?"
"""What the floor and the vetoes let pass, and the second opinion does not."""


@pytest.fixture(scope="module")
def classes():
    items = [Item(SAME[0], "30", "shop"), Item(SAME[1], "30", "shop"), Item(WRONG, "60", "shop")]
    return Classes.of("shop", items, make_embedder("static"))


def test_a_refused_hit_of_a_stream_is_a_miss_and_is_stored(classes):
    asked = []

    def agrees(i, j):
        asked.append((i, j))
        return False

    stream = classes.stream(0)
    luck = np.ones((len(stream), 2))
    plain = replay(Trace(stream), StaticPolicy(0.5), luck)
    stream.agrees = agrees
    refused = replay(Trace(stream), StaticPolicy(0.5), luck)
    assert sum(plain.hits) == 2
    assert sum(refused.hits) == 0
    assert [i for i, _ in asked] == [1, 2]
    assert all(j < i for i, j in asked)


def test_streams_of_texts_are_asked_about(classes):
    settings = Settings(policies=(GIVEN,), tau=0.6, verify_on_hit="model")
    for seed in range(3):
        tally = run_seed(classes, seed, settings).tallies[GIVEN, 0.01]
        assert (sum(tally.hits), sum(tally.wrong)) == (1, 0)


def test_streams_of_vectors_have_nothing_to_ask_about():
    with pytest.raises(UsageError, match="made of vectors"):
        run_seed(preset("mixed"), 0, Settings(policies=(GIVEN,), verify_on_hit="model"))
    policies._opinion.cache_clear()


def test_a_log_replayed_with_it(tmp_path):
    log = tmp_path / "log.jsonl"
    texts = [SAME[0], SAME[0] + " Please.", WRONG]
    log.write_text("\n".join(json.dumps(call(text, 1_767_225_600 + 60 * i)) for i, text in enumerate(texts)))
    plain = savings.run(savings.SavingsPlan([str(log)], tau=0.6))
    asked = savings.run(savings.SavingsPlan([str(log)], tau=0.6, verify_on_hit="model"))
    before, after = plain.summary["tiers"]["semantic"], asked.summary["tiers"]["semantic"]
    assert before["second_opinion"] is None
    assert after["second_opinion"]["asked"] == 2
    assert after["second_opinion"]["refused"] == before["hits"] - after["hits"] >= 1
    assert after["second_opinion"]["cpu_s"] > 0


def test_explain_names_it_as_the_gate(tmp_path):
    stored = tmp_path / "prompts.txt"
    stored.write_text(SAME[0] + "\n")
    plan = explain.ExplainPlan(WRONG, str(stored), tau=0.6, verify_on_hit="model")
    (row,) = explain.run(plan).rows
    assert row["gate"].startswith("second opinion")
    assert not row["serves"]
    assert row["second_opinion"]["uncovered"] > 0
    (row,) = explain.run(explain.ExplainPlan(SAME[1], str(stored), tau=0.6, verify_on_hit="model")).rows
    assert row["serves"]


def test_pairs_are_scored_by_it_as_well(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"a": f"{SAME[0]} {i}", "b": f"{SAME[1] if i % 2 else TRAP} {i}", "same": bool(i % 2)} for i in range(20)]
    path.write_text("\n".join(map(json.dumps, rows)))
    auc = pairs_report.run(str(path), verify_on_hit="model").summary["auc"]
    assert list(auc) == ["similarity", "shipped", "cross_fitted", "second_opinion", "second_opinion_cross_fitted"]
    assert auc["second_opinion"] == 1
    assert list(pairs_report.run(str(path)).summary["auc"]) == ["similarity", "shipped", "cross_fitted"]


def test_bench_counts_what_it_lets_stand(monkeypatch):
    monkeypatch.setattr(policy, "CALLS", 5)
    monkeypatch.setattr(policy, "WARMUP", 1)
    found = policy.prepared(bundled(), "model")()
    assert found["us"]["n"] == 5
    rates = {kind: part["rate"] for kind, part in found["agrees"].items()}
    assert set(rates) == {"paraphrase", "lookalike"}
    assert rates["paraphrase"] > rates["lookalike"]
    assert policy.prepared(bundled(), "none") is None


def test_bench_refuses_prompts_without_labels_before_it_times_anything(tmp_path, monkeypatch):
    path = tmp_path / "prompts.txt"
    path.write_text("How long is delivery?\nWhere is my parcel?\n")
    monkeypatch.setattr(bench, "_prepare", None)
    with pytest.raises(UsageError, match="have no labels"):
        bench.run(bench.BenchPlan(prompts=str(path), verify_on_hit="model"))
