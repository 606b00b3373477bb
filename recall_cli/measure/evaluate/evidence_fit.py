"""Learn the evidence's prior weights, and how far they carry: `python -m recall_cli.measure.evaluate.evidence_fit`.

How a set was built must not be learned. So each set has a level of its own (its share of wrong answers)
and slopes of its own along similarity and overlap (whether its traps, or its true pairs, look more
alike); what is kept is what the sets have in common. Every family of sets weighs the same, and so do
the two classes in each; signs are held (`cache.policy.risk_model.SIGNS`); a ridge pulls towards CENTRE. Each number
is reported with the set's family left out as well.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli import stats
from recall_cli.cache.answers import second_opinion
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.policy import risk_model as prior_module
from recall_cli.cache.policy.risk_model import FEATURES, FIELDS, SIGNS, Prior
from recall_cli.measure.embedder.model_eval import default_folder
from recall_cli.measure.embedder.scores import area, ladder
from recall_cli.measure.evaluate import evidence_sets
from recall_cli.measure.evaluate.evidence_sets import Rows
from recall_cli.measure.result import new_result, to_json
from recall_cli.types import Progress, Result

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

VERSION = "1"
ALL_SIGNS = {**SIGNS, **second_opinion.SIGNS}
"""With those of the second opinion's fields, whose numbers and roles have the signs of the prior's."""
CENTRE = {
    "closeness": -0.5,
    "margin": -1.5,
    "overlap": -2.0,
    "length_ratio": 0.0,
    "numbers": 2.0,
    "negation": 2.0,
    "roles": 2.5,
    "detail": 0.5,
    "names": 0.2,
}
"""What the ridge pulls to: a judgement of ours, made after looking at these sets. A hard contradiction
multiplies the odds of a wrong answer by seven to twelve; sharing all words divides them by seven."""
RIDGE = 60.0
"""Pull of CENTRE, in rows: a family has FAMILY_ROWS, so one family alone moves a weight a little and all of
them together much. Weaker pulls fit the sets at hand better and, with a family left out, that family worse."""
OWN_RIDGE = 1.0
"""Pull on a set's own slopes: hardly any."""
OWN = ("closeness", "overlap", second_opinion.MEANING)
"""The fields along which a set has its own slope."""
FAMILY_ROWS = 400.0
HELD = 1e9
"""Pull on a weight that is given: all of it."""
UNCHECKED = 0.25
"""The history of an entry without labels."""
HISTORY = 2.0
"""Not learned, there is no history in pairs: half the slope of the logit at one wrong of four, because an
entry's labels come at other similarities than the one at hand."""
BUDGETS = (0.01, 0.05)
RESAMPLES = 200
STEPS = 60

Fitted = tuple[float, ...]


def fit(
    sets: Sequence[Rows],
    *,
    ridge: float = RIDGE,
    centre: Fitted | None = None,
    own_slopes: bool = True,
    fields: Sequence[str] = FIELDS,
    given: Sequence[str] = (),
) -> tuple[float, Fitted]:
    """Return (level, weights in the order of the fields) that tell wrong from right best over the sets.

    The level is the one at which right and wrong are balanced over the sets.

    :param own_slopes: False learns how the sets were built too: right for the one kind of traffic at hand.
    :param centre: where the ridge pulls instead of CENTRE: weights that are already good, in the order of the fields.
    :param fields: what the columns of the rows stand for.
    :param given: fields whose weight stays at the centre; a set's own slope along them is learned all the same.
    """
    families = Counter(rows.family for rows in sets)
    free = [i for i, name in enumerate(fields) if name != "history"]
    x = np.concatenate([rows.x[:, free] for rows in sets])
    wrong = np.concatenate([~rows.same for rows in sets]).astype(np.float64)
    weight = np.concatenate([_balance(rows) * FAMILY_ROWS / families[rows.family] for rows in sets])
    mine = np.eye(len(sets))[np.repeat(np.arange(len(sets)), [len(rows.same) for rows in sets])]
    own = [mine * x[:, [column]] for column, i in enumerate(free) if own_slopes and fields[i] in OWN]
    full = np.concatenate([x, mine, *own], axis=1)
    n, extra = len(free), full.shape[1] - len(free)
    pulls = np.zeros(n + extra)
    pulls[:n] = [CENTRE[fields[i]] if centre is None else centre[i] for i in free]
    ridges = np.full(n + extra, OWN_RIDGE)
    ridges[:n] = [HELD if fields[i] in given else ridge for i in free]
    ridges[n : n + len(sets)] = 1e-6
    signs = np.zeros(n + extra)
    signs[:n] = [ALL_SIGNS[fields[i]] for i in free]
    found = _newton(full, wrong, weight, ridges, pulls, signs)
    weights = np.zeros(len(fields))
    weights[free] = found[:n]
    z = x @ found[:n]
    level = -float((weight @ z) / weight.sum())
    if "history" in fields:
        weights[fields.index("history")] = HISTORY
        level -= HISTORY * UNCHECKED
    return level, tuple(weights.tolist())


