"""Pairs that look alike, each against an empty cache, by the published protocol of fow-cache's harness.

Store one side, ask the other; what should hit and what should not are two rates, and the best cutoff is the one that
serves most while at most a given share of the traps is served; a pair whose label is arguable counts as a trap. The
harness itself comes in one package with all of its pairs, half of which are set aside for acceptance, so this is our
own writing of its protocol.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.peers.bench import Bench, Row
from benchmarks.peers.client import PeerError
from benchmarks.peers.embedders import loaded
from benchmarks.peers.roster import Arm
from benchmarks.peers.streams import BUDGETS, Asked
from benchmarks.peers.traffic import MINILM, SEMANTIC, STATIC, arm
from benchmarks.peers.venvs import VenvError
from recall_cli.cache.answers.second_opinion import load_opinion
from recall_cli.cache.policy.static import DEFAULT_TAU
from recall_cli.measure.evaluate.pairs import Conversation, Pair, load_pairs
from recall_cli.measure.evaluate.pairs_eval import DECIMALS, score, trap_report
from recall_cli.measure.evaluate.pairs_report import scorings
from recall_cli.measure.synthetic import text as textworld
from recall_cli.measure.timing import one_thread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]

WORKLOAD = "traps"
PAIRS, TALKS, WORLD_TALKS = "fow-cache-dev", "fow-cache-dev conversations", "text-world conversations"
OURS, OURS_SEED = 300, 6_000
"""Conversations of the text world, in wordings that our embedder was not fitted to."""
SECOND = "second opinion"
"""A scoring, by its name there."""
WINDOW = 4
"""Earlier turns that sulci's documents tell to blend in, where it is to follow a conversation."""


def sets(data: Path) -> dict[str, tuple[Pair, ...]]:
    """Return the pairs by set: single questions, and conversations whose traps end in the same words."""
    folder = data / "fow-cache-dev"
    talks = [
        pair
        for part in ("conv-parts", "conv-long")
        for file in sorted((folder / part).glob("*.jsonl"))
        for pair in strict(file)
    ]
    ours = textworld.pairs(OURS, OURS_SEED, "held-out", conversations=1.0)
    return {PAIRS: strict(folder / "pairs.jsonl"), TALKS: tuple(talks), WORLD_TALKS: tuple(ours)}


def strict(file: Path) -> tuple[Pair, ...]:
    """Return a file's pairs; where it says itself that the label depends on the business, serving is wrong."""
    return tuple(replace(pair, same=pair.same and not pair.ambiguous) for pair in load_pairs(str(file)).pairs)


