"""Traffic whose right answers are known, and what each way to decide does over it.

A stream is asked in order; what finds nothing is stored. Policies of ours, vCache's, and every static cutoff at once
are replayed over one trace of nearest neighbours, as `recall eval` does; `driven` runs a peer's own package over the
same stream, a cache for each namespace.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.peers import vcache
from benchmarks.peers.embedders import loaded
from recall_cli.cache.answers.second_opinion import load_opinion
from recall_cli.cache.policy.registry import default_vetoes
from recall_cli.cache.policy.static import DEFAULT_TAU, StaticPolicy
from recall_cli.measure.evaluate import policies, replay
from recall_cli.measure.evaluate.pairs import Item, load_classes
from recall_cli.measure.evaluate.policies import Settings, Source, adaptive, reader
from recall_cli.measure.evaluate.rows import rate_interval
from recall_cli.measure.evaluate.streams import Classes, TextWorld
from recall_cli.measure.timing import one_thread

WORLD, INTENTS = "text-world", "clinc150+banking77"
LIMITS = {"banking77": 1_600, "other": 0}
"""Questions a stream takes of a namespace, 500 of one that is not named: as the recorded `recall eval` of these sets.
CLINC150's out-of-scope questions share no answer."""
LIMIT = 500
BUDGETS = (0.01, 0.05)
"""Shares of hits that may be wrong, for which the best setting is looked up in hindsight."""
DELTAS = (0.001, 0.002, 0.005, 0.01, vcache.DEFAULT_DELTA, 0.03, 0.05, 0.07)
"""vCache's promises that are tried, each per query."""
DEFAULT = "recall"
OPINION = "second opinion"


@dataclass(frozen=True, slots=True)
class Count:
    """What one cache did over one stream; repeats of a stored text are apart, and in no rate."""

    queries: int
    hits: int
    wrong: int
    exact: int

    @classmethod
    def of(cls, tally: replay.ReplayCounts) -> Count:
        """Return the sums of a replay's tally."""
        return cls(sum(tally.queries), sum(tally.hits), sum(tally.wrong), tally.exact)


@dataclass(frozen=True, slots=True)
class Job:
    """One stream to replay."""

    data: Path
    name: str
    seed: int
    embedder: str
    opinion: bool = False
    """Whether the local second opinion is asked too: milliseconds for each hit."""
    vectors: Path | None = None
    """Where to keep the vectors, for a peer whose environment has no such embedder."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was decided over one stream, by arm, and by every static cutoff."""

    counts: Mapping[str, Count]
    grid: policies.Grid


class Asked(Protocol):
    """A running adapter: see `protocol`."""

    def ask(self, op: str, **more: Any) -> dict[str, Any]:
        """Send one operation and return its answer."""


@lru_cache(maxsize=2)
def source(data: Path, name: str) -> Source:
    """Return where a set's streams come from."""
    if name == WORLD:
        # In wordings that our embedder was not fitted to: the others' never could have been.
        return TextWorld(split="held-out")
    items = list(load_classes(str(data / "clinc150/data_full.json")).items)
    for split in ("train", "test"):
        found = load_classes(str(data / f"banking77/{split}.csv")).items
        items += [Item(item.text, item.answer_class, "banking77") for item in found]
    limit = {item.namespace: LIMITS.get(item.namespace, LIMIT) for item in items}
    return Classes.of(INTENTS, items, loaded("static"), limit=limit)


def stream(data: Path, name: str, seed: int, by: str = "static") -> replay.Stream:
    """Return one stream; the same questions in the same order for every embedder."""
    found = source(data, name).stream(seed)
    if by == "static":
        return found
    assert found.prompts is not None
    texts = list(dict.fromkeys(found.prompts))
    place = {text: i for i, text in enumerate(texts)}
    return replace(found, vectors=loaded(by).embed_many(texts)[[place[text] for text in found.prompts]])


def of_job(job: Job) -> replay.Stream:
    """Return the stream of a job that is done; its vectors are read where they were kept."""
    if job.vectors is None:
        return stream(job.data, job.name, job.seed, job.embedder)
    with np.load(job.vectors) as held:
        return replace(stream(job.data, job.name, job.seed), vectors=held["vectors"])


def replayed(job: Job) -> Replayed:
    """Return what recall's policies, vCache's and the static cutoffs do over one stream."""
    with one_thread():
        asked = stream(job.data, job.name, job.seed, job.embedder)
        if job.vectors is not None:
            np.savez(job.vectors, texts=np.array(asked.prompts), vectors=asked.vectors)
        seen = replay.Trace(asked)
        luck = np.random.default_rng([job.seed, 1]).random((len(asked), 2))
        counts = {
            f"adaptive {target:g}": replay.replay(seen, adaptive(target, job.seed, Settings(), texts=True), luck)
            for target in BUDGETS
        }
        counts |= {f"vcache {delta:g}": vcache.replay(seen, delta, job.seed) for delta in DELTAS}
        counts[DEFAULT] = by_default(seen)
        if job.opinion:
            asked.agrees = reader(load_opinion(), asked.prompts)
            counts[OPINION] = replay.replay(seen, StaticPolicy(), luck)
    return Replayed({arm: Count.of(tally) for arm, tally in counts.items()}, cutoffs(asked))


