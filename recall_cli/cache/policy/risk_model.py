"""The risk model: how likely is a candidate's answer wrong? Logistic, with partial pooling over namespaces.

One set of weights is shared; each namespace deviates from it in level and in slope, as far as its own
labels carry. A namespace without labels is judged by the shared weights alone.

They start from prior weights, learned on several sets of pairs. Those say how much each piece of evidence counts,
not how often a cache is wrong: the level depends on the traffic, so a policy serves nothing on their word alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.errors import RecallError
from recall_cli.types import Evidence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

FEATURES = "evidence-1"
"""Names the meaning of the evidence fields: other weights or labels than those made with it are void."""

REACH = 1.02
"""Closeness is -ln(REACH - similarity): the last hundredths below 1 separate the most, and 1 stays finite."""

FAR, NEAR = 0.3, 0.7
"""Similarities between which the checks come to count: see `row`."""

FIELDS = (
    "closeness",
    "margin",
    "overlap",
    "length_ratio",
    "numbers",
    "negation",
    "roles",
    "detail",
    "names",
    "history",
)
"""What the weights stand for, in order: closeness is of the similarity, the rest are fields of `Evidence`."""

CHECKS = slice(FIELDS.index("numbers"), FIELDS.index("names") + 1)
"""The fields that count only between texts that are near."""

SIGNS = {
    "closeness": -1,
    "margin": -1,
    "overlap": -1,
    "length_ratio": -1,
    "numbers": 1,
    "negation": 1,
    "roles": 1,
    "detail": 1,
    "names": 1,
    "history": 1,
}
"""More alike is never more likely wrong, a mismatch never less: no set may teach otherwise."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Logit of P(wrong) = level + the sum of weights times evidence; linear in the fields from NEAR on."""

    level: float
    weights: tuple[float, ...]
    """In the order of FIELDS."""
    version: str

    def logit(self, evidence: Evidence) -> float:
        """Return the logit of the probability that this candidate's answer is wrong."""
        return self.level + sum([w * x for w, x in zip(self.weights, row(evidence), strict=True)])

    def named(self) -> dict[str, float]:
        """Return the weights by field."""
        return dict(zip(FIELDS, self.weights, strict=True))


def closeness(similarity: float) -> float:
    """Return the similarity on the scale on which P(wrong) is about a straight logit."""
    gap = REACH - similarity
    return -math.log(gap if gap > 0.02 else 0.02)


def sureness(similarity: float) -> float:
    """Return how far the checks count as they are, 0..1; for the rest they count as failed (see `row`)."""
    sure = (similarity - FAR) / (NEAR - FAR)
    return 0.0 if sure < 0.0 else 1.0 if sure > 1.0 else sure


def row(evidence: Evidence) -> tuple[float, ...]:
    """Return the evidence as numbers in the order of FIELDS.

    Between texts that are far apart anyway, a number or a negation in one of them says nothing: below
    FAR every check counts as failed, from NEAR on it counts as it is. So no pair is held to be safer for
    having less to compare, and more similarity never raises the risk.
    """
    similarity = evidence.similarity
    if similarity >= NEAR:
        # As below, without the arithmetic: this stands in every decision, and most candidates are near.
        return (
            closeness(similarity),
            evidence.margin,
            evidence.overlap,
            evidence.length_ratio,
            evidence.numbers,
            evidence.negation,
            evidence.roles,
            evidence.detail,
            evidence.names,
            evidence.history,
        )
    sure = sureness(similarity)
    unsure = 1.0 - sure
    return (
        closeness(similarity),
        evidence.margin,
        evidence.overlap,
        evidence.length_ratio,
        unsure + sure * evidence.numbers,
        unsure + sure * evidence.negation,
        unsure + sure * evidence.roles,
        unsure + sure * evidence.detail,
        unsure + sure * evidence.names,
        evidence.history,
    )


@cache
def shipped() -> Prior:
    """Return the weights that come with the package."""
    import json

    return read(json.loads((files("recall_cli.cache.policy") / "prior-weights.json").read_text(encoding="utf-8")))


