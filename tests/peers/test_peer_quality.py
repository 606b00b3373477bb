"""Right and wrong answers of other caches beside ours: vCache's rule, streams, traps, and their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.peers import streams, traffic, traps, vcache
from benchmarks.peers.adapt_recall import Recall
from benchmarks.peers.bench import Bench
from benchmarks.peers.protocol import Adapter, Found, Turns, handle
from benchmarks.peers.quality_view import quality
from benchmarks.peers.roster import Arm
from benchmarks.peers.streams import WORLD, Count, Job
from recall_cli.cli.render.blocks import Table
from recall_cli.cli.render.text import to_markdown
from recall_cli.measure.evaluate import policies
from recall_cli.measure.evaluate.replay import Stream, Trace
from recall_cli.measure.evaluate.streams import TextWorld
from recall_cli.measure.synthetic import text as textworld

SEEN = st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans()), min_size=4, max_size=30)
QUERIES = 400


class Here:
    """An adapter in this process, asked as one in another."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter

    def ask(self, op: str, **more: Any) -> dict[str, Any]:
        return handle(self.adapter, {"op": op, **more})


class LastMessage:
    """A cache that looks at the last message alone."""

    packages: tuple[str, ...] = ()

    def open(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        self.held: dict[str, str] = {}
        return {"threshold": settings["threshold"]}

    def put(self, turns: Turns, answer: str) -> None:
        self.held[turns[-1].casefold()] = answer

    def get(self, turns: Turns) -> Found:
        answer = self.held.get(turns[-1].casefold())
        return answer, None if answer is None else 1.0

    def close(self) -> None:
        self.held = {}


@pytest.fixture(scope="module")
def asked() -> Stream:
    return TextWorld(queries=QUERIES).stream(1)


@pytest.fixture
def recall() -> Iterator[Here]:
    adapter = Recall()
    yield Here(adapter)
    adapter.close()


# vCache's rule


@given(SEEN, st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.001, 0.1))
def test_a_nearer_prompt_and_a_looser_promise_are_never_asked_more(
    seen: list[tuple[float, bool]], one: float, other: float, delta: float
) -> None:
    threshold = vcache.Threshold([*vcache.SEEDS, *seen])
    near, far = max(one, other), min(one, other)
    assert threshold.explore(near, delta) <= threshold.explore(far, delta) + 1e-9 <= 1 + 1e-9
    assert threshold.explore(near, 2 * delta) <= threshold.explore(near, delta)


@given(st.floats(0.0, 1.0), st.lists(st.booleans(), max_size=vcache.OBSERVATIONS - 3))
def test_with_few_observations_the_model_is_always_asked(similarity: float, seen: list[bool]) -> None:
    threshold = vcache.Threshold()
    for right in seen:
        threshold.observe(similarity, right)
    assert threshold.explore(similarity, 0.1) == 1.0


def test_the_sigmoid_is_found_again_where_right_and_wrong_overlap() -> None:
    rng = np.random.default_rng(0)
    similarities = rng.uniform(0.5, 1.0, 5_000)
    right = rng.random(5_000) < 1 / (1 + np.exp(-30 * (similarities - 0.8)))
    threshold, slope, error = vcache.fit(list(zip(similarities.tolist(), right.tolist(), strict=True)))
    assert threshold == pytest.approx(0.8, abs=0.01)
    assert slope == pytest.approx(30, rel=0.1)
    # In 5,000 draws the spread of the threshold is about 1 / (slope * sqrt(informative draws)).
    assert 0.0005 < error < 0.005


def test_the_threshold_of_separated_observations_lies_between_them() -> None:
    seen = [(0.6, False), (0.7, False), (0.8, True), (0.9, True), *vcache.SEEDS]
    threshold, slope, error = vcache.fit(seen)
    assert threshold == pytest.approx(0.75)
    assert 1 / (1 + np.exp(-slope * (0.8 - threshold))) == pytest.approx(1, abs=1e-7)
    assert error == pytest.approx(np.sqrt(vcache.VARIANCE[1][0]))


