"""One contract, every policy."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.core.policy import StaticPolicy
from recall_cli.errors import UsageError
from recall_cli.types import Evidence, Policy, Verdict

SIMILARITY = st.floats(-1, 1)


@pytest.fixture(scope="module", params=["static"])
def policy(request: pytest.FixtureRequest) -> Policy:
    return StaticPolicy(0.8)


@given(low=SIMILARITY, high=SIMILARITY)
def test_a_closer_candidate_is_never_served_less(policy: Policy, low: float, high: float) -> None:
    low, high = sorted((low, high))
    assert policy.decide("n", Evidence(low)).serve <= policy.decide("n", Evidence(high)).serve


def test_state_round_trips_as_json(policy: Policy) -> None:
    other = StaticPolicy(0.1)
    other.load(json.loads(json.dumps(policy.state())))
    assert other.decide("n", Evidence(0.5)) == policy.decide("n", Evidence(0.5))


def test_observing_is_allowed(policy: Policy) -> None:
    before = policy.decide("n", Evidence(0.79))
    policy.observe("n", Evidence(0.79), same=True)
    assert policy.decide("n", Evidence(0.79)) == before


@pytest.mark.parametrize(
    ("tau", "similarity", "served"), [(0, 0.0, True), (1, 1.0, True), (1, 0.999, False), (0, -0.1, False)]
)
def test_the_ends_of_the_scale_are_legal(tau: float, similarity: float, served: bool) -> None:
    assert StaticPolicy(tau).decide("n", Evidence(similarity)) == Verdict(served, tau)


@pytest.mark.parametrize("tau", [1.0001, -0.1, 9, 80, float("nan"), float("inf")])
def test_a_distance_is_refused(tau: float) -> None:
    with pytest.raises(UsageError, match="similarity between 0 and 1") as raised:
        StaticPolicy(tau)
    assert "distance" in raised.value.hint
    assert raised.value.exit_code == 2