def _newton(full: Floats, wrong: Floats, weight: Floats, ridges: Floats, pulls: Floats, signs: Floats) -> Floats:
    """Return the minimum of the weighted, ridged logistic loss with every coefficient on its side of 0."""

    def loss(at: Floats) -> float:
        z = full @ at
        return float(weight @ (np.logaddexp(0, z) - wrong * z) + ridges @ (at - pulls) ** 2 / 2)

    at = pulls.copy()
    value = loss(at)
    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(full @ at, -30, 30)))
        gradient = full.T @ (weight * (p - wrong)) + ridges * (at - pulls)
        hessian = full.T @ (full * (weight * p * (1 - p))[:, None]) + np.diag(ridges)
        # A coefficient at 0 that is pushed over to its wrong side stays there.
        on = ~((at == 0) & (gradient * signs > 0))
        step = np.zeros_like(at)
        step[on] = np.linalg.solve(hessian[np.ix_(on, on)], gradient[on])
        size = 1.0
        while True:
            new = at - size * step
            new[new * signs < 0] = 0.0
            new_value = loss(new)
            if new_value <= value or size < 1e-4:
                break
            size /= 2
        gained, at, value = value - new_value, new, new_value
        if gained < 1e-9 * abs(value):
            break
    return at


def _balance(rows: Rows) -> Floats:
    """Return row weights that sum to 1, half of it on either class."""
    n = len(rows.same)
    right = max(1, int(rows.same.sum()))
    wrong = max(1, n - int(rows.same.sum()))
    return np.where(rows.same, 0.5 / right, 0.5 / wrong)


def risk(rows: Rows, weights: Fitted) -> Floats:
    """Return the rows' logit of being wrong, but for the level."""
    found: Floats = rows.x @ np.array(weights)
    return found


def held_out_risk(sets: Sequence[Rows], target: Rows) -> Floats:
    """Return the target's risk, each fold by weights that saw neither that fold nor its texts."""
    found = np.zeros(len(target.same))
    for fold in np.unique(target.fold):
        # All sets of a family share their texts and the numbers of their folds.
        seen = [rows.take(rows.fold != fold) if rows.family == target.family else rows for rows in sets]
        mine = target.fold == fold
        found[mine] = risk(target.take(mine), fit(seen)[1])
    return found


def auc(score: Floats, same: Bools) -> float:
    """Return the chance that a right pair scores above a wrong one; ties count half."""
    order, ends = ladder(score)
    right = same[order]
    return area(np.cumsum(right, dtype=np.float64)[ends], np.cumsum(~right, dtype=np.float64)[ends])


def hit_rate(score: Floats, same: Bools, budget: float) -> float:
    """Return the share of right pairs above the lowest cutoff that lets through at most `budget` of the wrong ones."""
    wrong = np.sort(score[~same])[::-1]
    allowed = int(np.floor(budget * len(wrong) + 1e-9))
    # The first wrong pair that may not pass sets the cutoff; what ties with it does not pass either.
    return float((score[same] > wrong[allowed]).mean()) if allowed < len(wrong) else 1.0


def measures(score: Floats, same: Bools) -> tuple[float, ...]:
    """Return AUC and the hit rate at each budget."""
    return auc(score, same), *(hit_rate(score, same, budget) for budget in BUDGETS)