def one_space(answer: list[int]) -> Stream:
    """Return a stream in which the first question is the nearest to all others, at about 0.9."""
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(len(answer), 64)) * 0.06
    vectors[:, 0] += 1.0
    vectors[0] = np.eye(64)[0]
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    n = len(answer)
    return Stream("one", ("one",), np.zeros(n, np.int64), unit, np.array(answer), np.arange(n))


def test_it_serves_where_answers_were_right_and_never_where_they_were_wrong() -> None:
    same = vcache.replay(Trace(one_space([0] * 300)), 0.02, seed=0)
    assert sum(same.hits) > 200
    assert sum(same.wrong) == 0
    other = vcache.replay(Trace(one_space(list(range(300)))), 0.02, seed=0)
    assert sum(other.hits) <= 0.02 * 300  # its promise is of all queries
    assert sum(same.queries) == sum(other.queries) == 300


# Streams


@pytest.mark.parametrize("cutoff", [0.7, 0.85])
def test_a_package_does_over_a_stream_what_the_replay_of_its_rule_does(
    asked: Stream, recall: Here, tmp_path: Path, cutoff: float
) -> None:
    driven, told = streams.driven(
        recall, asked, tmp_path, {"embedder": "static", "threshold": cutoff, "capacity": None}
    )
    assert told["threshold"] == cutoff
    assert driven == Count.of(streams.by_default(Trace(asked), cutoff))
    assert driven.hits > driven.wrong > 0
    assert driven.exact > 0


def test_a_repeat_that_gets_the_answer_of_another_is_a_wrong_hit(asked: Stream, tmp_path: Path) -> None:
    class Confused(LastMessage):
        def get(self, turns: Turns) -> Found:
            found, score = super().get(turns)
            return (found and "another answer"), score

    count, _ = streams.driven(Here(Confused()), asked, tmp_path, {"threshold": None})
    assert count.exact == 0
    assert count.hits == count.wrong > 0


def test_the_best_cutoff_is_the_one_that_brute_force_finds(asked: Stream) -> None:
    grids = [policies.grid(Trace(asked)), policies.grid(Trace(TextWorld(queries=QUERIES).stream(2)))]
    for budget in (0.05, 0.2):
        fits = {}
        for cutoff in policies.TAUS:
            counts = [streams.at_cutoff(grid, cutoff) for grid in grids]
            hits, wrong = sum(one.hits for one in counts), sum(one.wrong for one in counts)
            if hits and wrong <= budget * hits:
                fits[cutoff] = hits
        best = streams.best_cutoff(grids, budget)
        assert best is not None
        assert fits[best] == max(fits.values())
    nothing = streams.at_cutoff(grids[0], None)
    assert nothing.hits == nothing.wrong == 0


def test_the_best_setting_hits_most_within_its_budget_and_there_may_be_none() -> None:
    counts = {0.01: [Count(100, 10, 0, 5)], 0.02: [Count(100, 30, 1, 5)], 0.05: [Count(100, 60, 20, 5)]}
    assert streams.best_of(counts, 0.05) == 0.02
    assert streams.best_of(counts, 0.01) == 0.01
    assert streams.best_of({0.05: counts[0.05]}, 0.05) is None
    assert streams.best_of({0.05: [Count(100, 0, 0, 0)]}, 0.05) is None


def test_of_all_requests_repeats_count_too() -> None:
    told = streams.rates([Count(80, 40, 10, 20)])
    assert (told["hit_rate"], told["false_hit_rate"], told["error_per_query"]) == (0.5, 0.25, 0.125)
    assert (told["served_right"], told["served_wrong"]) == (0.5, 0.1)
    for name in ("hit_rate", "error_per_query", "served_right", "served_wrong"):
        low, high = told[f"{name}_interval"]
        assert low < told[name] < high


def test_the_text_world_asks_in_wordings_that_the_embedder_was_not_fitted_to() -> None:
    found = streams.stream(Path(), WORLD, 1)
    assert found.prompts is not None
    assert list(found.prompts) == [item.text for item in textworld.stream(len(found), 1, split="held-out")]