def read(document: Mapping[str, Any]) -> Prior:
    """Return the weights in a decoded file. Raises RecallError when it was made for other evidence or breaks a sign."""
    if document.get("features") != FEATURES:
        raise RecallError(
            f"these weights are for {document.get('features')!r}, not for {FEATURES!r}",
            hint="learn them again: python -m recall_cli.measure.evaluate.evidence_fit",
        )
    weights = {name: float(document["weights"][name]) for name in FIELDS}
    wrong = [name for name, weight in weights.items() if weight * SIGNS[name] < 0 or not math.isfinite(weight)]
    if wrong:
        raise RecallError(f"the weight of {wrong[0]} has the wrong sign", hint="learn the weights again")
    return Prior(float(document["level"]), tuple(weights.values()), str(document["version"]))


SHARED_PENALTY = 0.1
SPACE_PENALTY = 0.3
LEVEL_PENALTY = 1e-3
"""Ridge of the shared weights, of a namespace's deviations, and of the shared level: from simulations, held since."""
MAX_LOGIT = 30.0
"""Beyond it a probability is 0 or 1 to double precision's eye, and exp stays far from overflow."""
ITERATIONS = 12
ENOUGH = 1e-3
"""Newton stops when no weight moved by more: a logit changes by less than a bin is wide."""
HALVINGS = 10
"""Of a Newton step that makes the loss larger, before the present weights are taken."""

BISECTIONS = 14
"""Of the interval -1..0.7 in search of a cutoff: to the fourth decimal, which is what is printed."""
START = (1.0, -2.0, *[0.0] * (len(FIELDS) - 1))
"""Level and weights where learning starts without a prior: closer is better, the rest is open. No claim."""

SIGN = np.array([0, *(SIGNS[field] for field in FIELDS)])
"""Without signs a fit to few labels may serve the farther of two candidates. 0: free."""


def probability(z: float) -> float:
    """Return the probability of a logit."""
    return 1 / (1 + math.exp(-z)) if z > -MAX_LOGIT else 0.0


def similarity_of(closeness: float) -> float:
    """Return the similarity of a closeness: the inverse, without the clip at 1."""
    return REACH - math.exp(-closeness) if closeness > -MAX_LOGIT else -math.inf


def logits(x: Floats, spaces: Ints, weights: Floats, deviations: Floats) -> Floats:
    """Return the logit of P(wrong) of each row.

    :param x: shape (n, 10), columns as in FIELDS.
    :param spaces: the row's namespace, an index into `deviations`.
    :param deviations: shape (namespaces, 2): level and slope along closeness.
    """
    own = deviations[spaces]
    z = weights[0] + x @ weights[1:] + own[:, 0] + own[:, 1] * x[:, 0]
    clipped: Floats = np.clip(z, -MAX_LOGIT, MAX_LOGIT)
    return clipped


def fit(
    x: Floats, wrong: Floats, spaces: Ints, weights: Floats, deviations: Floats, centre: Floats
) -> tuple[Floats, Floats]:
    """Return (weights, deviations) that fit the labels best, from where they are now.

    Damped, projected Newton. Each namespace touches only its own two numbers, so they are eliminated
    one by one (Schur complement): the time grows with the number of namespaces, not with its cube.

    :param centre: where the ridge pulls the shared weights: the prior's, or zeros.
    """
    present, rows = np.unique(spaces, return_inverse=True)
    order = np.argsort(rows, kind="stable")
    x, wrong, rows = x[order], wrong[order], rows[order]
    starts = np.searchsorted(rows, np.arange(len(present)))
    full = np.column_stack([np.ones(len(x)), x])
    own = full[:, :2]
    ridge = np.full(len(weights), SHARED_PENALTY)
    ridge[0] = LEVEL_PENALTY
    w, dev = weights.copy(), deviations[present].copy()
    loss = _loss(full, wrong, rows, w, dev, ridge, centre)
    for _ in range(ITERATIONS):
        p = 1 / (1 + np.exp(-_z(full, rows, w, dev)))
        error, curve = p - wrong, p * (1 - p)
        gradient = full.T @ error + ridge * (w - centre)
        own_gradient = np.add.reduceat(own * error[:, None], starts) + SPACE_PENALTY * dev
        bent = full * curve[:, None]
        hessian = full.T @ bent + np.diag(ridge)
        cross = np.stack([np.add.reduceat(bent, starts), np.add.reduceat(bent * own[:, 1:], starts)], axis=2)
        inverse = np.linalg.inv(cross[:, :2, :] + SPACE_PENALTY * np.eye(2))
        through = cross @ inverse
        schur = hessian - np.einsum("nik,njk->ij", through, cross)
        push = gradient - np.einsum("nik,nk->i", through, own_gradient)
        step = _step(schur, push, w)
        own_step = np.einsum("nij,nj->ni", inverse, own_gradient - np.einsum("nik,i->nk", cross, step))
        size = 1.0
        for _ in range(HALVINGS):
            new_w, new_dev = _signed(w - size * step), dev - size * own_step
            new_loss = _loss(full, wrong, rows, new_w, new_dev, ridge, centre)
            if new_loss <= loss:
                break
            size /= 2
        else:
            break
        moved = max(float(np.abs(new_w - w).max()), float(np.abs(new_dev - dev).max()))
        w, dev, loss = new_w, new_dev, new_loss
        if moved < ENOUGH:
            break
    # Namespaces without a label in the window fall back to the shared weights.
    deviations = np.zeros_like(deviations)
    deviations[present, 0] = dev[:, 0]
    # In no namespace may the closer of two candidates be the more doubtful one.
    deviations[present, 1] = np.minimum(dev[:, 1], -w[1])
    return w, deviations


