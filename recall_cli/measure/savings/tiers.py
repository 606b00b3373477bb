"""A log's rows through the tiers: equal, equal but for spelling, near in meaning, and all that without walls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recall_cli.cache.answers.compare import Comparator
from recall_cli.cache.answers.second_opinion import SecondOpinion
from recall_cli.cache.decision import HitChecks
from recall_cli.cache.embed.registry import read_vectors
from recall_cli.cache.evidence.evidence import evidence
from recall_cli.cache.evidence.text_features import facts
from recall_cli.measure.columns import Workspace, number
from recall_cli.measure.savings import replay
from recall_cli.measure.savings.replay import NO_HIT, NO_VECTOR, Timing, served_by_key
from recall_cli.measure.savings.rows import IF_SAMPLED, IN, Rows
from recall_cli.measure.savings.semantic_replay import Calls, Walked, walk
from recall_cli.types import Embedder, Policy, Progress, Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from recall_cli.measure.columns import Column
    from recall_cli.measure.savings.replay import Floats, Ints

EXACT, NORMALISED, SEMANTIC = "exact", "normalised", "semantic"
TIERS = (EXACT, NORMALISED, SEMANTIC)
EXCLUDED, MISSED, BY_EXACT, BY_NORMALISED, BY_SEMANTIC = range(5)
"""What became of a row: the first tier that would have answered it."""
OUTCOME = {EXACT: BY_EXACT, NORMALISED: BY_NORMALISED, SEMANTIC: BY_SEMANTIC}

EMBED_BATCH = 2048
"""Texts embedded at a time: enough to keep the embedder busy, few enough to hold no prompt for long."""
MOST_TEXTS = 500_000
"""Distinct prompts that are embedded: their vectors take a gigabyte, on disk and in the indexes. Later ones are only
found by their keys, which a warning counts."""
HELD_BYTES = 64 << 20
"""Vectors held in memory; more of them lie in a file."""


@dataclass(slots=True)
class Replayed:
    """The replay of all cacheable rows; columns in its order unless said otherwise."""

    rows: Rows
    row: NDArray[np.int64]
    """Which row of the log each call is."""
    time: Timing
    latency: float | None
    step: float
    key: Ints
    """Numbers of the exact keys, `normal` of the normalised ones."""
    normal: Ints
    exact_by: Ints
    normal_by: Ints
    """By keys alone: what the two tiers of keys serve, were there no neighbours; NOBODY for a miss."""
    walked: Walked | None
    """Of the cache with all tiers; None when the semantic one is left out."""
    tiers: tuple[str, ...]
    outcome: NDArray[np.uint8]
    """Of each row of the log, in its order."""
    pooled: dict[str, int]
    """Hits of each tier, and of those before it, if the walls were ignored."""
    texts_left_out: int = 0
    """Calls whose prompt is not embedded, for there are too many."""

    @property
    def answer(self) -> Column:
        """Digests of the logged answers; 0 where the log has none. Read anew each time: columns are large."""
        return self.rows.columns.read("answer")[self.row]

    @property
    def end(self) -> Floats:
        """When each call ended; NaN where the log says nothing."""
        end: Floats = self.rows.columns.read("end")[self.row]
        return end

    @property
    def keys_by(self) -> Ints:
        """What the tiers of keys alone serve."""
        return self.normal_by if NORMALISED in self.tiers else self.exact_by

    @property
    def served_by(self) -> Ints:
        """Position of the call whose answer the cache with all of its tiers serves; NOBODY for a miss."""
        keys = self.keys_by
        if self.walked is None:
            return keys
        # Where the neighbour that once kept a key out of the cache no longer serves, the key would have.
        return np.where(self.walked.served_by == NO_HIT, keys, self.walked.served_by)

    @property
    def tier(self) -> NDArray[np.uint8]:
        """The outcome of each call."""
        return self.outcome[self.row]


@dataclass(slots=True)
class Semantic:
    """What the semantic tier needs."""

    embedder: Embedder
    policy: Policy
    folder: Workspace
    opinion: SecondOpinion | None = None
    """Asked of what the policy would serve."""
    vetoes: frozenset[str] | None = None
    """Checks that forbid a hit; None: the policy's own."""


def replay_rows(
    rows: Rows, *, tiers: tuple[str, ...], semantic: Semantic | None = None, progress: Progress | None = None
) -> Replayed:
    """Return what each tier would have answered, in time order and within the walls."""
    row, start, end = _in_order(rows, rows.columns.read("kind") == IN)
    latency, step = replay.median_latency(start, end), replay.time_step(start)
    time = replay.timing(start, end, latency=latency or 0.0, step=step)
    del start, end

    def numbers(name: str) -> Ints:
        return number(rows.columns.read(name)[row])[0]

    key, normal = numbers("exact"), numbers("normal")
    exact_by, normal_by = served_by_key(key, time), served_by_key(normal, time)
    outcome = np.full(len(rows), EXCLUDED, dtype=np.uint8)
    found = Replayed(
        rows, row, time, latency, step, key, normal, exact_by, normal_by, None, tiers, outcome, {},
    )  # fmt: skip
    for tier, name in ((EXACT, "text"), (NORMALISED, "plain")):
        if tier in tiers:
            found.pooled[tier] = int(np.sum(served_by_key(numbers(name), time) != NO_HIT))
    if semantic is not None:
        _walk(rows, found, semantic, progress)
    elif progress is not None:
        progress(len(row), len(row), "replaying")
    by = np.full(len(row), MISSED, dtype=np.uint8)
    for tier, hit in ((SEMANTIC, found.served_by), (NORMALISED, normal_by), (EXACT, exact_by)):
        if tier in tiers:
            np.copyto(by, OUTCOME[tier], where=hit != NO_HIT)
    outcome[row] = by
    return found


