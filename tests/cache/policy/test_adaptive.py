"""The adaptive policy: what it may never do, what it must learn, and what it keeps over a restart."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cache.policy import risk_model
from recall_cli.cache.policy.adaptive import AdaptivePolicy
from recall_cli.cache.policy.risk_bound import NOTHING, BayesBound
from recall_cli.cache.policy.risk_model import FIELDS, Prior
from recall_cli.cache.policy.state import UNKNOWN, DecisionLog, NamespaceState, Promise
from recall_cli.errors import UsageError
from recall_cli.types import Evidence

NAMESPACES = ("faq", "code")


def teach(policy: AdaptivePolicy, n: int, *, seed: int = 0, right_from: float = 0.6, wrong: float = 0.0) -> int:
    """Ask n questions whose candidate is right above a similarity; return how many hits there were."""
    rng = np.random.default_rng(seed)
    hits = 0
    for i in range(n):
        evidence = Evidence(float(rng.random()), margin=float(rng.random() * 0.2))
        namespace = NAMESPACES[i % 2]
        verdict = policy.decide(namespace, evidence)
        same = evidence.similarity > right_from and rng.random() >= wrong
        hits += verdict.serve
        if not verdict.serve or verdict.audit:
            policy.observe(namespace, evidence, same=bool(same))
    return hits


@pytest.fixture(scope="module")
def trained() -> AdaptivePolicy:
    policy = AdaptivePolicy(version="v1")
    assert teach(policy, 3_500) > 500
    return policy


@pytest.mark.parametrize("prior", [None, Prior(-20.0, (-5.0,) + (0.0,) * (len(FIELDS) - 1), "sure of itself")])
def test_nothing_is_served_before_the_warm_up(prior: Prior | None) -> None:
    policy = AdaptivePolicy(prior=prior, warmup=100)
    for _ in range(99):
        evidence = Evidence(1.0)
        assert not policy.decide("n", evidence).serve
        policy.observe("n", evidence, same=True)


def served(policy: AdaptivePolicy, unsure: float, n: int = 1_500, namespace: str = "n") -> int:
    """Ask n questions with right candidates of which a share is not judged; return the hits of the last 500."""
    rng = np.random.default_rng(3)
    hits = 0
    for at in range(n):
        evidence = Evidence(0.9 + float(rng.random()) / 10, margin=0.1)
        verdict = policy.decide(namespace, evidence)
        hits += verdict.serve and at >= n - 500
        if not verdict.serve or verdict.audit:
            if rng.random() < unsure:
                policy.unsure(namespace, evidence)
            else:
                policy.observe(namespace, evidence, same=True)
    return hits


def test_where_most_answers_cannot_be_judged_nothing_is_served() -> None:
    assert served(AdaptivePolicy(target_false_hit=0.05), 0.0) > 400
    assert served(AdaptivePolicy(target_false_hit=0.05), 0.3) > 400
    assert served(AdaptivePolicy(target_false_hit=0.05), 0.7) == 0
    assert served(AdaptivePolicy(target_false_hit=0.05), 1.0) == 0


def test_a_namespace_that_cannot_be_judged_silences_no_other_and_speaks_again_once_it_can() -> None:
    policy = AdaptivePolicy(target_false_hit=0.05)
    assert served(policy, 0.0, namespace="labels") > 400
    assert served(policy, 1.0, 700, namespace="prose") == 0
    assert policy.cutoffs()["prose"] > 1
    assert policy.cutoffs()["labels"] <= 1
    assert served(policy, 0.0, 700, namespace="labels") > 400
    # What is not known is kept over a restart.
    again = AdaptivePolicy(target_false_hit=0.05)
    again.load(json.loads(json.dumps(policy.state())))
    assert not again.decide("prose", Evidence(0.99, margin=0.1)).serve
    assert again.decide("labels", Evidence(0.99, margin=0.1)).serve
    # The window forgets what could not be judged.
    assert served(policy, 0.0, 4_000, namespace="prose") > 400


def test_a_late_label_takes_the_place_of_an_unsure_one() -> None:
    policy = AdaptivePolicy()
    evidence = Evidence(0.95)
    policy.decide("n", evidence)
    policy.unsure("n", evidence)
    assert policy.labels == 0
    policy.observe("n", evidence, same=True)
    policy.observe("n", evidence, same=False)
    assert policy.labels == 1
    policy.unsure("n", evidence)
    assert policy.labels == 1


def test_traffic_without_labels_teaches_nothing() -> None:
    policy = AdaptivePolicy()
    assert not any(policy.decide("n", Evidence(1.0)).serve for _ in range(500))


def test_it_learns_to_serve_what_is_right() -> None:
    policy = AdaptivePolicy(target_false_hit=0.05)
    teach(policy, 4_000)
    assert teach(policy, 500, seed=1) > 100
    assert all(0.5 < cutoff < 1 for cutoff in policy.cutoffs().values())


def test_labels_dealt_at_random_are_never_served() -> None:
    policy = AdaptivePolicy()
    assert teach(policy, 3_000, right_from=-1.0, wrong=0.5) == 0
    assert policy.labels_needed() is None or policy.labels_needed() > 0  # type: ignore[operator]


@given(
    low=st.floats(-1, 1),
    high=st.floats(-1, 1),
    margin=st.floats(0, 1),
    overlap=st.floats(0, 1),
    names=st.floats(0, 1),
    namespace=st.sampled_from([*NAMESPACES, "new"]),
)
def test_a_closer_candidate_is_never_served_less(
    trained: AdaptivePolicy, low: float, high: float, margin: float, overlap: float, names: float, namespace: str
) -> None:
    low, high = sorted((low, high))
    far = trained.decide(namespace, Evidence(low, margin=margin, overlap=overlap, names=names))
    near = trained.decide(namespace, Evidence(high, margin=margin, overlap=overlap, names=names))
    assert far.serve <= near.serve


@given(similarity=st.floats(-1, 1), margin=st.floats(0, 1), history=st.floats(0, 1))
def test_the_cutoff_is_the_one_that_decided(
    trained: AdaptivePolicy, similarity: float, margin: float, history: float
) -> None:
    verdict = trained.decide("faq", Evidence(similarity, margin=margin, history=history))
    assert math.isfinite(verdict.cutoff)
    if abs(similarity - verdict.cutoff) > 1e-9:
        assert verdict.serve == (similarity > verdict.cutoff)


def test_a_change_makes_a_namespace_retreat() -> None:
    policy = AdaptivePolicy(target_false_hit=0.05, verify_sample=0.2)
    teach(policy, 3_000)
    before = teach(policy, 400, seed=1)
    # From now on every candidate is wrong: what is stored has gone stale.
    after = [teach(policy, 400, seed=seed, right_from=2.0) for seed in (2, 3, 4)]
    assert before > 100
    assert after[-1] < before / 10
    assert sum(space["wrong"] for space in policy.spaces().values()) > 0


def test_a_decision_is_labelled_once_and_late_labels_count() -> None:
    policy = AdaptivePolicy(window=100)
    asked = [Evidence(0.9) for _ in range(150)]
    for evidence in asked:
        policy.decide("n", evidence)
    assert len({evidence.ticket for evidence in asked}) == 150
    policy.observe("n", asked[-1], same=True)
    policy.observe("n", asked[-1], same=False)
    assert policy.labels == 1
    # The window has moved past the first ones: their label has nothing to refer to.
    policy.observe("n", asked[0], same=True)
    assert policy.labels == 1


def test_a_label_without_a_decision_counts_as_a_miss() -> None:
    policy = AdaptivePolicy(warmup=50)
    for i in range(400):
        policy.observe("n", Evidence(0.95 if i % 2 else 0.3), same=bool(i % 2))
    assert policy.labels == 400
    assert policy.decide("n", Evidence(0.95)).serve


def test_the_share_of_audits_is_what_was_asked_for(trained: AdaptivePolicy) -> None:
    verdicts = [trained.decide("faq", Evidence(0.99, margin=0.2)) for _ in range(2_000)]
    assert all(verdict.serve for verdict in verdicts)
    assert 0.03 < np.mean([verdict.audit for verdict in verdicts]) < 0.07


def test_a_saved_state_goes_on_as_it_was() -> None:
    policy = AdaptivePolicy(version="v1")
    teach(policy, 3_500)
    saved = json.loads(json.dumps(policy.state()))
    other = AdaptivePolicy(version="v1")
    other.load(saved)
    assert other.labels == policy.labels
    assert other.labels_needed() == 0
    rng = np.random.default_rng(5)
    pairs = [(Evidence(s), Evidence(s)) for s in rng.random(300).tolist()]
    assert np.mean([policy.decide("faq", a).serve == other.decide("faq", b).serve for a, b in pairs]) > 0.98


@pytest.mark.parametrize(
    "change",
    [
        {"version": "another embedder"},
        {"features": ["other"]},
        {"layout": 0},
        {"policy": "static"},
        {"ring": {"size": 3000, "next": 5}},
        {"weights": ["x"]},
        {"spaces": {"n": {"unknown": 1}}},
    ],
)
def test_another_version_or_damage_starts_cold(trained: AdaptivePolicy, change: dict[str, object]) -> None:
    policy = AdaptivePolicy(version="v1")
    policy.load(trained.state() | change)
    assert policy.labels == 0
    assert policy.theta == NOTHING
    teach(policy, 3_500)
    assert policy.theta > NOTHING


def test_a_refit_can_be_handed_away() -> None:
    jobs = []
    policy = AdaptivePolicy(schedule=jobs.append)
    assert teach(policy, 1_000) == 0
    assert len(jobs) == 1  # one at a time, however many labels come meanwhile
    jobs.pop()()
    assert policy.theta > NOTHING


def test_namespaces_beyond_what_the_window_holds_are_forgotten() -> None:
    policy = AdaptivePolicy(window=100, warmup=50)
    for i in range(1_000):
        evidence = Evidence(0.9)
        policy.decide(f"n{i}", evidence)
        policy.observe(f"n{i}", evidence, same=True)
    assert len(policy.spaces()) <= 300


@pytest.mark.parametrize(
    "wrong",
    [
        {"target_false_hit": 0},
        {"target_false_hit": 0.5},
        {"confidence": 1},
        {"confidence": 0.1},
        {"verify_sample": 0},
        {"window": 10},
        {"warmup": 0},
    ],
)
def test_promises_that_cannot_be_made_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError) as raised:
        AdaptivePolicy(**wrong)  # type: ignore[arg-type]
    assert raised.value.hint


def labelled(seed: int, n: int = 400, spaces: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.random((n, len(FIELDS)))
    space = rng.integers(spaces, size=n)
    z = 3 - 6 * x[:, 0] + (space - 2) + 2 * x[:, 4]
    return x, (rng.random(n) < 1 / (1 + np.exp(-z))).astype(float), space


@given(seed=st.integers(0, 10_000), far=st.floats(-20, 0))
def test_a_fit_does_not_depend_on_where_it_starts(seed: int, far: float) -> None:
    x, wrong, space = labelled(seed)
    centre = np.zeros(len(FIELDS) + 1)

    def fitted(start: np.ndarray) -> np.ndarray:
        deviations = np.zeros((6, 2))
        # Each call stops after a few steps, as a refit does; the next goes on.
        for _ in range(5):
            start, deviations = risk_model.fit(x, wrong, space, start, deviations, centre)
        return risk_model.logits(x, space, start, deviations)

    near = fitted(np.array(risk_model.START))
    start = np.zeros(len(FIELDS) + 1)
    start[1] = far
    # A fit ends where another step would gain nothing it can see: seed 5 from -7 ends 0.094 away, and stays there.
    np.testing.assert_allclose(near, fitted(start), atol=0.1)


@given(seed=st.integers(0, 10_000))
def test_fitted_weights_keep_their_signs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, _, space = labelled(seed)
    wrong = (rng.random(len(x)) < 0.5).astype(float)
    weights, deviations = risk_model.fit(
        x, wrong, space, np.array(risk_model.START), np.zeros((6, 2)), np.zeros(len(FIELDS) + 1)
    )
    assert (weights * risk_model.SIGN >= 0).all()
    assert (weights[1] + deviations[:, 1] <= 1e-12).all()


@given(z=st.lists(st.floats(-12, 12), min_size=1, max_size=300), seed=st.integers(0, 99))
def test_bins_count_the_same_one_by_one_and_all_at_once(z: list[float], seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, 3, size=len(z))
    step, whole = BayesBound(0.01, 0.9), BayesBound(0.01, 0.9)
    bins = [step.see(value) for value in z]
    for bin, label in zip(bins, labels.tolist(), strict=True):
        if label != UNKNOWN:
            step.label(bin, label)
    assert bins == whole.rebuild(np.array(z), labels).tolist()
    assert step.threshold() == whole.threshold()
    for bin, label in zip(bins, labels.tolist(), strict=True):
        step.leave(bin, label)
    assert step.threshold() == NOTHING


@given(right=st.integers(0, 3_000), wrong=st.integers(0, 100))
def test_a_wrong_label_never_allows_more(right: int, wrong: int) -> None:
    def allowed(wrong: int) -> float:
        bound = BayesBound(0.01, 0.9)
        bin = 0
        for _ in range(right + wrong):
            bin = bound.see(-7.0)
        for i in range(right + wrong):
            bound.label(bin, int(i < wrong))
        return bound.threshold()

    assert allowed(wrong + 1) <= allowed(wrong)
    if wrong > 0.02 * (right + wrong):
        assert allowed(wrong) == NOTHING


@given(held=st.integers(1, 250), size=st.integers(1, 120), other=st.integers(1, 120))
def test_a_ring_of_another_size_keeps_the_latest(held: int, size: int, other: int) -> None:
    ring = DecisionLog(size)
    for ticket in range(held):
        slot = ticket % size
        ring.write_space(ring.spaces, 4 * slot, ticket)
        ring.labels[slot] = ticket % 3
        ring.next += 1
    again = DecisionLog.load(json.loads(json.dumps(ring.state())), other)
    kept = list(range(held))[-min(size, other, held) :]
    assert again.column("spaces").tolist() == kept
    assert again.column("labels").tolist() == [ticket % 3 for ticket in kept]


@given(wrong=st.lists(st.booleans(), max_size=200))
def test_right_audits_alone_never_raise_the_alarm(wrong: list[bool]) -> None:
    promise, space = Promise(0.01, 0.9, 0.05), NamespaceState(0)
    for w in wrong:
        space.audited(promise, int(w))
    assert space.retreat % 2 == 0
    assert (space.retreat > 0) <= (sum(wrong) >= 3)
    assert space.propensity(promise) in (0.05, 0.25)


@given(z=st.floats(-10, 10), limit=st.floats(-10, 10), wrong=st.lists(st.booleans(), max_size=50))
def test_misses_raise_doubt_only_near_the_cutoff_and_only_when_wrong(z: float, limit: float, wrong: list[bool]) -> None:
    promise, space = Promise(0.01, 0.9, 0.05), NamespaceState(0)
    for w in wrong:
        before = space.retreat
        space.missed(promise, z, limit, int(w))
        assert space.doubt >= 0
        assert w or space.retreat == before
    if z > limit + 2 or not any(wrong):
        assert (space.doubt, space.retreat) == (0, 0)
