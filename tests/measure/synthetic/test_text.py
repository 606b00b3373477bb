"""The text world: labels that hold, splits that share nothing, the same seed giving the same world."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_cli.errors import InputError, UsageError
from recall_cli.measure import workload
from recall_cli.measure.prompts import Kind
from recall_cli.measure.synthetic import text as textworld
from recall_cli.measure.synthetic.classes import load, near_keys, neighbour, possible, random_class
from recall_cli.measure.synthetic.conversations import CATEGORIES, load_talks
from recall_cli.measure.synthetic.edits import EDITS, noise, text_of
from recall_cli.measure.synthetic.grammar import parse, render
from recall_cli.measure.synthetic.text import LOW_OVERLAP, domains, overlap, pairs, stream
from recall_cli.measure.synthetic.wording import draw_wording, word
from recall_cli.measure.workload import bundled

INTENTS = load()
SEEDS = st.integers(0, 2**32)
TRAPS = {"negation", "number", "date", "entity", "scope", "unit", "comparison", "tense", "role", "aspect"}


def text(source: str, *, spelled=None, flips=None, draws=(0.0,) * 9, order=0.0) -> str:
    return text_of(render(parse(source), spelled or {}, flips or {}, draws, order))


# The grammar


def test_free_parts_follow_the_draw_and_deciding_parts_the_class():
    source = "[Is|Could] it be {x} <way:more [than|over]|less than> {y}?"
    spelled = {"x": "ten", "y": "two"}
    assert text(source, spelled=spelled, flips={"way": 0}) == "Is it be ten more than two?"
    assert text(source, spelled=spelled, flips={"way": 1}, draws=(0.9, 0.9)) == "Could it be ten less than two?"
    assert text(source, spelled=spelled, flips={"way": 0}, draws=(0.0, 0.9)) == "Is it be ten more over two?"
    assert parse(source).dimensions == {"x", "y", "way"}


def test_sentences_and_clauses_change_places():
    assert text("I am ill. ~ What now?", order=0.9) == "What now? I am ill."
    assert text("What does it cost ^ in {x}?", spelled={"x": "Rome"}) == "What does it cost in Rome?"
    assert text("What does it cost ^ in {x}?", spelled={"x": "Rome"}, order=0.9) == "In Rome, what does it cost?"
    assert text("I pay how much ^ in May?", order=0.9) == "In May, I pay how much?"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("apple", "an apple"),
        ("MRI", "an MRI"),
        ("XML", "an XML"),
        ("pear", "a pear"),
        ("US", "a US"),
        ("unit", "a unit"),
        ("8", "an 8"),
    ],
)
def test_an_article_fits_the_value_behind_it(value, says):
    assert text("I see a {x}.", spelled={"x": value}) == f"I see {says}."
    assert text("I see an {x}.", spelled={"x": value}) == f"I see {says}."


def test_a_dimension_counts_only_where_every_reading_shows_it():
    assert parse("[{x}|nothing] <f:{y}|{y} too>").dimensions == {"y", "f"}
    assert parse("[{x}|{x} again]").dimensions == {"x"}


@pytest.mark.parametrize("source", ["[a|b", "a|b", "a]", "<a|b>", "<f:a|b", "{x", "x ^ y", "a. ~ b ^ c?", "{a b}"])
def test_a_line_with_unmatched_marks_is_refused(source):
    with pytest.raises(ValueError, match=r"."):
        parse(source)


# The definition


def test_the_world_is_as_large_as_promised():
    assert len(domains()) >= 8
    assert sum(intent.size for intent in INTENTS) > 10_000
    assert len({(intent.domain, intent.name) for intent in INTENTS}) == len(INTENTS)
    assert {trap for intent in INTENTS for trap, _ in intent.moves} == TRAPS
    by_domain = defaultdict(set)
    for intent in INTENTS:
        by_domain[intent.domain] |= {trap for trap, _ in intent.moves}
    assert all({"negation", "entity", "comparison", "scope", "tense"} <= traps for traps in by_domain.values())
    # A trap that stands in one trade only would teach the trade.
    assert all(sum(trap in traps for traps in by_domain.values()) >= 4 for trap in TRAPS - {"aspect"})


@pytest.mark.parametrize("intent", INTENTS, ids=lambda i: f"{i.domain}/{i.name}")
def test_an_intent_has_wordings_enough_and_no_two_values_of_one_spelling(intent):
    assert len(intent.train) >= 4
    assert len(intent.held_out) >= 3
    for split in (intent.train, intent.held_out):
        assert any(template.keywords for template in split)
        assert sum(not template.keywords for template in split) >= 2
    sources = [template.source for template in intent.templates(None)]
    assert len(set(sources)) == len(sources)
    for values in intent.slots.values():
        spellings = [spelling.casefold() for ways in values.spellings for spelling in {w.casefold() for w in ways}]
        assert len(set(spellings)) == len(spellings)
    if intent.talk:
        assert set(intent.talk.by) <= {*intent.slots, *intent.flips}
        assert set(intent.talk.ask) <= set(load_talks().follow)
    known = set(intent.slots)
    assert {*intent.swap, *intent.ordered} <= known
    for pair in (intent.swap, intent.ordered):
        assert len({id(intent.slots[name]) for name in pair}) <= 1


def test_no_template_stands_in_both_splits_or_in_two_intents():
    sources = Counter(t.source for intent in INTENTS for t in intent.templates(None))
    assert max(sources.values()) == 1
    follow = Counter(t.source for ways in load_talks().follow.values() for split in ways.values() for t in split)
    assert max(follow.values()) == 1


@pytest.mark.parametrize("intent", INTENTS, ids=lambda i: f"{i.domain}/{i.name}")
def test_every_reading_shows_every_deciding_value_and_no_mark(intent):
    rng = np.random.default_rng(1)
    for template in intent.templates(None):
        for _ in range(4):
            asked = random_class(intent, rng)
            segments = draw_wording(intent, template, rng).of(asked)
            shown = text_of(segments)
            assert not re.search(r"[\[\]{}<>|~^#]|  |\s[?.,]", shown), shown
            for name, values in intent.slots.items():
                assert any(way in shown for way in values.spellings[asked.picks[name]]), (name, shown)


def test_one_text_never_belongs_to_two_classes():
    rng = np.random.default_rng(2)
    owner: dict[str, str] = {}
    for _ in range(6_000):
        asked = random_class(INTENTS[int(rng.integers(len(INTENTS)))], rng)
        shown = word(asked, rng)
        assert owner.setdefault(shown.casefold(), asked.label) == asked.label, shown


def test_minimal_changes_change_the_text():
    """A deciding dimension that a wording shows alike for two values would make its traps unanswerable."""
    rng = np.random.default_rng(3)
    for intent in INTENTS:
        for _, dimension in intent.moves:
            for template in intent.templates(None):
                asked = random_class(intent, rng)
                other = neighbour(asked, dimension, rng)
                wording = draw_wording(intent, template, rng)
                if other is not None:
                    assert text_of(wording.of(asked)).casefold() != text_of(wording.of(other)).casefold()


@given(SEEDS)
def test_neighbours_are_one_step_apart_and_say_so(seed):
    rng = np.random.default_rng(seed)
    intent = INTENTS[int(rng.integers(len(INTENTS)))]
    asked, far = random_class(intent, rng), random_class(intent, rng)
    for _, dimension in intent.moves:
        other = neighbour(asked, dimension, rng)
        if other is None:
            continue
        assert possible(intent, other.picks)
        assert other != asked
        assert set(near_keys(asked)) & set(near_keys(other))
    differing = {name for name in asked.picks if asked.picks[name] != far.picks[name]}
    swapped = intent.swap and differing == set(intent.swap)
    near = bool(set(near_keys(asked)) & set(near_keys(far)))
    assert near == (len(differing) <= 1 or bool(swapped and sorted_picks(asked) == sorted_picks(far)))


def sorted_picks(asked) -> list[int]:
    return sorted(asked.picks[name] for name in asked.intent.swap)


@given(SEEDS)
def test_edits_leave_what_decides_alone(seed):
    rng = np.random.default_rng(seed)
    intent = INTENTS[int(rng.integers(len(INTENTS)))]
    asked = random_class(intent, rng)
    template = intent.templates(None)[int(rng.integers(len(intent.templates(None))))]
    segments = draw_wording(intent, template, rng).of(asked)

    def deciding(found) -> list[str]:
        # Typing without a final mark may take it from a last value such as "how?".
        return [part.casefold().rstrip("?.! ") for part, decides in found if decides]

    for edit in EDITS.values():
        assert deciding(edit(segments, rng)) == deciding(segments)
    assert deciding(noise(segments, rng)) == deciding(segments)


# Pairs


@pytest.mark.parametrize("split", ["train", "held-out"])
def test_pairs_come_in_equal_shapes_and_all_categories(split):
    found = pairs(1_000, 5, split, conversations=0)
    shapes = Counter((pair.same, pair.style) for pair in found)
    assert set(shapes) == {(True, "high"), (True, "low"), (False, "minimal"), (False, "reworded")}
    assert max(shapes.values()) - min(shapes.values()) < 40
    traps = Counter((pair.category, pair.style) for pair in found if not pair.same)
    assert {name for name, _ in traps} == TRAPS
    assert min(traps.values()) > 15
    assert {pair.category for pair in found if pair.same} == {*EDITS, "words", "order", "reworded", "keywords"}
    assert {pair.group for pair in found} == set(domains())
    for pair in found:
        assert pair.a.casefold() != pair.b.casefold()
        assert (overlap(pair.a, pair.b) >= LOW_OVERLAP) == (pair.style in ("high", "minimal"))


def test_the_same_seed_gives_the_same_world_and_more_of_it_begins_alike():
    assert pairs(80, 7)[:40] == pairs(40, 7)
    assert pairs(40, 8) != pairs(40, 7)
    assert stream(300, 7)[:100] == stream(100, 7)
    assert stream(100, 8) != stream(100, 7)


def test_no_text_of_one_split_is_made_in_the_other():
    train = {side for pair in pairs(600, 1, "train", conversations=0) for side in (pair.a, pair.b)}
    held = {side for pair in pairs(600, 1, "held-out", conversations=0) for side in (pair.a, pair.b)}
    assert not train & held


def test_no_text_is_a_query_of_the_bundled_workload():
    asked = {query.text.casefold() for query in bundled().queries}
    assert not asked & {item.text.casefold() for item in stream(1_000, 3)}


def test_edits_do_not_tell_traps_from_paraphrases():
    """A greeting or a typo that came with one label alone would be learned in place of the question."""
    found = pairs(1_200, 9, conversations=0)
    for mark in (
        r"^(Hi|Hello|Hey|Just wondering)\b",
        r"(Thanks!|Thx|Many thanks\.|Please help\.)$",
        r"^[a-z].*[a-z0-9]$",
    ):
        share = {
            same: np.mean([bool(re.search(mark, side)) for p in found if p.same is same for side in (p.a, p.b)])
            for same in (True, False)
        }
        assert share[False] > 0.4 * share[True] > 0


def test_conversations_take_turns_and_their_traps_end_alike():
    found = pairs(400, 3, "held-out", conversations=1.0)
    assert set(Counter(pair.category for pair in found)) == set(CATEGORIES)
    assert 0.4 < np.mean([pair.same for pair in found]) < 0.6
    for pair in found:
        for side in (pair.a, pair.b):
            assert [turn["role"] for turn in side] == ["user", "assistant"] * (len(side) // 2) + ["user"]
        assert pair.a != pair.b
        if not pair.same:
            assert pair.a[-1] == pair.b[-1]
            assert pair.a[:-1] != pair.b[:-1]
        if pair.category == "same-context":
            assert pair.a[:-1] == pair.b[:-1]


def test_pairs_can_keep_to_some_domains():
    assert {pair.group for pair in pairs(60, 0, only=["code", "hr"])} == {"code", "hr"}
    with pytest.raises(UsageError, match="poetry") as caught:
        pairs(10, 0, only=["poetry"])
    assert "banking" in caught.value.hint


def test_more_pairs_than_there_are_is_a_usage_error(monkeypatch):
    five = pairs(5, 0, conversations=0)
    monkeypatch.setattr(textworld, "_text_pairs", lambda *_: iter(five))
    with pytest.raises(UsageError, match="yield about 5"):
        textworld.pairs(6, 0, conversations=0)


# Streams


def test_kinds_say_what_came_before():
    items = stream(1_000, 4)
    texts, classes = set(), set()
    for item in items:
        if item.kind is Kind.REPEAT:
            assert item.text in texts
        elif item.kind is Kind.PARAPHRASE:
            assert item.answer_class in classes
            assert item.text not in texts
        else:
            assert item.answer_class not in classes
        texts.add(item.text)
        classes.add(item.answer_class)
        assert item.answer_class.startswith(item.namespace + "/")
    assert min(Counter(item.kind for item in items).values()) > 30
    assert {item.namespace for item in items} == set(domains())


def test_popular_classes_recur_and_one_offs_hardly_do():
    counts = Counter(item.answer_class for item in stream(3_000, 6, zipf=1.0, one_offs=0.2))
    top = [n for _, n in counts.most_common(3)]
    assert top[0] > 150
    assert top[2] < top[0]
    assert sum(n == 1 for n in counts.values()) > 350
    flat = Counter(item.answer_class for item in stream(1_500, 6, zipf=0.0, one_offs=0.0, classes=50))
    assert len(flat) == 50
    assert max(flat.values()) < 100


@settings(max_examples=5)
@given(SEEDS, st.sampled_from(["train", "held-out", None]))
def test_no_text_of_a_stream_has_two_classes(seed, split):
    owner: dict[str, str] = {}
    for item in stream(300, seed, split=split):
        assert owner.setdefault(item.text.casefold(), item.answer_class) == item.answer_class


def test_a_damaged_definition_is_an_input_error(tmp_path, monkeypatch):
    monkeypatch.setattr(workload, "workloads_dir", lambda: tmp_path)
    (tmp_path / "text-world.toml").write_text('domains = ["x"]\n[slots]\n')
    load.cache_clear()
    try:
        with pytest.raises(InputError, match="cannot be read"):
            load()
        (tmp_path / "text-world-x.toml").write_text(
            '[[intent]]\nid = "i"\nflips = { f = "scope" }\ntrain = ["<f:a|b>"]'
        )
        with pytest.raises(InputError, match="is wrong"):
            load()
        (tmp_path / "text-world-x.toml").write_text("[[intent]\n")
        with pytest.raises(InputError, match="not valid TOML"):
            load()
        body = '[[intent]]\nid = "i"\nflips = { f = "scope" }\ntrain = ["<f:a|b>"]\nheld_out = ["{missing} <f:c|d>"]'
        (tmp_path / "text-world-x.toml").write_text(body)
        with pytest.raises(InputError, match="missing"):
            load()
    finally:
        load.cache_clear()