def compare(
    scores: dict[str, Floats], same: Bools, *, seed: int = 0, resamples: int = RESAMPLES
) -> list[dict[str, Any]]:
    """Return one row a score with intervals, and its difference to the first score on the same resamples."""
    right, wrong = np.flatnonzero(same), np.flatnonzero(~same)
    rng = np.random.default_rng([seed, 23])
    draws: dict[str, list[tuple[float, ...]]] = {name: [] for name in scores}
    for _ in range(resamples):
        picked = np.concatenate([rng.choice(right, len(right)), rng.choice(wrong, len(wrong))])
        for name, score in scores.items():
            draws[name].append(measures(score[picked], same[picked]))
    first = np.array(draws[next(iter(scores))])
    keys = ("auc", *(f"hit_rate_at_{budget:g}" for budget in BUDGETS))
    rows = []
    for name, score in scores.items():
        drawn = np.array(draws[name])
        low, high = stats.middle(drawn, axis=0)
        below, above = stats.middle(drawn - first, axis=0)
        found: dict[str, Any] = {"score": name}
        for i, (key, value) in enumerate(zip(keys, measures(score, same), strict=True)):
            found[key] = value
            found[f"{key}_interval"] = [float(low[i]), float(high[i])]
            found[f"{key}_gain_interval"] = [float(below[i]), float(above[i])]
        rows.append(found)
    return rows


def run(
    folder: Path, *, embedder: str = "static", pairs: int = 2_500, seed: int = 0, progress: Progress | None = None
) -> tuple[Prior, Result]:
    """Learn the weights and report set by set: bare similarity, shipped, cross-fitted, family left out."""
    result = new_result(
        "prior fit",
        {"embedder": embedder, "pairs": pairs, "seed": seed, "ridge": RIDGE, "own_ridge": OWN_RIDGE, "centre": CENTRE},
    )
    model = make_embedder(embedder)
    sets = [*evidence_sets.world(model, pairs, seed), evidence_sets.fow(folder, model)]
    sets += evidence_sets.intents(folder, model, seed)
    level, weights = fit(sets)
    prior = Prior(round(level, 4), tuple(round(w, 4) + 0.0 for w in weights), VERSION)
    for done, rows in enumerate(sets):
        if progress:
            progress(done, len(sets), rows.name)
        others = [other for other in sets if other.family != rows.family]
        scores = {
            "similarity": rows.similarity,
            "weights as shipped": -risk(rows, prior.weights),
            "cross-fitted": -held_out_risk(sets, rows),
            "family left out": -risk(rows, fit(others)[1]),
        }
        head = {"set": rows.name, "same": int(rows.same.sum()), "different": int((~rows.same).sum())}
        result.rows += [head | found for found in compare(scores, rows.same, seed=seed)]
    result.summary = {"weights": prior.named(), "level": prior.level, "embedder_fingerprint": model.fingerprint}
    return prior, result


def document(prior: Prior, result: Result) -> dict[str, Any]:
    """Return the content of `cache/policy/prior-weights.json`."""
    return {
        "version": prior.version,
        "features": FEATURES,
        "level": prior.level,
        "weights": prior.named(),
        "made_by": "python -m recall_cli.measure.evaluate.evidence_fit",
        "params": result.params,
        "embedder_fingerprint": result.summary["embedder_fingerprint"],
        "sets": {row["set"]: row["same"] + row["different"] for row in result.rows},
    }


def table(result: Result) -> str:
    """Return the rows as text, one set a block."""
    lines = []
    for row in result.rows:
        if row["score"] == "similarity":
            lines.append(f"{row['set']} ({row['same']} same, {row['different']} different)")
        cells = [f"  {row['score']:<20}"]
        for key in ("auc", *(f"hit_rate_at_{budget:g}" for budget in BUDGETS)):
            low, high = row[f"{key}_interval"]
            gain = row[f"{key}_gain_interval"]
            mark = "+" if gain[0] > 0 else "-" if gain[1] < 0 else " "
            cells.append(f"{row[key]:.3f} [{low:.3f}, {high:.3f}]{mark}")
        lines.append("  ".join(cells))
    return "\n".join(lines)


def main() -> None:
    """Write the weights beside the risk model unless `--keep`, a table to standard output, all to `--out`."""
    parser = argparse.ArgumentParser(description="Learn the prior weights, and report them set by set.")
    parser.add_argument("folder", nargs="?", type=Path, help="the evaluation data")
    parser.add_argument("--keep", action="store_true", help="only report: leave the shipped weights as they are")
    parser.add_argument("--out", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    folder = arguments.folder or default_folder()
    if folder is None:
        parser.error("the evaluation data is not beside the project: name its folder")
    prior, result = run(folder)
    if not arguments.keep:
        target = Path(prior_module.__file__).parent / "prior-weights.json"
        target.write_text(json.dumps(document(prior, result), indent=2) + "\n", encoding="utf-8")
    if arguments.out:
        arguments.out.write_bytes(to_json(result))
    sys.stdout.write(table(result) + "\n" + json.dumps(result.summary["weights"], indent=1) + "\n")


if __name__ == "__main__":
    main()
