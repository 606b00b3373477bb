"""One contract, every policy."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cache.policy.adaptive import AdaptivePolicy
from recall_cli.cache.policy.static import StaticPolicy
from recall_cli.errors import UsageError
from recall_cli.types import Evidence, Policy, Verdict

SIMILARITY = st.floats(-1, 1)


def static() -> Policy:
    return StaticPolicy(0.8)


def static_by_namespace() -> Policy:
    return StaticPolicy(0.2, {"n": 0.8})


def cold() -> Policy:
    return AdaptivePolicy()


def warm() -> Policy:
    policy = AdaptivePolicy()
    for i in range(2_000):
        evidence = Evidence(i % 100 / 100)
        verdict = policy.decide("n", evidence)
        if not verdict.serve or verdict.audit:
            policy.observe("n", evidence, same=evidence.similarity > 0.7)
    assert policy.decide("n", Evidence(0.95)).serve
    return policy


MAKERS: dict[str, Callable[[], Policy]] = {
    "static": static,
    "static-by-namespace": static_by_namespace,
    "adaptive-cold": cold,
    "adaptive-warm": warm,
}


@pytest.fixture(scope="module", params=MAKERS.values(), ids=list(MAKERS))
def policy(request: pytest.FixtureRequest) -> Policy:
    made: Policy = request.param()
    return made


@pytest.fixture(params=MAKERS.values(), ids=list(MAKERS))
def fresh(request: pytest.FixtureRequest) -> Policy:
    """A policy that no other test has asked: loading a state fits it anew, and so to all that was decided since."""
    made: Policy = request.param()
    return made


@given(low=SIMILARITY, high=SIMILARITY)
def test_a_closer_candidate_is_never_served_less(policy: Policy, low: float, high: float) -> None:
    low, high = sorted((low, high))
    assert policy.decide("n", Evidence(low)).serve <= policy.decide("n", Evidence(high)).serve


def test_state_round_trips_as_json(fresh: Policy) -> None:
    other = StaticPolicy(0.1) if isinstance(fresh, StaticPolicy) else AdaptivePolicy()
    other.load(json.loads(json.dumps(fresh.state())))
    for similarity in (0.1, 0.5, 0.95):
        ours, theirs = fresh.decide("n", Evidence(similarity)), other.decide("n", Evidence(similarity))
        assert ours.serve == theirs.serve
        assert ours.cutoff == pytest.approx(theirs.cutoff, abs=1e-3)


def test_observing_is_allowed(policy: Policy) -> None:
    asked = Evidence(0.3)
    before = policy.decide("n", asked)
    policy.observe("n", asked, same=False)
    assert policy.decide("n", Evidence(0.3)).serve == before.serve


def test_more_candidates_than_one_are_wanted_only_by_who_looks_at_them(policy: Policy) -> None:
    assert policy.candidates >= 1
    if policy.candidates == 1:
        other = Evidence(0.79, margin=0.5, overlap=1.0, numbers=1.0, history=0.9)
        assert policy.decide("n", Evidence(0.79)) == policy.decide("n", other)


@pytest.mark.parametrize(
    ("tau", "similarity", "served"), [(0, 0.0, True), (1, 1.0, False), (1, 0.999, False), (0, -0.1, False)]
)
def test_the_ends_of_the_scale_are_legal(tau: float, similarity: float, served: bool) -> None:
    assert StaticPolicy(tau).decide("n", Evidence(similarity)) == Verdict(served, tau)


@pytest.mark.parametrize("tau", [1.0001, -0.1, 9, 80, float("nan"), float("inf")])
def test_a_distance_is_refused(tau: float) -> None:
    with pytest.raises(UsageError, match="similarity between 0 and 1") as raised:
        StaticPolicy(tau)
    assert "distance" in raised.value.hint
    assert raised.value.exit_code == 2


def test_a_namespace_without_a_cutoff_of_its_own_has_the_common_one() -> None:
    policy = StaticPolicy(0.8, {"n": 0.95})
    assert [policy.decide(name, Evidence(0.9)) for name in ("n", "m")] == [Verdict(False, 0.95), Verdict(True, 0.8)]
    with pytest.raises(UsageError, match="similarity between 0 and 1"):
        StaticPolicy(0.8, {"n": 1.1})
    policy.load({"policy": "static", "tau": 0.7})  # a state from before there were any
    assert policy.decide("n", Evidence(0.75)).serve
