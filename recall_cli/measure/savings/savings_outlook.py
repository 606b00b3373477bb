"""From a log to a month: what the cache would go on to save, once warm, and why that may be too much to say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.measure.savings.rows import PICO
from recall_cli.measure.savings.savings_columns import Traffic, total
from recall_cli.stats import block_bootstrap

if TYPE_CHECKING:
    from recall_cli.measure.savings.replay import Bools

DAY_S = 86_400.0
MONTH_DAYS = 365.25 / 12
MIN_SPAN_S = DAY_S
"""A log of under a day has not seen the night: no month follows from it unless it is asked for."""
WARM_UP = 0.5
"""Share of the span taken as warm-up. In a public trace of an hour the hit rate of the first sixth was 28.9 % and that
of the later ones 36 to 40 %: half leaves room for logs that warm up slower."""
BLOCKS = 20
"""Blocks of equal time in the window, resampled whole; days when there are as many."""
LEVEL = 0.90
"""Of intervals of dollars, beside which the sum itself is an extrapolation."""


def monthly(traffic: Traffic, *, forced: bool, seed: int) -> dict[str, Any]:
    """Return dollars saved a month after the warm-up, or why there is no such figure.

    "Same corpus": the prompts stay those of the log, whose answers the cache by then has: the rate of the window after
    the warm-up. "With growth": prompts go on changing as they did over the whole log, cold start included.
    """
    known = ~np.isnan(traffic.start)
    if not known.all() or not len(known):
        return _none("the log has no times" if not known.any() else "some requests have no time")
    first, last = float(traffic.start.min()), float(traffic.start.max())
    span = last - first
    if span <= 0:
        return _none("all requests have one time")
    if span < MIN_SPAN_S and not forced:
        return _none(f"the log spans {span / 3600:.1f} hours, under a day; --monthly asks for one all the same")
    whole = np.ones(len(known), np.bool_)
    warm = traffic.start >= first + WARM_UP * span
    return {
        "reason": "",
        "forced": span < MIN_SPAN_S,
        "level": LEVEL,
        "window": {"start": first + WARM_UP * span, "span_s": (1 - WARM_UP) * span, "requests": int(warm.sum())},
        "same_corpus": _per_month(traffic, warm, (1 - WARM_UP) * span, seed),
        "with_growth": _per_month(traffic, whole, span, seed),
    }


def _per_month(traffic: Traffic, rows: Bools, seconds: float, seed: int) -> dict[str, Any]:
    scale = MONTH_DAYS * DAY_S / seconds
    start, saved = traffic.start[rows], traffic.saved[rows].astype(np.float64) / float(PICO)
    days = int(seconds // DAY_S)
    count = days if days >= BLOCKS else BLOCKS
    block = np.minimum((start - (start.max() - seconds)) / seconds * count, count - 1).astype(np.int64)
    sums = np.bincount(np.maximum(block, 0), weights=saved, minlength=count).tolist()
    low, high = block_bootstrap(sums, seed=seed, level=LEVEL)
    return {
        "spend_usd": float(total(traffic.spent[rows])) * scale,
        "saved_usd": float(total(traffic.saved[rows])) * scale,
        "saved_usd_interval": [low * scale, high * scale],
    }


def _none(reason: str) -> dict[str, Any]:
    return {"reason": reason, "forced": False, "same_corpus": None, "with_growth": None}
