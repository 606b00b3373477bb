"""A cache that learns: labels reach the policy, groups and records reach the store, states survive."""

from __future__ import annotations

from pathlib import Path

import pytest

from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.evidence.evidence import check_vetoes
from recall_cli.cache.policy.adaptive import AdaptivePolicy
from recall_cli.cache.policy.static import StaticPolicy
from recall_cli.cache.request import text_request
from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.errors import UsageError
from recall_cli.types import Completion, Evidence, Lookup, Outcome, Verdict

STATIC = make_embedder("static")


class Watching(StaticPolicy):
    """A static cutoff that asks for evidence, checks every hit and remembers what it is told."""

    learns = True
    candidates = 8

    def __init__(self, tau: float = 0.7) -> None:
        super().__init__(tau)
        self.seen: list[Evidence] = []
        self.labels: list[bool] = []

    def decide(self, namespace: str, evidence: Evidence) -> Verdict:
        self.seen.append(evidence)
        verdict = super().decide(namespace, evidence)
        return Verdict(verdict.serve, verdict.cutoff, audit=verdict.serve)

    def observe(self, namespace: str, evidence: Evidence, *, same: bool) -> None:
        assert evidence in self.seen
        self.labels.append(same)


def ask(cache: Cache, text: str) -> Lookup:
    return cache.get(text_request(text))


def answer(text: str) -> Completion:
    return Completion(text.encode())


def test_the_evidence_of_the_nearest_comes_back_with_the_lookup() -> None:
    cache = Cache(embedder=STATIC, policy=Watching(), vetoes=frozenset())
    stored, asked = "Can I bring my dog on the train?", "Can't I bring my dog on the train?"
    cache.put(text_request(stored), answer("a"))
    found = ask(cache, asked)
    assert found.evidence is not None
    assert found.evidence.negation == 1
    one, other = STATIC.embed_many([stored, asked])
    assert found.evidence.similarity == pytest.approx(float(one @ other), abs=1e-5)
    assert found.audit


def test_a_static_cutoff_reads_no_texts_of_what_it_would_not_serve() -> None:
    cache = Cache(embedder=STATIC, policy=StaticPolicy(0.99))
    cache.put(text_request("How do I cancel my order today?"), answer("a"))
    found = ask(cache, "How do I cancel my flight today?")
    assert found.evidence == Evidence(found.decision.similarity or 0)
    assert not cache._witness._facts


@pytest.mark.parametrize(
    ("stored", "asked", "veto"),
    [
        ("Can I bring my dog on the train?", "Can't I bring my dog on the train?", "negation"),
        ("Write a poem about my dog", "Write a poem about my cat", "detail"),
    ],
)
def test_a_veto_turns_one_check_into_a_no(stored: str, asked: str, veto: str) -> None:
    for vetoes, outcome in ((frozenset[str](), Outcome.SEMANTIC), (check_vetoes([veto]), Outcome.MISS)):
        cache = Cache(embedder=STATIC, policy=StaticPolicy(0.7), vetoes=vetoes)
        cache.put(text_request(stored), answer("a"))
        found = ask(cache, asked)
        assert found.decision.outcome is outcome
        assert found.decision.reason == ("" if outcome is Outcome.SEMANTIC else f"veto_{veto}")


def test_an_unknown_veto_is_refused() -> None:
    with pytest.raises(UsageError, match="no check"):
        check_vetoes(["numbers", "colours"])


def test_labels_reach_the_policy_and_the_record() -> None:
    policy = Watching()
    cache = Cache(embedder=STATIC, policy=policy)
    first = cache.put(text_request("How do I reset my password?"), answer("click"))
    request = text_request("Reset my password, how?")
    found = cache.get(request)
    assert found.decision.outcome is Outcome.SEMANTIC
    assert cache.learn(request, found, answer("click"), same=True) == first
    new = cache.learn(request, cache.get(request), answer("call us"), same=False)
    assert new != first
    assert cache.get(request).completion == answer("call us")  # its own answer now, by identity
    assert policy.labels == [True, False]
    assert first is not None
    assert cache._witness.records([first])[first][1] == 2
    assert ask(cache, "how do i reset my password").evidence.history == pytest.approx(1.5 / 4)  # type: ignore[union-attr]


def test_an_unsure_comparison_teaches_nothing() -> None:
    policy = Watching(0.99)
    cache = Cache(embedder=STATIC, policy=policy)
    cache.put(text_request("How do I reset my password?"), answer("a"))
    request = text_request("How do I reset the password of my account?")
    found = cache.get(request)
    assert found.decision.outcome is Outcome.MISS
    cache.learn(request, found, answer("b"), same=None)
    assert policy.labels == []
    assert len(cache) == 2


def test_entries_that_say_the_same_are_one_group_and_do_not_narrow_the_margin() -> None:
    cache = Cache(embedder=STATIC, policy=Watching(0.9999))
    cache.put(text_request("How do I reset my password?"), answer("click"))
    request = text_request("How can I reset my password?")
    same = cache.learn(request, cache.get(request), answer("click"), same=True)
    other = text_request("How do I reset my phone?")
    cache.learn(other, cache.get(other), answer("hold the button"), same=False)
    margin = ask(cache, "how do i reset my password").evidence.margin  # type: ignore[union-attr]
    asked, best, phone = STATIC.embed_many(
        ["how do i reset my password", "How do I reset my password?", "How do I reset my phone?"]
    )
    assert margin == pytest.approx(float(asked @ best - asked @ phone), abs=1e-3)
    assert same is not None
    assert cache._witness.group(same) == 1


@pytest.mark.parametrize("kind", ["static", "adaptive"])
def test_what_was_learned_survives_reopening(tmp_path: Path, kind: str) -> None:
    def opened() -> Cache:
        policy = AdaptivePolicy(version=STATIC.fingerprint) if kind == "adaptive" else Watching()
        return Cache(embedder=STATIC, policy=policy, store=SqliteStore(tmp_path / "s.db", embedder=STATIC))

    cache = opened()
    first = cache.put(text_request("How do I reset my password?"), answer("click"))
    request = text_request("How can I reset my password?")
    second = cache.learn(request, cache.get(request), answer("click"), same=True)
    cache.close()
    assert first is not None
    assert second is not None
    again = opened()
    assert again._witness.group(second) == first
    assert again._witness.records([first])[first][1] == 1
    if kind == "adaptive":
        assert isinstance(again.policy, AdaptivePolicy)
        assert again.policy.labels == 1
    again.close()


def test_an_adaptive_cache_serves_nothing_semantic_while_cold() -> None:
    cache = Cache(embedder=STATIC, policy=AdaptivePolicy())
    cache.put(text_request("How do I reset my password?"), answer("a"))
    assert ask(cache, "how do i reset my password").decision.outcome is Outcome.MISS
    assert ask(cache, "How do I reset my password?").decision.outcome is Outcome.EXACT