def test_another_embedder_sees_the_same_questions() -> None:
    hashed = streams.stream(Path(), WORLD, 1, "hash-v1")
    static = streams.stream(Path(), WORLD, 1)
    assert hashed.prompts is not None
    assert list(hashed.prompts) == list(static.prompts or ())
    np.testing.assert_array_equal(hashed.answer, static.answer)
    assert np.linalg.norm(hashed.vectors[0]) == pytest.approx(1, abs=1e-5)
    assert not np.array_equal(hashed.vectors, static.vectors)


def test_streams_give_a_row_for_each_arm_and_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(streams, "source", lambda data, name: TextWorld(name, QUERIES))
    ours = next(one for one in traffic.PACKAGES if one.arm.package == "recall")
    gone = traffic.Static(Arm("gone", "recall", "adapt_nobody"))
    monkeypatch.setattr(traffic, "PACKAGES", (ours, gone))
    monkeypatch.setattr(traffic, "SETS", (WORLD,))
    rows = traffic.run(Bench(tmp_path, tmp_path, quick=True))
    absent = [row for row in rows if not row["ran"]]
    assert [row["arm"] for row in absent] == ["gone"]
    ran = [row for row in rows if row["ran"]]
    keys = [(row["arm"], row["setting"], row["budget"]) for row in ran]
    assert len(set(keys)) == len(keys)
    (package,) = [row for row in ran if row["how"] == "package"]
    assert package["follows_replay"] is True
    assert (package["checked"], package["cosine"]) == (QUERIES, 0.8)
    for row in ran:
        assert row["queries"] + row["exact_hits"] == QUERIES
        if row["setting"] == "hindsight" and row["hits"]:
            assert row["false_hit_rate"] <= row["budget"]


# Traps


def test_what_looks_at_the_last_message_alone_falls_into_every_trap_and_recall_into_none(
    recall: Here, tmp_path: Path
) -> None:
    pairs = textworld.pairs(24, 3, "held-out", conversations=1.0)
    settings = {"embedder": "static", "threshold": None, "capacity": None}
    blind, _ = traps.driven(Here(LastMessage()), pairs, tmp_path, settings)
    assert traps.rates(pairs, blind)["trap_rate"] == 1.0
    walled, _ = traps.driven(recall, pairs, tmp_path, settings)
    assert traps.rates(pairs, walled)["traps_served"] == 0


def test_the_best_cutoff_serves_most_with_few_enough_traps() -> None:
    pairs = textworld.pairs(60, 4, "held-out", conversations=0.0)
    scores = np.random.default_rng(0).integers(0, 20, 60) / 20 + [0.3 * pair.same for pair in pairs]
    for budget in (0.01, 0.05, 0.3):
        found = traps.best_cutoff(pairs, scores, budget)
        hits = {}
        for cutoff in {*scores.tolist()}:
            told = traps.rates(pairs, scores >= cutoff)
            if told["trap_rate"] <= budget:
                hits[cutoff] = told["hits"]
        assert (found is None) == (not hits)
        assert found is None or traps.rates(pairs, scores >= found)["hits"] == max(hits.values())


def test_a_row_of_pairs_counts_each_category_once() -> None:
    pairs = textworld.pairs(40, 5, "held-out", conversations=0.5)
    told = traps.rates(pairs, np.array([pair.same for pair in pairs]))
    assert (told["hit_rate"], told["trap_rate"]) == (1.0, 0.0)
    assert told["should_hit"] + told["traps"] == 40
    assert sum(entry["n"] for entry in told["categories"].values()) == 40


@pytest.mark.shared
def test_the_published_sets_are_read_as_they_are(shared_data: Path) -> None:
    found = traps.sets(shared_data)
    sizes = {name: (sum(pair.same for pair in pairs), len(pairs)) for name, pairs in found.items()}
    assert sizes[traps.PAIRS] == (149, 300)  # one is arguable
    assert sizes[traps.TALKS] == (59, 120)
    asked = streams.stream(shared_data, streams.INTENTS, 1)
    assert len(asked) == 6_600
    assert "other" not in {asked.namespaces[i] for i in set(asked.namespace.tolist())}