def by_default(seen: replay.Trace, cutoff: float = DEFAULT_TAU) -> replay.ReplayCounts:
    """Return what recall does at its defaults, or at another cutoff: its floor and its vetoes refuse what they do."""
    policy = StaticPolicy(cutoff)
    return replay.replay(seen, policy, np.ones((len(seen.stream), 2)), default_vetoes(policy))


def cutoffs(asked: replay.Stream) -> policies.Grid:
    """Return what every static cutoff does that looks at the similarity alone, as the peers' rules do."""
    return policies.grid(replay.Trace(replace(asked, embedder=None)))


def all_replayed(jobs: Sequence[Job], processes: int) -> list[Replayed]:
    """Replay all jobs, side by side."""
    if processes == 1:
        return [replayed(job) for job in jobs]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(replayed, jobs))


def driven(peer: Asked, asked: replay.Stream, work: Path, settings: Mapping[str, Any]) -> tuple[Count, dict[str, Any]]:
    """Run a peer's package over a stream; return what it did, and what it says it is set to.

    Each namespace has an empty cache of its own: not every peer has walls.
    """
    assert asked.prompts is not None
    queries = hits = wrong = exact = 0
    told: dict[str, Any] = {}
    for members in asked.partitions():
        prompts = [asked.prompts[i] for i in members.tolist()]
        answers = [str(answer) for answer in asked.answer[members].tolist()]
        with tempfile.TemporaryDirectory(dir=work) as folder:
            told = peer.ask("open", **{**settings, "folder": folder})
            served = peer.ask("stream", prompts=prompts, answers=answers)["answers"]
            peer.ask("close")
        stored: set[str] = set()
        for prompt, right, got in zip(prompts, answers, served, strict=True):
            if got is None:
                stored.add(prompt)
            elif prompt in stored and got == right:
                exact += 1
                continue
            queries += 1
            hits += got is not None
            wrong += got not in (None, right)
    return Count(queries, hits, wrong, exact), told


def best_cutoff(grids: Sequence[policies.Grid], budget: float) -> float | None:
    """Return the one static cutoff that hits most over all streams with at most this share of hits wrong, if any."""
    hits, wrong = (sum(getattr(grid, what).sum(axis=1) for grid in grids) for what in ("hits", "wrong"))
    fits = np.flatnonzero((hits > 0) & (wrong <= budget * hits))
    return policies.TAUS[int(fits[hits[fits].argmax()])] if len(fits) else None


def at_cutoff(grid: policies.Grid, cutoff: float | None) -> Count:
    """Return what a static cutoff did; None is one that nothing reaches."""
    if cutoff is None:
        return silent(Count.of(policies.at(grid, len(policies.TAUS) - 1)))
    return Count.of(policies.at(grid, policies.TAUS.index(cutoff)))


def silent(count: Count) -> Count:
    """Return what serving nothing but repeats would have counted."""
    return replace(count, hits=0, wrong=0)


def best_of(counts: Mapping[float, Sequence[Count]], budget: float) -> float | None:
    """Return the setting with most hits over all streams with at most this share of hits wrong, if any."""
    hits = {setting: sum(count.hits for count in each) for setting, each in counts.items()}
    wrong = {setting: sum(count.wrong for count in each) for setting, each in counts.items()}
    fits = [setting for setting in counts if hits[setting] and wrong[setting] <= budget * hits[setting]]
    return max(fits, key=hits.__getitem__, default=None)


def rates(counts: Sequence[Count]) -> dict[str, Any]:
    """Return the part of a row that is counted.

    `hit_rate` and `error_per_query` are of queries but exact repeats, `false_hit_rate` of hits, as in `recall eval`.
    A cache that hits less stores more and so has more exact repeats: `served_right` and `served_wrong` are of all
    requests, repeats among them.
    """
    queries, hits, wrong, exact = (
        np.array([getattr(count, what) for count in counts]) for what in ("queries", "hits", "wrong", "exact")
    )
    asked, right = queries + exact, hits - wrong + exact
    return {
        "runs": len(counts),
        "queries": int(queries.sum()),
        "hits": int(hits.sum()),
        "false_hits": int(wrong.sum()),
        "exact_hits": int(exact.sum()),
        "hit_rate": float(hits.sum() / queries.sum()),
        "hit_rate_interval": rate_interval(hits, queries),
        "false_hit_rate": float(wrong.sum() / hits.sum()) if hits.sum() else None,
        "false_hit_interval": rate_interval(wrong, hits),
        "error_per_query": float(wrong.sum() / queries.sum()),
        "error_per_query_interval": rate_interval(wrong, queries),
        "served_right": float(right.sum() / asked.sum()),
        "served_right_interval": rate_interval(right, asked),
        "served_wrong": float(wrong.sum() / asked.sum()),
        "served_wrong_interval": rate_interval(wrong, asked),
    }
