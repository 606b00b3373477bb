"""What a score is worth on labelled pairs: AUC, hits at a share of false hits, and which traps get through.

A scoring is an array, one number a pair, higher meaning "more surely the same answer": bare similarity from
here, learned evidence from elsewhere. All scorings of a set see the same resamples, so that their
differences are paired. Pairs that share a text depend on each other and are resampled together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from recall_cli import stats
from recall_cli.cache.request import parse_body
from recall_cli.measure.embedder.scores import RESAMPLES, Sampled, area, ladder, resampled_counts
from recall_cli.measure.evaluate.pairs import Conversation, Pair
from recall_cli.types import Bypass, Embedder, Request

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]
    Fit = Callable[[Ints], Callable[[Ints], Floats]]
    """Learns from the pairs of these numbers; what it returns scores the pairs of others."""

FALSE_HITS = (0.005, 0.01, 0.05)
"""Shares of traps that may be served: the targets people set. Fewer than 1 / share traps decide nothing."""
POINTS = 200
"""Points kept of a curve: as many as a picture can show."""
DECIMALS = 6
"""Cosines of float32 vectors carry noise of 1e-7: a text and its words in another order must tie."""
NEVER = -math.inf
"""Score of a pair in different contexts: no cutoff serves it."""


@dataclass(frozen=True, slots=True)
class Scored:
    """How well one scoring tells should-hit pairs from traps."""

    auc: Sampled
    hit_rate: Mapping[float, Sampled]
    """Share of should-hit pairs served, by the share of traps that may be. Cutoff and rate come from the
    same pairs: a point of the curve, not a promise about other pairs."""
    cutoffs: Mapping[float, float]
    """The score from which on pairs are served; infinity when none can be."""


# Contexts


def request_of(side: str | Conversation) -> Request | Bypass:
    """Return the request that a proxy would see: a text is a conversation of one turn."""
    messages = [{"role": "user", "content": side}] if isinstance(side, str) else list(side)
    return parse_body("openai", {"model": "pairs", "temperature": 0, "messages": messages})


def same_context(a: str | Conversation, b: str | Conversation) -> bool:
    """Return whether the earlier turns are the same context, so that a semantic match is possible at all.

    By default earlier turns are part of the partition: equal, or never matched.
    """
    one, two = request_of(a), request_of(b)
    return isinstance(one, Request) and isinstance(two, Request) and one.partition == two.partition


def last_text(side: str | Conversation) -> str:
    """Return what is embedded of one side: the last user turn, "" when a proxy would pass it by."""
    request = request_of(side)
    return request.text if isinstance(request, Request) else ""


def similarities(pairs: Sequence[Pair], embedder: Embedder) -> Floats:
    """Return the cosine of each pair, shape (n,); NEVER where the contexts differ."""
    if not pairs:
        return np.empty(0)
    a = embedder.embed_many([last_text(pair.a) for pair in pairs])
    b = embedder.embed_many([last_text(pair.b) for pair in pairs])
    scores = np.einsum("ij,ij->i", a, b, dtype=np.float64).round(DECIMALS)
    return np.where([same_context(pair.a, pair.b) for pair in pairs], scores, NEVER)


# Dependence between pairs


def groups(pairs: Sequence[Pair]) -> Ints:
    """Return a number for each pair, shape (n,), equal when pairs share a text, directly or through others."""
    parent = list(range(len(pairs)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first: dict[bytes, int] = {}
    for number, pair in enumerate(pairs):
        for side in (pair.a, pair.b):
            key = side.casefold().encode("utf-8", "surrogatepass") if isinstance(side, str) else _key(side)
            parent[root(number)] = root(first.setdefault(key, number))
    return np.unique([root(i) for i in range(len(pairs))], return_inverse=True)[1].astype(np.int64)


def _key(side: Conversation) -> bytes:
    return repr(side).encode("utf-8", "surrogatepass") if not side else orjson.dumps(list(side), default=str)


def cross_fitted(pairs: Sequence[Pair], fit: Fit, *, folds: int = 5, seed: int = 0) -> Floats:
    """Return scores, shape (n,), each from a learner that saw no pair of the same group.

    Scores of different folds come from different learners: fit something whose scores compare, such as
    a probability. Raises ValueError when there are fewer groups than folds.
    """
    group = groups(pairs)
    many = int(group.max()) + 1 if len(group) else 0
    if many < folds:
        raise ValueError(f"{many} groups of pairs do not make {folds} folds")
    fold = (np.random.default_rng([seed, 5]).permutation(many) % folds)[group]
    scores = np.empty(len(pairs))
    for number in range(folds):
        inside = np.flatnonzero(fold == number)
        scores[inside] = fit(np.flatnonzero(fold != number))(inside)
    return scores


# Scores


def score(
    pairs: Sequence[Pair],
    scores: Floats,
    *,
    false_hits: Sequence[float] = FALSE_HITS,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Scored:
    """Return AUC (ties count half) and hit rates with their resamples; NaN where one label is missing.

    Raises ValueError when the scores do not fit the pairs or one is NaN.
    """
    if len(scores) != len(pairs) or np.isnan(scores).any():
        raise ValueError(f"{len(scores)} scores, NaN among them or not, for {len(pairs)} pairs")
    order, ends = ladder(scores) if len(pairs) else (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    same = np.array([pair.same for pair in pairs], dtype=np.bool_)[order]
    group = groups(pairs)[order] if len(pairs) else np.empty(0, dtype=np.int64)
    able = np.isfinite(scores[order[ends]])

    def all_of(weights: Floats) -> list[float]:
        return _curve(weights, same, ends, able, false_hits)

    exact = all_of(np.ones(len(pairs)))
    many = int(group.max()) + 1 if len(pairs) else 0
    draws = [all_of(counts[group]) for counts in resampled_counts(many, seed, resamples)] if many else []
    columns = np.array(draws, dtype=np.float64).reshape(-1, 1 + len(false_hits))
    sampled = [Sampled(value, columns[:, i]) for i, value in enumerate(exact)]
    cutoffs = {share: _cutoff(scores[order], same, ends, able, share) for share in false_hits}
    return Scored(sampled[0], dict(zip(false_hits, sampled[1:], strict=True)), cutoffs)


def _curve(weights: Floats, same: Bools, ends: Ints, able: Bools, shares: Sequence[float]) -> list[float]:
    """Return AUC and the hit rate at each share of traps, of pairs in falling order of score."""
    hit, trap = np.cumsum(weights * same)[ends], np.cumsum(weights * ~same)[ends]
    if len(ends) == 0 or hit[-1] == 0 or trap[-1] == 0:
        return [math.nan] * (1 + len(shares))
    served = [hit[able & (trap <= share * trap[-1])] for share in shares]
    return [area(hit, trap), *(float(hits[-1] / hit[-1]) if len(hits) else 0.0 for hits in served)]


def _cutoff(ranked: Floats, same: Bools, ends: Ints, able: Bools, share: float) -> float:
    trap = np.cumsum(~same)[ends]
    if len(ends) == 0 or trap[-1] == 0:
        return math.inf
    within = np.flatnonzero(able & (trap <= share * trap[-1]))
    return float(ranked[ends[within[-1]]]) if len(within) else math.inf


def summary(
    pairs: Sequence[Pair],
    scorings: Mapping[str, Floats],
    *,
    false_hits: Sequence[float] = FALSE_HITS,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """Return the part of a result's summary that compares scorings; the first one is the base of differences.

    `auc`, `hit_rate_at_false_hit` and their `_interval`s are by scoring; rates also by the share of traps,
    spelled as in FALSE_HITS. A value is None where a label is missing. A difference whose interval lies
    below 0 says that the scoring is worse than the base on these pairs.
    """
    found = {
        name: score(pairs, values, false_hits=false_hits, seed=seed, resamples=resamples)
        for name, values in scorings.items()
    }
    base = next(iter(found.values()), None)
    out: dict[str, Any] = {
        "pairs": len(pairs),
        "should_hit": sum(pair.same for pair in pairs),
        "traps": sum(not pair.same for pair in pairs),
        "other_context": sum(not same_context(pair.a, pair.b) for pair in pairs),
        "auc": {name: _known(s.auc.value) for name, s in found.items()},
        "auc_interval": {name: s.auc.interval() for name, s in found.items()},
        "hit_rate_at_false_hit": _by_share(found, lambda rate: _known(rate.value)),
        "hit_rate_at_false_hit_interval": _by_share(found, lambda rate: rate.interval()),
        "cutoff_at_false_hit": {n: {_spell(k): _known(v) for k, v in s.cutoffs.items()} for n, s in found.items()},
    }
    if base is not None and len(found) > 1:
        others = {name: s for name, s in found.items() if s is not base}
        out["auc_difference_interval"] = {name: s.auc.minus(base.auc).interval() for name, s in others.items()}
        out["hit_rate_difference_interval"] = {
            name: {_spell(share): rate.minus(base.hit_rate[share]).interval() for share, rate in s.hit_rate.items()}
            for name, s in others.items()
        }
    return out


def curve(pairs: Sequence[Pair], scorings: Mapping[str, Floats]) -> list[dict[str, Any]]:
    """Return what each scoring serves at every cutoff: shares of should-hit pairs and of traps, fewest served first.

    Empty where one label is missing. At most about POINTS points a scoring.
    """
    points: list[dict[str, Any]] = []
    same = np.array([pair.same for pair in pairs], dtype=np.bool_)
    if not len(pairs) or same.all() or not same.any():
        return points
    for name, scores in scorings.items():
        order, ends = ladder(scores)
        ends = ends[np.isfinite(scores[order[ends]])]
        hit, trap = np.cumsum(same[order])[ends], np.cumsum(~same[order])[ends]
        step = max(1, len(ends) // POINTS)
        shown = np.unique(np.append(np.arange(0, len(ends), step), len(ends) - 1)) if len(ends) else ends
        points += [
            {
                "scoring": name,
                "cutoff": float(scores[order[ends[i]]]),
                "hit_rate": float(hit[i] / same.sum()),
                "hits": int(hit[i]),
                "false_hit_share": float(trap[i] / (~same).sum()),
                "false_hits": int(trap[i]),
            }
            for i in shown.tolist()
        ]
    return points


def _by_share(found: Mapping[str, Scored], value: Callable[[Sampled], Any]) -> dict[str, dict[str, Any]]:
    return {name: {_spell(share): value(rate) for share, rate in s.hit_rate.items()} for name, s in found.items()}


def _spell(share: float) -> str:
    return f"{share:g}"


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def trap_report(
    pairs: Sequence[Pair], scores: Floats, cutoff: float, *, scoring: str = "similarity"
) -> list[dict[str, Any]]:
    """Return how many pairs of each category, and of each style, are served at a cutoff; traps first.

    `served` of `n`, the rate and its Wilson interval: for traps a rate of false hits, else of hits.
    A set without categories gives one row a label.
    """
    counts: dict[tuple[bool, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for pair, value in zip(pairs, scores, strict=True):
        # "By" sorts a table's rows: the whole, then categories, then styles.
        for key in (("all", "all"), ("category", pair.category), ("style", pair.style)):
            if key[1]:
                count = counts[(pair.same, key[0], key[1])]
                count[0] += 1
                count[1] += bool(value >= cutoff)
    return [
        {
            "scoring": scoring,
            "cutoff": _known(cutoff),
            "same": same,
            "by": by,
            "name": name,
            "n": n,
            "served": served,
            "rate": served / n,
            "rate_interval": list(stats.wilson(served, n)),
        }
        for (same, by, name), (n, served) in sorted(counts.items())
    ]