def exact_if_sampled(rows: Rows) -> NDArray[np.int64]:
    """Return the rows that exact keys would answer if calls kept out for being sampled were admitted."""
    kind = rows.columns.read("kind")
    row, start, end = _in_order(rows, (kind == IN) | (kind == IF_SAMPLED))
    time = replay.timing(start, end, latency=replay.median_latency(start, end) or 0.0, step=replay.time_step(start))
    keys, _ = number(rows.columns.read("exact")[row])
    hit: NDArray[np.int64] = row[served_by_key(keys, time) != NO_HIT]
    return hit


def _in_order(rows: Rows, which: Column) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Return the chosen rows in the order of the replay, with their start and end."""
    row = np.flatnonzero(which)
    start = rows.columns.read("start")[row]
    order = replay.time_order(start)
    return row[order], start[order], rows.columns.read("end")[row[order]]


def _walk(rows: Rows, found: Replayed, semantic: Semantic, progress: Progress | None) -> None:
    """Walk the semantic cache, and once more without walls: the difference is what pooling would only seem to save."""
    row = found.row
    partition = rows.columns.read("partition")[row]
    digest, place = rows.columns.read("text")[row], rows.columns.read("text_at")[row]
    text, first = number(np.where(partition == 0, 0, digest))
    usable = (partition != 0)[first]
    if len(first) > MOST_TEXTS:
        # The first ones in time: those can still serve.
        usable &= np.argsort(np.argsort(first)) < MOST_TEXTS
    found.texts_left_out = int(np.sum(~usable[text] & (partition != 0)))
    chosen = np.flatnonzero(usable)
    vector = np.full(len(first), NO_VECTOR, dtype=np.int32)
    vector[chosen] = np.arange(len(chosen))
    vectors = _embed(rows, place[first[chosen]], semantic, progress)
    key = found.normal if NORMALISED in found.tiers else found.key
    walls, _ = number(partition)
    calls = Calls(found.time, key, walls, vector[text], vectors)
    checks = HitChecks(semantic.embedder, semantic.policy, semantic.vetoes)

    def refusal(at: int, other: int) -> str:
        one, two = (rows.texts.read(int(place[call])) for call in (at, other))
        return checks.refusal(one, two, evidence(facts(one), facts(two), 0.0))

    calls.refusal = refusal
    opinion = semantic.opinion
    if opinion is not None:

        def agrees(at: int, other: int) -> bool:
            one, two = (rows.texts.read(int(place[call])) for call in (at, other))
            return opinion.agrees(one, two)

        calls.agrees = agrees
    if semantic.policy.learns:
        compare, answers = Comparator(semantic.embedder), rows.columns.read("answer_at")[row]

        def same(at: int, other: int) -> bool | None:
            if answers[at] < 0 or answers[other] < 0:
                return None
            return compare(rows.answers.read(int(answers[at])), rows.answers.read(int(answers[other]))).label

        calls.read, calls.same = (lambda at: rows.texts.read(int(place[at]))), same
        calls.namespace, calls.names = rows.columns.read("space")[row].astype(np.int32), rows.spaces.all()
    found.walked = walk(calls, semantic.policy, progress=progress)
    if not semantic.policy.learns:
        # A policy that learns would learn something else there: there is no honest figure of it.
        prompt, _ = number(rows.columns.read("plain" if NORMALISED in found.tiers else "text")[row])
        open_calls = Calls(found.time, prompt, np.zeros_like(walls), vector[text], vectors, refusal=refusal)
        pooled = walk(open_calls, semantic.policy)
        hit = (pooled.served_by != NO_HIT) | (served_by_key(prompt, found.time) != NO_HIT)
        found.pooled[SEMANTIC] = int(np.sum(hit))


def _embed(rows: Rows, places: Column, semantic: Semantic, progress: Progress | None) -> Vector:
    """Return the vectors of the texts at these places; many of them in a file."""
    shape = (len(places), semantic.embedder.dim)
    vectors: Vector
    if 4 * shape[0] * shape[1] <= HELD_BYTES:
        vectors = np.empty(shape, dtype=np.float32)
    else:
        vectors = np.memmap(semantic.folder.path / "vectors", dtype=np.float32, mode="w+", shape=shape)
    for at in range(0, len(places), EMBED_BATCH):
        if progress is not None:
            progress(at, len(places), "embedding")
        batch = [rows.texts.read(place) for place in places[at : at + EMBED_BATCH].tolist()]
        vectors[at : at + len(batch)] = read_vectors(semantic.embedder, batch)
    return vectors