def driven(peer: Asked, pairs: Sequence[Pair], work: Path, settings: Mapping[str, Any]) -> tuple[Bools, Floats]:
    """Return (whether a peer's package served the pair, its score), each of shape (n,); no score is -inf."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        found = peer.ask(
            "pairs",
            opening={**settings, "folder": folder},
            stored=[turns(pair.a) for pair in pairs],
            asked=[turns(pair.b) for pair in pairs],
        )
    served = np.array([answer is not None for answer in found["answers"]])
    return served, np.array([-np.inf if score is None else score for score in found["scores"]]).round(DECIMALS)


def turns(side: str | Conversation) -> list[str]:
    """Return the turns of one side as an adapter takes them: user and assistant in turn."""
    return [side] if isinstance(side, str) else [str(turn["content"]) for turn in side]


def best_cutoff(pairs: Sequence[Pair], scores: Floats, budget: float) -> float | None:
    """Return the cutoff that serves most with at most this share of the traps among it, None when none does."""
    found = score(pairs, scores, false_hits=(budget,), resamples=1).cutoffs[budget]
    return found if np.isfinite(found) else None


def rates(pairs: Sequence[Pair], served: Bools) -> dict[str, Any]:
    """Return the part of a row that is counted: hits are of what should hit, wrong ones of the traps.

    :param served: whether the cache served the pair, shape (n,).
    """
    report = trap_report(pairs, served.astype(np.float64), 0.5)
    total = {entry["same"]: entry for entry in report if entry["by"] == "all"}
    right, trap = total[True], total[False]
    return {
        "should_hit": right["n"],
        "hits": right["served"],
        "hit_rate": right["rate"],
        "hit_rate_interval": right["rate_interval"],
        "traps": trap["n"],
        "traps_served": trap["served"],
        "trap_rate": trap["rate"],
        "trap_rate_interval": trap["rate_interval"],
        "categories": {
            entry["name"]: {key: entry[key] for key in ("same", "n", "served", "rate", "rate_interval")}
            for entry in report
            if entry["by"] == "category"
        },
    }


def row(name: str, arm: str, pairs: Sequence[Pair], served: Bools, **more: Any) -> Row:
    """Return one row."""
    told = {"workload": WORKLOAD, "arm": arm, "ran": True, "set": name, "budget": None}
    return told | more | rates(pairs, served)


def own_rows(name: str, pairs: Sequence[Pair], *, opinion: bool) -> Iterator[Row]:
    """Yield recall's rows by its scorings of pairs, as `recall eval --pairs` makes them, and vCache's."""
    asked = load_opinion() if opinion else None
    scores = scorings(pairs, loaded(STATIC), opinion=asked)
    told = {"embedder": STATIC, "how": "replay"}
    if asked is not None:
        agreed = (scores["similarity"] >= DEFAULT_TAU) & (scores[SECOND] >= -asked.weights.limit)
        yield row(name, "recall, second opinion", pairs, agreed, setting="default", threshold=DEFAULT_TAU, **told)
    for scoring in ("similarity", "evidence", SECOND)[: 3 if opinion else 2]:
        yield from best_rows(name, f"recall, {scoring}", pairs, scores[scoring], **told)
    # Before it has compared four answers with an entry's own, it asks the model: it serves no pair at all.
    yield row(
        name, "vcache", pairs, np.zeros(len(pairs), np.bool_), setting="default", note="serves nothing so early", **told
    )


def best_rows(name: str, arm: str, pairs: Sequence[Pair], scores: Floats, **told: Any) -> Iterator[Row]:
    """Yield a row for each budget: what the best cutoff in hindsight serves."""
    for budget in BUDGETS:
        cutoff = best_cutoff(pairs, scores, budget)
        served = scores >= (np.inf if cutoff is None else cutoff)
        yield row(name, arm, pairs, served, setting="hindsight", budget=budget, threshold=cutoff, **told)


@dataclass(frozen=True, slots=True)
class Driven:
    """An arm whose package is run."""

    arm: Arm
    loosest: float | None = None
    """The threshold that serves anything, so that its scores can be cut anywhere; None: its default alone, where its
    best cutoff is what any cutoff over these vectors is."""
    talks_only: bool = False
    """Whether it differs from another arm in conversations alone."""


DRIVEN = (
    Driven(arm("recall")),
    Driven(arm("recall", "recall adaptive", policy="adaptive")),
    Driven(arm("sulci"), loosest=0.0),
    Driven(arm("sulci", embedder=MINILM), loosest=0.0),
    Driven(arm("sulci", "sulci, with context", context_window=WINDOW), loosest=0.0, talks_only=True),
    Driven(arm("sulci", "sulci, with context", embedder=MINILM, context_window=WINDOW), loosest=0.0, talks_only=True),
    Driven(arm("redisvl", needs=("redis",))),
    Driven(arm("gptcache")),
    Driven(SEMANTIC),
)


def driven_rows(
    bench: Bench, one: Driven, all_pairs: Mapping[str, Sequence[Pair]], vectors: Mapping[str, str]
) -> Iterator[Row]:
    """Yield the rows of one package over all sets.

    :param vectors: files of vectors by embedder, where it is too slow to be asked again for every setting.
    """
    told = {"embedder": one.arm.settings["embedder"], "how": "package"}
    opening = one.arm.opening("") | {"vectors": vectors.get(told["embedder"])}
    try:
        with bench.opened(one.arm) as (peer, opened):
            for name, pairs in all_pairs.items():
                if one.talks_only and name == PAIRS:
                    continue
                served, _ = driven(peer, pairs, bench.stores, opening)
                yield row(name, one.arm.name, pairs, served, setting="default", threshold=opened["threshold"],
                          scale=opened["scale"], **told)  # fmt: skip
                if one.loosest is not None:
                    _, scores = driven(peer, pairs, bench.stores, opening | {"threshold": one.loosest})
                    yield from best_rows(name, one.arm.name, pairs, scores, **told)
    except (PeerError, VenvError) as error:
        yield bench.not_run(WORKLOAD, one.arm, str(error))


def run(bench: Bench) -> list[Row]:
    """Return a row for each set, arm and setting."""
    all_pairs = sets(bench.data)
    if bench.quick:
        all_pairs = {name: pairs[:: len(pairs) // 12] for name, pairs in all_pairs.items()}
    with one_thread(), tempfile.TemporaryDirectory(dir=bench.stores) as folder:
        rows = [found for name, pairs in all_pairs.items() for found in own_rows(name, pairs, opinion=not bench.quick)]
        vectors = {MINILM: keep_vectors(MINILM, all_pairs, Path(folder) / "vectors.npz")}
        for one in DRIVEN:
            if bench.asks_for(one.arm.package):
                rows += driven_rows(bench, one, all_pairs, vectors)
    return rows


def keep_vectors(embedder: str, all_pairs: Mapping[str, Sequence[Pair]], file: Path) -> str:
    """Write the vectors of all texts that a cache may look at; return the file's name."""
    sides = [turns(side) for pairs in all_pairs.values() for pair in pairs for side in (pair.a, pair.b)]
    texts = list(dict.fromkeys(text for side in sides for text in side[-1 - WINDOW :]))
    np.savez(file, texts=np.array(texts), vectors=loaded(embedder).embed_many(texts))
    return str(file)
