"""Labelled pairs and classes of the user's own, and what a scoring is worth on pairs."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cache.embed.registry import make_embedder
from recall_cli.errors import InputError
from recall_cli.measure.evaluate.pairs import (
    OTHER,
    SAME,
    SIDES,
    ClassSet,
    Item,
    Pair,
    PairSet,
    load_classes,
    load_pairs,
)
from recall_cli.measure.evaluate.pairs_eval import (
    NEVER,
    cross_fitted,
    groups,
    last_text,
    same_context,
    score,
    similarities,
    summary,
    trap_report,
)
from recall_cli.measure.synthetic import text as textworld

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(
    lambda t: t.strip() and not t.lstrip().startswith("[") and "\r" not in t
)
ROWS = st.lists(st.tuples(TEXTS, TEXTS, st.booleans()), min_size=1, max_size=6)
TALK = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "yes?"},
    {"role": "user", "content": "how?"},
]


def piped(data: str | bytes) -> PairSet:
    return load_pairs("-", io.BytesIO(data.encode() if isinstance(data, str) else data))


def classes(data: str) -> ClassSet:
    return load_classes("-", io.BytesIO(data.encode()))


def as_csv(rows, header, delimiter=",") -> str:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()


# Reading pairs


@given(ROWS, st.sampled_from(SIDES), st.sampled_from(SAME), st.sampled_from([",", ";", "\t"]))
def test_csv_and_json_of_any_known_names_say_the_same(rows, sides, label, delimiter):
    header = [*sides, label]
    wanted = [Pair(a, b, same) for a, b, same in rows]
    objects = [dict(zip(header, row, strict=True)) for row in rows]
    assert list(piped(as_csv(rows, [name.upper() for name in header], delimiter)).pairs) == wanted
    assert list(piped("\n".join(json.dumps(row) for row in objects)).pairs) == wanted
    assert list(piped(json.dumps(objects)).pairs) == wanted


@pytest.mark.parametrize("yes", [True, 1, 1.0, "1", "true", "TRUE", "yes", "Y", "same", "duplicate", " 1.0 "])
@pytest.mark.parametrize("no", [False, 0, 0.0, "0", "false", "No", "n", "different"])
def test_a_label_may_be_spelled_as_people_do(yes, no):
    found = piped("\n".join(json.dumps({"a": "x", "b": "y", "same": value}) for value in (yes, no)))
    assert [pair.same for pair in found.pairs] == [True, False]
    assert not found.warnings


def test_rows_that_cannot_be_read_are_counted_by_reason():
    rows = [
        {"a": "x", "b": "y", "same": True, "category": "unit", "style": "minimal", "ambiguous": "complementary"},
        {"a": "x", "same": True},
        {"a": "x", "b": "y"},
        {"a": "x", "b": "y", "same": "maybe"},
        {"a": " ", "b": "y", "same": 0},
        {"a": 7, "b": "y", "same": 0},
        {"a": TALK[:2], "b": TALK, "same": 0},
        {"a": [{"role": "user"}], "b": TALK, "same": 0},
        5,
    ]
    found = piped("\n".join([*map(json.dumps, rows), "{broken", "", '{"a": "x", "b": "z", "same": 0}']))
    assert found.pairs == (
        Pair("x", "y", True, "unit", "minimal", "", True),
        Pair("x", "z", False),
    )
    assert found.skipped == {
        "without two texts": 1,
        "without a label that says yes or no": 2,
        "with a text that is empty or no text": 4,
        "not an object": 1,
        "not valid JSON": 1,
    }


def test_csv_rows_that_do_not_fit_the_header_are_counted():
    found = piped("a,b,same\nx,y,1\nx,y\nx,y,0,more\nx,z,0\n")
    assert [pair.b for pair in found.pairs] == ["y", "z"]
    assert found.skipped == {"without a label that says yes or no": 1, "more fields than the header": 1}
    said = [warn.message for warn in found.warnings if warn.code == "ROWS_LEFT_OUT"]
    assert [message.split(":")[0].split(" rows of ")[0] for message in said] == ["1", "1"]
    assert "without a label that says yes or no" in said[0]


def test_a_side_may_be_a_conversation_or_its_json():
    row = {"a": TALK, "b": json.dumps(TALK), "same": 1}
    assert piped(json.dumps(row)).pairs == (Pair(tuple(TALK), tuple(TALK), True),)
    assert piped(as_csv([(json.dumps(TALK), "how?", 0)], ["a", "b", "same"])).pairs[0].a == tuple(TALK)
    # Text that only resembles JSON is text.
    for text in ("[urgent] help", "[1, 2]", "[]"):
        assert piped(json.dumps({"a": text, "b": "y", "same": 1})).pairs[0].a == text


@pytest.mark.parametrize(("value", "says"), [(True, "should hit"), (False, "are traps")])
def test_one_label_alone_is_said(value, says):
    (warning,) = piped(json.dumps({"a": "x", "b": "y", "same": value})).warnings
    assert warning.code == "one_label"
    assert says in warning.message
    assert warning.hint


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "holds no pair (it is empty)"),
        (b"\n \n", "holds no pair"),
        (b"a,b,same\n", "holds no pair"),
        (b"left,right,same\nx,y,1\n", "names no column that is known"),
        (b"a,b\nx,y\n", "names no column that is known"),
        (b"just one line of text", "names no column that is known"),
        (b'{"a": "x"}', "1 without two texts"),
        (b"PK\x03\x04\0\0", "is not UTF-8 text"),
        ("a,b,same\nx,y,1".encode("utf-16"), "is not UTF-8 text"),
    ],
)
@pytest.mark.parametrize("load", [load_pairs, load_classes])
def test_a_file_without_rows_is_an_input_error(data, says, load, tmp_path):
    path = tmp_path / "rows"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        load(str(path))
    if load is load_pairs:
        assert says in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("load", [load_pairs, load_classes])
def test_a_path_that_cannot_be_read_is_an_input_error(load, tmp_path):
    for path in (tmp_path / "absent.csv", tmp_path):
        with pytest.raises(InputError, match="cannot be read") as caught:
            load(str(path))
        assert caught.value.hint
    with pytest.raises(InputError, match="closed"):
        load("-", None)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_an_input_error(data):
    for load in (load_pairs, load_classes):
        with contextlib.suppress(InputError):
            load("-", io.BytesIO(data))


# Reading classes


def test_classes_from_csv_jsonl_and_json():
    wanted = (Item("a b", "x", "default"), Item("c", "y", "default"), Item("d", "x", "default"))
    assert classes("text,category\na b,x\nc,y\nd,x\n").items == wanted
    assert classes("intent\tutterance\nx\ta b\ny\tc\nx\td\n").items == wanted
    assert (
        classes('{"text": "a b", "class": "x"}\n{"prompt": "c", "label": "y"}\n{"query": "d", "intent": "x"}').items
        == wanted
    )
    assert classes('{"train": [["a b", "x"]], "test": [["c", "y"], ["d", "x"]]}').items == wanted
    numbered = classes("text,label,domain\na,0,east\nb,1,west\n")
    assert numbered.items == (Item("a", "0", "east"), Item("b", "1", "west"))
    assert [w.code for w in numbered.warnings] == ["no_recurrence"]
    assert [w.code for w in classes("text,class\na,x\nb,x\n").warnings] == ["one_label"]


def test_rows_without_text_or_class_are_counted():
    found = classes(
        '{"text": "a", "class": "x"}\n{"text": "", "class": "x"}\n{"text": "b"}\n{"text": "c", "class": ["x"]}\nno'
    )
    assert found.items == (Item("a", "x", "default"),)
    assert found.skipped == {"without a text": 1, "without a class": 2, "not valid JSON": 1}


def test_a_domains_file_gives_the_namespaces(tmp_path):
    data = tmp_path / "data.json"
    data.write_text('{"train": [["a", "pay"], ["b", "fly"], ["c", "eat"], ["d", "oos"], ["e", "oos"]]}')
    assert {item.namespace for item in load_classes(str(data)).items} == {"default"}
    domains = tmp_path / "domains.json"
    domains.write_text('{"bank": ["pay"], "trip": ["fly"]}')
    items = load_classes(str(data)).items
    assert [item.namespace for item in items] == ["bank", "trip", OTHER, OTHER, OTHER]
    # Out of scope is no class: two such texts deserve two answers.
    assert len({item.answer_class for item in items}) == 5
    domains.write_text("[1]")
    assert load_classes(str(data)).items[0].namespace == "default"
    with pytest.raises(InputError, match="object of lists"):
        load_classes(str(data), domains=domains)


@pytest.mark.shared
def test_the_evaluation_sets_are_read_whole(shared_data):
    clinc = load_classes(str(shared_data / "clinc150" / "data_full.json"))
    assert len(clinc.items) == 15_000 + 3_000 + 4_500 + 1_200
    assert len({item.namespace for item in clinc.items}) == 11
    banking = load_classes(str(shared_data / "banking77" / "test.csv"))
    assert len(banking.items) == 3_080
    assert len({item.answer_class for item in banking.items}) == 77
    assert not clinc.skipped
    assert not banking.skipped


# Contexts


def test_a_context_is_everything_before_the_last_turn():
    base = tuple(TALK)
    assert same_context("how?", "why?")
    assert same_context(base, (*base[:-1], {"role": "user", "content": "why?"}))
    assert not same_context(base, "how?")
    assert not same_context(base, ({"role": "user", "content": "hello"}, *base[1:]))
    assert same_context("how?", ({"role": "user", "content": [{"type": "text", "text": "how?"}]},))
    assert last_text(base) == "how?"
    image = ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},)
    assert not same_context(image, image)
    assert last_text(image) == ""


@pytest.mark.parametrize("split", ["train", "held-out"])
def test_no_trap_of_the_text_worlds_conversations_is_ever_served(split):
    found = textworld.pairs(120, 2, split, conversations=1.0)
    scores = similarities(found, make_embedder("hash-v1"))
    traps = [s for pair, s in zip(found, scores, strict=True) if not pair.same]
    assert traps
    assert set(traps) == {NEVER}
    served = {pair.category for pair, s in zip(found, scores, strict=True) if s > NEVER}
    assert served == {"same-context"}


@pytest.mark.shared
def test_no_trap_of_the_shared_conversations_is_ever_served(shared_data):
    files = sorted((shared_data / "fow-cache-dev").glob("conv-*/*.jsonl"))
    found = [pair for path in files for pair in load_pairs(str(path)).pairs]
    assert Counter(pair.same for pair in found) == {True: 60, False: 60}
    scores = similarities(found, make_embedder("static"))
    (traps,) = [row for row in trap_report(found, scores, -1.0) if not row["same"] and row["by"] == "all"]
    assert (traps["served"], traps["n"]) == (0, 60)


# Scores


def some_pairs(labels) -> list[Pair]:
    return [Pair(f"a{i}", f"b{i}", bool(same), "x" if same else "y") for i, same in enumerate(labels)]


SCORED = st.lists(
    st.tuples(st.booleans(), st.sampled_from([NEVER, -0.5, 0.0, 0.25, 0.5, 0.9, 1.0])), min_size=1, max_size=30
)


@given(SCORED)
def test_auc_and_hit_rates_are_what_their_definitions_say(rows):
    labels, values = [same for same, _ in rows], np.array([s for _, s in rows])
    found = score(some_pairs(labels), values, resamples=3)
    hits = [s for same, s in rows if same]
    traps = [s for same, s in rows if not same]
    if not hits or not traps:
        assert math.isnan(found.auc.value)
        return
    wins = [(h > t) + (h == t) / 2 for h in hits for t in traps]
    assert found.auc.value == pytest.approx(np.mean(wins))
    for share, rate in found.hit_rate.items():
        able = [c for c in values if c > NEVER and np.mean([t >= c for t in traps]) <= share]
        best = max((np.mean([h >= c for h in hits]) for c in able), default=0.0)
        assert rate.value == pytest.approx(best)
        served = values >= found.cutoffs[share]
        assert np.mean(served[np.array(labels)]) == pytest.approx(best)


def test_the_summary_compares_scorings_in_pairs():
    labels = [True, False] * 200
    rng = np.random.default_rng(0)
    noise = rng.normal(size=400)
    found = summary(
        some_pairs(labels), {"similarity": noise, "shipped": noise + np.array(labels), "again": noise}, resamples=200
    )
    assert (found["pairs"], found["should_hit"], found["traps"], found["other_context"]) == (400, 200, 200, 0)
    assert found["auc"]["shipped"] > 0.7 > found["auc"]["similarity"]
    assert set(found["hit_rate_at_false_hit"]["similarity"]) == {"0.005", "0.01", "0.05"}
    for name in ("similarity", "shipped"):
        low, high = found["auc_interval"][name]
        assert low < found["auc"][name] < high
        for share, value in found["hit_rate_at_false_hit"][name].items():
            low, high = found["hit_rate_at_false_hit_interval"][name][share]
            assert low <= value <= high
    assert found["auc_difference_interval"]["shipped"][0] > 0
    assert found["auc_difference_interval"]["again"] == [0.0, 0.0]
    assert json.dumps(found)


def test_one_label_has_no_auc():
    found = summary(some_pairs([True, True]), {"similarity": np.array([0.1, 0.2])}, resamples=5)
    assert found["auc"]["similarity"] is None
    assert found["hit_rate_at_false_hit"]["similarity"]["0.05"] is None
    assert summary([], {"similarity": np.empty(0)})["pairs"] == 0


@pytest.mark.parametrize("values", [[0.5], [0.5, math.nan]])
def test_scores_that_do_not_fit_are_refused(values):
    with pytest.raises(ValueError, match="scores"):
        score(some_pairs([True, False]), np.array(values))


def test_pairs_that_share_a_text_stay_together():
    found = groups([Pair("a", "b", True), Pair("c", "d", True), Pair("B", "e", False), Pair("e", "f", True)])
    assert found[0] == found[2] == found[3] != found[1]
    chain = [Pair(tuple(TALK), "x", True), Pair("y", tuple(TALK), False)]
    assert len(set(groups(chain))) == 1


@given(st.integers(0, 100))
def test_cross_fitting_never_scores_what_it_learned_from(seed):
    rng = np.random.default_rng(seed)
    found = [Pair(f"t{rng.integers(30)}", f"u{i}", bool(rng.integers(2))) for i in range(60)]
    group = groups(found)

    def fit(learned):
        def scores(asked):
            assert not set(group[asked]) & set(group[learned])
            return asked.astype(float)

        return scores

    assert cross_fitted(found, fit, seed=seed).tolist() == list(range(60))


def test_cross_fitting_needs_as_many_groups_as_folds():
    with pytest.raises(ValueError, match="folds"):
        cross_fitted([Pair("a", "b", True)], lambda _: lambda asked: asked.astype(float))


def test_the_trap_report_counts_by_category_and_style():
    found = [Pair("a", "b", False, "unit", "minimal"), Pair("c", "d", False, "unit"), Pair("e", "f", True)]
    rows = trap_report(found, np.array([0.9, 0.1, 0.8]), 0.8)
    assert [(r["same"], r["by"], r["name"], r["served"], r["n"]) for r in rows] == [
        (False, "all", "all", 1, 2),
        (False, "category", "unit", 1, 2),
        (False, "style", "minimal", 1, 1),
        (True, "all", "all", 1, 1),
    ]
    assert all(r["rate_interval"][0] <= r["rate"] <= r["rate_interval"][1] for r in rows)
    assert trap_report([], np.empty(0), 0.5) == []


@pytest.mark.shared
def test_bare_similarity_on_the_development_pairs(shared_data):
    """Recorded so that a change of embedder, loader or arithmetic is seen."""
    found = load_pairs(str(shared_data / "fow-cache-dev" / "pairs.jsonl"))
    assert sum(pair.ambiguous for pair in found.pairs) == 4
    scores = similarities(found.pairs, make_embedder("static"))
    got = summary(found.pairs, {"similarity": scores}, resamples=50)
    assert got["auc"]["similarity"] == pytest.approx(0.656, abs=0.01)
    assert got["hit_rate_at_false_hit"]["similarity"]["0.05"] == pytest.approx(0.26, abs=0.03)
