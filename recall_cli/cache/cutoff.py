"""The similarity from which a candidate is served: where the logit of P(wrong) is just the limit."""

from __future__ import annotations

import math
from math import log

from recall_cli.cache.policy.risk_model import FAR, NEAR, REACH, closeness, similarity_of, sureness

BISECTIONS = 14
"""Of the interval -1..0.7 in search of a cutoff: to the fourth decimal, which is what is printed."""


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
