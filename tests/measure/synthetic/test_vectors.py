"""Worlds: the dials do what they say, and the presets are what their comments claim."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.errors import UsageError
from recall_cli.measure.evaluate.streams import Classes, TextWorld
from recall_cli.measure.synthetic.vectors import World, preset, presets, world_of

NAMES = ("tight", "loose", "mixed", "near-duplicates", "drift", "sparse", "no-recurrence")


def test_all_presets_are_there() -> None:
    assert tuple(presets()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_gives_one_stream(name: str) -> None:
    world = replace(preset(name), queries=300)
    one, same, other = world.stream(1), world.stream(1), world.stream(2)
    assert np.array_equal(one.vectors, same.vectors)
    assert np.array_equal(one.answer, same.answer)
    assert not np.array_equal(one.vectors, other.vectors)
    np.testing.assert_allclose(np.linalg.norm(one.vectors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_answers_never_cross_namespaces_and_equal_texts_are_equal(name: str) -> None:
    stream = replace(preset(name), queries=1_000).stream(0)
    for answer in np.unique(stream.answer):
        assert len(np.unique(stream.namespace[stream.answer == answer])) == 1
    for text in np.unique(stream.text):
        rows = np.flatnonzero(stream.text == text)
        assert len(np.unique(stream.answer[rows])) == 1
        assert np.ptp(stream.vectors[rows], axis=0).max() == 0


@given(inter=st.floats(0, 0.8), intra=st.floats(0.5, 0.98))
def test_cosines_are_where_the_dials_say(inter: float, intra: float) -> None:
    world = World(
        namespaces=1, queries=600, dims=256, inter=(inter,), intra=(intra,), spread=0.0, twins=0.0, one_offs=0.0
    )
    stream = replace(world, repeats=0.0).stream(0)
    cosines = stream.vectors @ stream.vectors.T
    same = stream.answer[:, None] == stream.answer
    np.fill_diagonal(same, False)
    assert cosines[same].mean() == pytest.approx(intra, abs=0.02)
    different = stream.answer[:, None] != stream.answer
    assert cosines[different].mean() == pytest.approx(inter * intra, abs=0.04)


def test_nobody_asks_twice_without_recurrence() -> None:
    stream = replace(preset("no-recurrence"), queries=500).stream(0)
    assert len(np.unique(stream.answer)) == 500


def test_drift_makes_old_answers_stale_in_half_of_the_namespaces() -> None:
    world = replace(preset("drift"), queries=2_000)
    assert world.drift_at is not None
    stream = world.stream(0)
    late = np.arange(2_000) >= world.drift_at * 2_000
    for space in range(8):
        own = stream.namespace == space
        shared = set(stream.answer[own & late].tolist()) & set(stream.answer[own & ~late].tolist())
        assert bool(shared) == (space % 2 == 1)


@pytest.mark.parametrize(
    "table", [{"intre": 1}, {"inter": [1.0]}, {"intra": []}, {"namespaces": 0}, {"one_offs": 2}, {"queries": 1}]
)
def test_impossible_worlds_are_refused(table: dict[str, object]) -> None:
    with pytest.raises(UsageError) as raised:
        world_of("mine", table)
    assert raised.value.hint


def test_an_unknown_preset_names_the_known() -> None:
    with pytest.raises(UsageError, match="nowhere") as raised:
        preset("nowhere")
    assert "mixed" in raised.value.hint


def classes(limit: dict[str, int] | int | None = None) -> Classes:
    texts = (*(f"text {i}" for i in range(20)), "text 0")
    rng = np.random.default_rng(0)
    return Classes(
        "mine",
        texts,
        tuple(f"class {i % 3}" for i in range(21)),
        tuple("ab"[i % 2] for i in range(21)),
        rng.standard_normal((21, 4)).astype(np.float32),
        limit,
    )


@given(seed=st.integers(0, 1_000))
def test_classes_are_shuffled_but_stay_together(seed: int) -> None:
    source = classes()
    stream = source.stream(seed)
    assert len(stream) == 21
    for i in range(21):
        row = int(np.flatnonzero((source.vectors == stream.vectors[i]).all(axis=1))[0])
        assert stream.namespaces[stream.namespace[i]] == source.namespaces[row]
        assert stream.pair is not None
        # A text is all that it shares with itself.
        assert stream.pair(i, i).overlap == 1.0
    assert len(np.unique(stream.text)) == 20
    # One class name in two namespaces is two answers.
    assert len(np.unique(stream.answer)) == 6


def test_a_limit_draws_from_each_namespace() -> None:
    assert np.bincount(classes(5).stream(0).namespace).tolist() == [5, 5]
    assert np.bincount(classes({"a": 3}).stream(0).namespace).tolist() == [3, 10]


def test_the_text_world_is_a_stream_too() -> None:
    world = TextWorld(queries=200, embedder="hash-v1")
    one, same = world.stream(3), world.stream(3)
    assert len(one) == 200
    assert np.array_equal(one.answer, same.answer)
    assert np.array_equal(one.vectors, same.vectors)
    repeats = [i for i in range(200) if one.text[i] in one.text[:i]]
    assert all(one.answer[i] in one.answer[:i] for i in repeats)