def test_a_second_opinion_only_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wordy:
        def agrees(self, text: str, stored: str) -> bool:
            return len(text.split()) == len(stored.split())

    monkeypatch.setattr(streams, "source", lambda data, name: TextWorld(name, QUERIES))
    monkeypatch.setattr(streams, "load_opinion", Wordy)
    (done,) = streams.all_replayed([Job(Path(), WORLD, 1, "static", opinion=True)], processes=1)
    assert 0 < done.counts[streams.OPINION].hits < streams.at_cutoff(done.grid, 0.8).hits


def test_a_job_replays_every_promise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(streams, "source", lambda data, name: TextWorld(name, QUERIES))
    job = Job(Path(), WORLD, 1, "hash-v1", vectors=tmp_path / "vectors.npz")
    (done,) = streams.all_replayed([job], processes=1)
    assert set(done.counts) == {streams.DEFAULT} | {f"adaptive {b:g}" for b in streams.BUDGETS} | {
        f"vcache {d:g}" for d in streams.DELTAS
    }
    # The file is read again, and not the default's vectors taken for it.
    np.testing.assert_array_equal(streams.of_job(job).vectors, streams.stream(Path(), WORLD, 1, "hash-v1").vectors)


# Tables


def table_rows(block: object) -> tuple[tuple[str, ...], ...]:
    assert isinstance(block, Table)
    return block.rows


def cells(block: object, *names: str) -> tuple[str, ...]:
    (found,) = [row for row in table_rows(block) if row[: len(names)] == names]
    return found[len(names) :]


def test_tables_tell_who_set_what_and_what_came_of_it() -> None:
    base = {"ran": True, "embedder": "static", "budget": None}
    flow = base | {"workload": "streams", "set": WORLD}
    best = {"setting": "hindsight", "budget": 0.05}
    pairs = textworld.pairs(40, 6, "held-out", conversations=1.0)
    all_served, none = np.ones(40, np.bool_), np.zeros(40, np.bool_)
    rows = [
        flow | {"arm": "peer", "setting": "default", "threshold": 0.85} | streams.rates([Count(80, 40, 10, 20)]),
        flow | {"arm": "peer", "threshold": None} | best | streams.rates([Count(80, 0, 0, 20)]),
        flow | {"arm": "vcache", "setting": "default", "delta": 0.02} | streams.rates([Count(80, 8, 2, 0)]),
        flow | {"arm": "recall adaptive", "setting": "promise", "budget": 0.01} | streams.rates([Count(50, 5, 0, 50)]),
        *(
            traps.row(name, arm, pairs, served, embedder="static", setting="default", threshold=0.8)
            for name in (traps.PAIRS, traps.TALKS, traps.WORLD_TALKS)
            for arm, served in (("peer", all_served), ("recall", none))
        ),
        {"workload": "traps", "arm": "gone", "ran": False, "why": "", "published": []},
    ]
    world, intents, _, alike, talks, _ = quality(rows)
    assert [row[0] for row in table_rows(world)] == ["recall adaptive", "peer", "vcache", "peer"]
    assert cells(world, "peer", "default 0.85", "static")[1:] == ("25.0 % [14.2, 40.2]", "50.0 %", "10.0 %")
    assert cells(world, "peer", "best for 5 % *: none", "static")[1:] == ("–", "20.0 %", "0.0 %")
    assert cells(world, "vcache", "default 2 %", "static")
    assert cells(world, "recall adaptive", "promise 1 %", "static")
    assert table_rows(intents) == ()
    assert cells(alike, "peer", "default 0.8", "static")[1].startswith("100 % [")
    assert cells(talks, "recall", "default 0.8", "static")[3].startswith("0 % [")
    assert "gone" not in to_markdown([world, alike, talks])