def _step(hessian: Floats, gradient: Floats, w: Floats) -> Floats:
    """Return the Newton step of the shared weights that keeps their signs.

    Weights that the step would take across zero go to zero exactly, and the others are solved anew with
    that move given: cutting the step off afterwards would leave the others where nothing holds them.
    """
    step, fixed = np.zeros_like(w), np.zeros(len(w), dtype=bool)
    while True:
        free = ~fixed
        step[fixed] = w[fixed]
        step[free] = np.linalg.solve(
            hessian[np.ix_(free, free)], gradient[free] - hessian[np.ix_(free, fixed)] @ step[fixed]
        )
        crossing = free & ((w - step) * SIGN < -1e-12)
        if not crossing.any():
            return step
        fixed |= crossing


def _z(full: Floats, rows: Ints, w: Floats, dev: Floats) -> Floats:
    z: Floats = full @ w + dev[rows, 0] + dev[rows, 1] * full[:, 1]
    return np.clip(z, -MAX_LOGIT, MAX_LOGIT)


def _loss(full: Floats, wrong: Floats, rows: Ints, w: Floats, dev: Floats, ridge: Floats, centre: Floats) -> float:
    z = _z(full, rows, w, dev)
    fit = np.logaddexp(0, z).sum() - (wrong * z).sum()
    return float(fit + (ridge * (w - centre) ** 2).sum() / 2 + SPACE_PENALTY * (dev**2).sum() / 2)


def _signed(w: Floats) -> Floats:
    """Return the weights with what rounding left on the wrong side of zero taken away."""
    return np.where(w * SIGN < 0, 0.0, w)


def checks(similarity: float, failed: float, all_failed: float) -> float:
    """Return what the checks add to the logit: of texts that are far apart all are held to fail.

    :param failed: weight of the checks that failed, `all_failed` the weight of all.
    """
    sure = sureness(similarity)
    return (1.0 - sure) * all_failed + sure * failed


def cutoff(limit: float, rest: float, slope: float, failed: float, all_failed: float) -> float:
    """Return the similarity at which the logit is the limit; above 1 nothing reaches it, -1 everything does."""
    if slope >= 0:
        return -1.0 if rest + checks(-1.0, failed, all_failed) <= limit else similarity_of(math.inf)
    near = similarity_of((limit - rest - failed) / slope)
    if near >= NEAR:
        return near
    # Further down the checks count less for certain: no closed form, but the logit only falls.
    low, high = -1.0, NEAR
    if rest + slope * closeness(low) + checks(low, failed, all_failed) <= limit:
        return low
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        # closeness and _checks, spelt out: as calls they would take as long as the rest of a decision.
        sure = (middle - FAR) / (NEAR - FAR)
        if sure < 0.0:
            sure = 0.0
        if rest - slope * log(REACH - middle) + ((1.0 - sure) * all_failed + sure * failed) <= limit:
            high = middle
        else:
            low = middle
    return high
