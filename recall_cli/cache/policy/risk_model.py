"""How likely is a candidate's answer wrong? A logistic model with partial pooling over namespaces.

One set of weights is shared; each namespace deviates from it in level and in slope, as far as its own
labels carry. A namespace without labels is judged by the shared weights alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.cache.policy.prior import FIELDS, REACH, SIGNS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

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
