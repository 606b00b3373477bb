"""The prior is monotone where sense demands, and what is shipped is what the fit writes."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cache.policy.risk_model import (
    FEATURES,
    FIELDS,
    NEAR,
    SIGNS,
    Prior,
    closeness,
    read,
    row,
    shipped,
    sureness,
)
from recall_cli.errors import RecallError
from recall_cli.measure.evaluate.evidence_fit import auc, compare, fit, hit_rate, risk
from recall_cli.measure.evaluate.evidence_sets import Rows, folds_by_text
from recall_cli.types import Evidence

SHARE = st.floats(0, 1)
EVIDENCE = st.builds(
    Evidence,
    similarity=st.floats(-1, 1),
    margin=SHARE,
    overlap=SHARE,
    length_ratio=SHARE,
    numbers=st.sampled_from([0.0, 0.5, 1.0]),
    negation=st.sampled_from([0.0, 1.0]),
    roles=st.sampled_from([0.0, 1.0]),
    detail=SHARE,
    names=SHARE,
    history=SHARE,
)


@given(EVIDENCE, st.floats(0, 1))
def test_more_similarity_is_never_more_risk(evidence: Evidence, more: float) -> None:
    nearer = replace(evidence, similarity=min(1.0, evidence.similarity + more))
    assert shipped().logit(nearer) <= shipped().logit(evidence) + 1e-9


@given(EVIDENCE, st.sampled_from(["numbers", "negation", "roles", "detail", "names", "history"]))
def test_a_mismatch_is_never_less_risk(evidence: Evidence, field: str) -> None:
    assert shipped().logit(replace(evidence, **{field: 1.0})) >= shipped().logit(evidence) - 1e-9


@given(EVIDENCE, st.sampled_from(["overlap", "margin", "length_ratio"]))
def test_more_in_common_is_never_more_risk(evidence: Evidence, field: str) -> None:
    assert shipped().logit(replace(evidence, **{field: 1.0})) <= shipped().logit(evidence) + 1e-9


def test_contradictions_weigh() -> None:
    clean = Evidence(0.95, overlap=0.9)
    for field in ("numbers", "negation", "roles"):
        assert shipped().logit(replace(clean, **{field: 1.0})) > shipped().logit(clean) + 1.0


def test_the_shipped_file() -> None:
    document = json.loads((files("recall_cli.cache.policy") / "prior-weights.json").read_text(encoding="utf-8"))
    assert document["features"] == FEATURES
    assert list(document["weights"]) == list(FIELDS)
    assert shipped().named() == document["weights"]
    with pytest.raises(RecallError, match="not for"):
        read(document | {"features": "evidence-0"})
    with pytest.raises(RecallError, match="wrong sign"):
        read(document | {"weights": document["weights"] | {"numbers": -1.0}})


def test_from_near_on_the_logit_is_linear_in_the_evidence() -> None:
    prior = shipped()
    found = Evidence(0.8, 0.1, 0.7, 0.9, numbers=0.5, detail=0.3, names=0.2)
    fields = [getattr(found, name) for name in FIELDS[1:]]
    plain = prior.level + prior.weights[0] * row(found)[0] + float(np.dot(prior.weights[1:], fields))
    assert prior.logit(found) == pytest.approx(plain)


def made(name: str, n: int, seed: int, slope: float) -> Rows:
    """Wrong where numbers differ, on a set whose traps look more (slope > 0) or less alike than its true pairs."""
    rng = np.random.default_rng(seed)
    same = rng.random(n) < 0.5
    similarity = np.clip(rng.normal(0.85 - slope * np.where(same, 0.05, -0.05), 0.05), 0, 0.999)
    numbers = np.where(same, 0.0, (rng.random(n) < 0.5).astype(float))
    x = np.array([row(Evidence(s, numbers=k)) for s, k in zip(similarity, numbers, strict=True)])
    return Rows(name, name, x, similarity, same, np.arange(n) % 2)


def test_the_fit_learns_what_sets_share_and_holds_the_signs() -> None:
    sets = [made("a", 400, 0, 1.0), made("b", 400, 1, -1.0)]
    weights = dict(zip(FIELDS, fit(sets)[1], strict=True))
    assert weights["numbers"] > 1.0
    assert all(weights[name] * SIGNS[name] >= 0 for name in FIELDS)
    assert weights["closeness"] < 0  # the set built the other way round does not take similarity away
    assert auc(-risk(sets[1], tuple(weights.values())), sets[1].same) > auc(sets[1].similarity, sets[1].same)


def test_measures_by_hand() -> None:
    score, same = np.array([4.0, 3.0, 2.0, 1.0]), np.array([True, False, True, False])
    assert auc(score, same) == 0.75
    assert hit_rate(score, same, 0.05) == 0.5
    assert hit_rate(score, same, 0.5) == 1.0
    tied = np.ones(4)
    assert (auc(tied, same), hit_rate(tied, same, 0.05)) == (0.5, 0.0)
    first, second = compare({"a": score, "b": score}, same, resamples=20)
    assert first["auc"] == second["auc"]
    assert second["auc_gain_interval"] == [0.0, 0.0]


def test_no_text_is_in_two_folds() -> None:
    pairs = [(f"text {i}", f"Text {i + 1}!") for i in range(0, 40, 2)] + [("text 0", "other"), ("OTHER?", "text 8")]
    fold = folds_by_text(pairs, 5)
    where: dict[str, int] = {}
    for (a, b), its in zip(pairs, fold.tolist(), strict=True):
        for text in (a, b):
            key = "".join(c for c in text.casefold() if c.isalnum())
            assert where.setdefault(key, its) == its
    assert len(set(fold.tolist())) == 5


def test_a_prior_is_a_value() -> None:
    assert Prior(0.0, (0.0,) * len(FIELDS), "x").logit(Evidence(0.5)) == 0.0


@given(EVIDENCE)
def test_a_row_is_the_evidence_with_its_checks_counted_as_far_as_they_are_sure(evidence: Evidence) -> None:
    sure = sureness(evidence.similarity)
    fields = [getattr(evidence, name) for name in FIELDS[1:]]
    checks = [1 - sure + sure * value for value in fields[3:8]]
    assert row(evidence) == pytest.approx((closeness(evidence.similarity), *fields[:3], *checks, fields[8]))


def test_the_short_way_begins_where_checks_count_in_full() -> None:
    found = Evidence(0.0, numbers=0.5, negation=1.0, detail=0.3)
    below, at = (row(replace(found, similarity=s)) for s in (np.nextafter(NEAR, 0), NEAR))
    assert below == pytest.approx(at)
