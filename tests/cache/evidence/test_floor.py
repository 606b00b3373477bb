"""The floor under semantic hits: what was not read, or not told apart, is served by identity alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.registry import HashEmbedder, make_embedder
from recall_cli.cache.evidence.evidence import VETOES, evidence
from recall_cli.cache.evidence.floor import NOT_TOLD_APART, UNREAD, Floor
from recall_cli.cache.evidence.text_features import facts
from recall_cli.cache.policy.registry import make_policy
from recall_cli.cache.policy.static import StaticPolicy
from recall_cli.cache.request import text_request
from recall_cli.errors import UsageError
from recall_cli.measure import workload
from recall_cli.types import Completion, Evidence, Lookup, Outcome, Policy, Verdict
from tests import never_the_same as kinds

STATIC = make_embedder("static")
FLOOR = Floor(STATIC)
ANYTHING = 0.01
"""A cutoff at which similarity keeps nothing back: what stays a miss is kept by the floor."""
PARTS = ["reset", "Password", "uk", "UK", "café", "cafe", "a", "b", "5", "-", ">", "it's", "日本", "👍", "\x00", "?"]
TEXTS = st.text(st.characters(), max_size=60) | st.lists(st.sampled_from(PARTS), max_size=9).map(" ".join)


def found(a: str, b: str) -> Evidence:
    return evidence(facts(a), facts(b), 1.0)


class ServesAnything:
    """A policy that a mistake made."""

    name = "anything"
    learns = False
    candidates = 1

    def decide(self, namespace: str, evidence: Evidence) -> Verdict:
        return Verdict(True, -2.0)

    def observe(self, namespace: str, evidence: Evidence, *, same: bool) -> None: ...

    def state(self) -> dict[str, object]:
        return {}

    def load(self, state: object) -> None: ...


def ask(stored: str, asked: str, policy: Policy | None = None, vetoes: frozenset[str] = frozenset()) -> Lookup:
    cache = Cache(embedder=STATIC, policy=policy or ServesAnything(), vetoes=vetoes)
    cache.put(text_request(stored), Completion(b"1"))
    return cache.get(text_request(asked))


@pytest.mark.parametrize("language", kinds.QUESTIONS)
def test_two_questions_of_a_language_that_was_not_read_never_meet(language: str) -> None:
    questions = kinds.QUESTIONS[language]
    cache = Cache(embedder=STATIC, policy=StaticPolicy(0.6), vetoes=frozenset())
    for question in questions:
        missed = cache.get(text_request(question))
        assert missed.decision.outcome is Outcome.MISS, question
        cache.put(text_request(question), Completion(question.encode()), missed.vector)
    for question in questions:
        hit = cache.get(text_request(question))
        assert hit.decision.outcome is Outcome.EXACT
        assert hit.completion is not None
        assert hit.completion.body == question.encode()


@pytest.mark.parametrize(("a", "b"), kinds.UNREAD + kinds.NOT_TOLD_APART)
def test_a_look_alike_is_no_hit_whatever_the_policy(a: str, b: str) -> None:
    for stored, asked in ((a, b), (b, a)):
        decision = ask(stored, asked).decision
        assert decision.outcome is Outcome.MISS
        assert decision.reason in (UNREAD, NOT_TOLD_APART, "empty_partition"), decision


@pytest.mark.parametrize(("a", "b"), kinds.HARMLESS)
def test_harmless_differences_stay_hits(a: str, b: str) -> None:
    for stored, asked in ((a, b), (b, a)):
        assert ask(stored, asked, StaticPolicy(0.8), frozenset(VETOES)).decision.outcome is Outcome.SEMANTIC


@given(a=TEXTS, b=TEXTS)
def test_the_floor_is_symmetric(a: str, b: str) -> None:
    assert FLOOR.refusal(a, b, found(a, b)) == FLOOR.refusal(b, a, found(b, a))


@given(text=TEXTS)
def test_a_text_is_told_apart_from_nothing_by_itself(text: str) -> None:
    assert FLOOR.refusal(text, text, found(text, text)) == ""
    assert not FLOOR.reads(text) or FLOOR.tells_apart(text, text, found(text, text))


@given(text=TEXTS)
def test_every_text_is_an_exact_hit_of_itself(text: str) -> None:
    assert ask(text, text).decision.outcome is Outcome.EXACT


def test_an_unread_text_is_stored_without_a_vector() -> None:
    cache = Cache(embedder=STATIC, policy=StaticPolicy(0.8))
    text = kinds.QUESTIONS["greek"][0]
    missed = cache.get(text_request(text))
    assert (missed.decision.reason, missed.vector) == (UNREAD, None)
    for vector in (None, STATIC.embed(text)):
        cache.put(text_request(text), Completion(b"1"), vector)
        assert [entry.has_vector for entry in cache.store.entries()] == [False]


def test_an_unread_text_in_ascii_is_no_neighbour_either() -> None:
    cache = Cache(embedder=STATIC, policy=StaticPolicy(0.8))
    first, second = "Decode this base64: SGVsbG8gd29ybGQhIQ==", "Decode this base64: R29vZGJ5ZSBtb29uIQ=="
    cache.put(text_request("How do I reset my password?"), Completion(b"1"))
    for text in (first, second):
        missed = cache.get(text_request(text))
        assert missed.decision.outcome is Outcome.MISS
        cache.put(text_request(text), Completion(text.encode()), missed.vector)
    assert [entry.has_vector for entry in cache.store.entries()] == [True, False, False]


def test_a_vector_that_an_older_version_stored_of_an_unread_text_serves_nobody() -> None:
    cache = Cache(embedder=STATIC, policy=ServesAnything())
    old = text_request("Wie ist das Wetter in Zürich 天气?")
    vector = STATIC.embed(old.text)
    cache.store.append(old, Completion(b"1"), vector, created=0.0, expires=None)
    again = Cache(embedder=STATIC, policy=ServesAnything(), store=cache.store)
    decision = again.get(text_request("Wie ist das Wetter in Zürich?")).decision
    assert (decision.outcome, decision.reason) == (Outcome.MISS, UNREAD)


def test_what_the_floor_refuses_teaches_nothing() -> None:
    looked = ask("Did Alice pay Bob?", "Did Bob pay Alice?", StaticPolicy(0.8))
    assert looked.decision.reason == NOT_TOLD_APART
    assert looked.evidence is None


def test_the_vetoes_are_on_for_a_fixed_cutoff_and_can_be_taken_off() -> None:
    stored, asked = "Write a poem about my dog", "Write a poem about my cat"
    for vetoes, outcome in ((None, Outcome.MISS), (frozenset[str](), Outcome.SEMANTIC)):
        cache = Cache(embedder=STATIC, policy=StaticPolicy(0.8), vetoes=vetoes)
        cache.put(text_request(stored), Completion(b"1"))
        assert cache.get(text_request(asked)).decision.outcome is outcome


class Counting(HashEmbedder):
    def __init__(self) -> None:
        self.asked = 0

    def embed(self, text: str):  # type: ignore[no-untyped-def]
        self.asked += 1
        return super().embed(text)


@pytest.mark.parametrize("policy", [make_policy("exact"), StaticPolicy(1.0), StaticPolicy(1.0, {"here": 1.0})])
def test_exact_serves_nothing_by_meaning_and_embeds_nothing(policy: Policy) -> None:
    embedder = Counting()
    cache = Cache(embedder=embedder, policy=policy)
    first = text_request("How do I reset my password?")
    assert cache.get(first).decision.reason == "exact_only"
    assert embedder.asked == 0
    cache.put(first, Completion(b"1"))
    assert cache.get(first).decision.outcome is Outcome.EXACT
    assert cache.get(text_request("How do I reset my password")).decision.reason == "exact_only"


def test_a_cutoff_of_one_in_one_namespace_is_exact_there_alone() -> None:
    policy = StaticPolicy(0.8, {"strict": 1.0})
    assert not policy.decide("strict", Evidence(1.0)).serve
    assert policy.decide("other", Evidence(1.0)).serve


def test_a_policy_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(UsageError) as caught:
        make_policy("fuzzy")
    assert caught.value.hint == "choose exact, static or adaptive"


def unread(texts: list[str]) -> list[str]:
    return [text for text in texts if not FLOOR.reads(text)]


def test_nearly_all_of_the_bundled_prompts_are_read() -> None:
    work = workload.bundled()
    texts = [*work.seeds, *(query.text for query in work.queries)]
    assert len(unread(texts)) < len(texts) / 100, unread(texts)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["clinc150", "banking77"])
def test_nearly_all_of_the_intent_sets_is_read(name: str, shared_data: Path) -> None:
    if name == "clinc150":
        parts = json.loads((shared_data / name / "data_full.json").read_bytes())
        texts = [text for part in parts.values() for text, _ in part]
    else:
        texts = [row["text"] for part in ("train", "test") for row in _csv(shared_data / name / f"{part}.csv")]
    assert len(texts) > 10_000
    assert len(unread(texts)) < len(texts) / 100


@pytest.mark.shared
def test_the_pairs_at_hand_are_kept_apart(shared_data: Path) -> None:
    given = json.loads((shared_data.parent / "faults" / "never-the-same.json").read_bytes())
    wrong = {
        kind: [
            pair
            for pair in given[kind]
            if ask(pair["a"], pair["b"], StaticPolicy(0.8), frozenset(VETOES)).completion is not None
        ]
        for kind in ("opposite", "unread")
    }
    assert wrong == {"opposite": [], "unread": []}


def _csv(path: Path) -> list[dict[str, str]]:
    import csv

    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
