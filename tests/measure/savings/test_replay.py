"""The replay: who may serve whom, and in which tier."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.index.auto import AutoIndex
from recall_cli.cache.index.exact import ExactIndex
from recall_cli.cache.policy.static import StaticPolicy
from recall_cli.measure.savings import replay
from recall_cli.measure.savings.replay import FINEST, NO_HIT, NO_VECTOR, Timing, served_by_key
from recall_cli.measure.savings.semantic_replay import Calls
from recall_cli.measure.savings.semantic_replay import walk as walk_calls
from recall_cli.types import Evidence, Policy, Vector, Verdict

VECTORS = np.array([[1, 0, 0], [0.8, 0.6, 0], [0, 1, 0], [0, 0, 0], [0.6, 0.8, 0]], dtype=np.float32)
"""Cosines: 0-1 0.8, 0-2 0, 1-2 0.6, 1-4 0.96; text 3 holds no known token."""


@dataclass(slots=True)
class Call:
    identity: bytes
    partition: bytes
    text: int
    start: float | None
    end: float | None


@dataclass(frozen=True, slots=True)
class Hit:
    """Whom exact keys alone would have served a call from, and whom the semantic cache does."""

    exact_by: int | None
    served_by: int
    similarity: float | None = None

    @property
    def exact(self) -> bool:
        return self.exact_by is not None


def call(text: int, start: float | None, end: float | None = None, *, wall: str = "p", key: str = "") -> Call:
    identity = f"{wall}/{key or text}".encode()
    return Call(identity, wall.encode(), text, start, start if end is None else end)


def column(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def numbers(keys: Sequence[bytes]) -> np.ndarray:
    known: dict[bytes, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int32)


@dataclass(slots=True)
class Trace:
    """Calls as columns in the order of the replay."""

    order: list[int]
    key: np.ndarray
    end: np.ndarray
    time: Timing

    @classmethod
    def of(cls, calls: Sequence[Call], latency: float = 0.0, step: float = 0.0) -> Trace:
        order = replay.time_order(column([c.start for c in calls])).tolist()
        start, end = (column([getattr(calls[at], name) for at in order]) for name in ("start", "end"))
        key = numbers([calls[at].identity for at in order])
        return cls(order, key, end, replay.timing(start, end, latency=latency, step=step))


def replayed(
    calls: Sequence[Call], vectors: Vector, policy: Policy, *, latency: float = 0.0, step: float = 0.0
) -> list[Hit | None]:
    """Return for each call, in the order given, the hit it would have been."""
    trace = Trace.of(calls, latency, step)
    order, exact = trace.order, served_by_key(trace.key, trace.time)
    walls = numbers([calls[at].partition for at in order])
    text = np.array([calls[at].text for at in order], dtype=np.int32)
    walked = walk_calls(Calls(trace.time, trace.key, walls, text, vectors), policy)
    hits: list[Hit | None] = [None] * len(calls)
    for turn, (known, found) in enumerate(zip(exact.tolist(), walked.served_by.tolist(), strict=True)):
        if known != NO_HIT or found != NO_HIT:
            near = float(walked.similarity[turn])
            hits[order[turn]] = Hit(
                None if known == NO_HIT else order[known],
                order[known if found == NO_HIT else found],
                None if np.isnan(near) else near,
            )
    return hits


def walk(calls: Sequence[Call], tau: float = 0.75, latency: float = 0.0, step: float = 0.0) -> list[Hit | None]:
    return replayed(calls, VECTORS, StaticPolicy(tau), latency=latency, step=step)


def by_turn(trace: Trace, found: Sequence[int | None]) -> np.ndarray:
    turn = {at: i for i, at in enumerate(trace.order)}
    return np.array([NO_HIT if found[at] is None else turn[found[at]] for at in trace.order], dtype=np.int32)


def leaning(calls: Sequence[Call], hits: Sequence[Hit | None]) -> int:
    trace = Trace.of(calls)
    served, exact = (by_turn(trace, [hit and getattr(hit, name) for hit in hits]) for name in ("served_by", "exact_by"))
    return replay.leaning(trace.time, trace.end, served, exact)


def tied(calls: Sequence[Call], hits: Sequence[Hit | None]) -> int:
    trace = Trace.of(calls)
    return replay.tied(trace.key, trace.time, np.array([hits[at] is not None for at in trace.order], dtype=bool))


def median_latency(calls: Sequence[Call]) -> float | None:
    return replay.median_latency(column([c.start for c in calls]), column([c.end for c in calls]))


def test_exact_then_semantic_then_miss() -> None:
    hits = walk([call(0, 1), call(0, 2), call(1, 3), call(2, 4)])
    assert hits[0] is None
    assert hits[1] == Hit(0, 0)
    assert hits[2] is not None
    assert (hits[2].exact, hits[2].served_by) == (False, 0)
    assert hits[2].similarity is not None
    assert abs(hits[2].similarity - 0.8) < 1e-6
    assert hits[3] is None


def test_results_keep_the_callers_order() -> None:
    assert walk([call(0, 9), call(0, 1), call(0, 5)]) == [Hit(1, 1), None, Hit(1, 1)]


def test_a_hit_stores_nothing() -> None:
    """4 is near 1 but not near 0; 1 was served from 0 and so is not there to serve 4."""
    hits = walk([call(0, 1), call(1, 2), call(4, 3)])
    assert hits[1] is not None
    assert hits[2] is None


def test_exact_worth_is_that_of_a_cache_of_exact_keys_alone() -> None:
    """The second call 1 is an exact repeat, though a semantic cache would serve it from 0."""
    hits = walk([call(0, 1), call(1, 2), call(1, 3)])
    assert hits[2] is not None
    assert (hits[2].exact, hits[2].exact_by, hits[2].served_by) == (True, 1, 0)
    assert hits[2].similarity is not None


def test_an_exact_repeat_is_a_hit_even_when_its_neighbour_no_longer_serves() -> None:
    class Fickle(StaticPolicy):
        """Serves once: as a similarity does that rounds to the other side of the cutoff next time."""

        asked = 0

        def decide(self, namespace: str, evidence: Evidence) -> Verdict:
            self.asked += 1
            return Verdict(self.asked == 1, self.tau)

    hits = replayed([call(0, 1), call(1, 2), call(1, 3)], VECTORS, Fickle(0.8))
    assert hits[1] is not None
    assert hits[2] == Hit(1, 1)


@pytest.mark.parametrize(("same", "then"), [(True, 0), (False, 1), (None, 0)])
def test_an_audit_that_shows_another_answer_stores_it(same: bool | None, then: int) -> None:
    """1 is served from 0 and checked; only where its own answer is another does that serve the next 1."""

    class Audits(StaticPolicy):
        learns = True
        seen: list[bool]

        def decide(self, namespace: str, evidence: Evidence) -> Verdict:
            return Verdict(super().decide(namespace, evidence).serve, self.tau, audit=True)

        def observe(self, namespace: str, evidence: Evidence, *, same: bool) -> None:
            self.seen.append(same)

    trace = Trace.of([call(0, 1), call(1, 2), call(1, 3)])
    text, asked = np.array([0, 1, 1], dtype=np.int32), []

    def compare(at: int, other: int) -> bool | None:
        asked.append((at, other))
        return same

    policy = Audits(0.75)
    policy.seen = []
    calls = Calls(trace.time, trace.key, np.zeros(3, dtype=np.int32), text, VECTORS, same=compare)
    walked = walk_calls(calls, policy)
    assert walked.served_by.tolist() == [NO_HIT, 0, then]
    assert asked[0] == (1, 0)
    assert policy.seen == ([] if same is None else [same])
    assert (walked.audits, walked.labels) == (1, len(policy.seen))


def test_a_cutoff_of_one_serves_nothing_by_meaning() -> None:
    rows = np.random.default_rng(0).standard_normal((50, 256)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    log = [call(i, 2 * i + again, key=f"{i}/{again}") for i in range(50) for again in (0, 1)]
    hits = replayed(log, rows, StaticPolicy(1.0))
    assert hits == [None] * 100


def test_the_cutoff_is_reached_not_passed() -> None:
    at = float(np.float32(VECTORS[0] @ VECTORS[1]))
    assert walk([call(0, 1), call(1, 2)], tau=at)[1] is not None
    assert walk([call(0, 1), call(1, 2)], tau=at + 1e-6)[1] is None


def test_walls() -> None:
    assert walk([call(0, 1, wall="a"), call(1, 2, wall="b"), call(0, 3, wall="b")], tau=0.99) == [None, None, None]


def test_a_call_under_way_serves_nobody() -> None:
    assert walk([call(0, 1, 10), call(0, 5, 6), call(0, 9), call(0, 10)]) == [None, None, Hit(1, 1), Hit(1, 1)]


def test_a_call_without_an_end_takes_the_median() -> None:
    calls = [call(0, 1), call(0, 3), call(0, 4)]
    for c in calls:
        c.end = None
    assert walk(calls, latency=2.5) == [None, None, Hit(0, 0)]
    assert median_latency([call(0, 1, 3), call(0, 1, 2), call(0, 1, 3600), calls[0]]) == 2
    assert median_latency(calls) is None


def test_calls_of_the_same_instant_do_not_serve_each_other() -> None:
    assert walk([call(0, 1), call(0, 1), call(1, 1)]) == [None, None, None]


def test_a_call_shorter_than_the_step_serves_those_behind_it() -> None:
    """Times cut to the minute: a call of 2 s was over before the next of its minute, one of 90 s was not."""
    short = [call(0, 60, 62), call(0, 60, 62), call(1, 60, 62), call(0, 120, 122)]
    assert walk(short) == [None, None, None, Hit(0, 0)]
    hits = walk(short, step=60.0)
    assert [hit is not None for hit in hits] == [False, True, True, True]
    assert (leaning(short, hits), leaning(short, walk(short))) == (2, 0)
    assert (tied(short, hits), tied(short, walk(short))) == (0, 1)
    long = [call(0, 60, 150), call(0, 60, 150), call(0, 120, 122), call(0, 180, 181)]
    assert walk(long, step=60.0) == walk(long) == [None, None, None, Hit(2, 2)]
    # A time that is not cut is taken at its word.
    odd = [call(0, 61.5, 63), call(0, 61.5, 63)]
    assert walk(odd, step=60.0) == [None, None]
    assert tied(odd, walk(odd, step=60.0)) == 1


def test_without_any_duration_the_order_of_the_file_decides_an_instant() -> None:
    """As for all calls then: each answer counts as there at once, which a warning says."""
    calls = [call(0, 1.0005), call(0, 1.0005)]
    for c in calls:
        c.end = None
    assert walk(calls, step=FINEST) == [None, Hit(0, 0)]
    assert walk(calls, step=FINEST, latency=1.0) == [None, None]


@pytest.mark.parametrize(
    ("starts", "step"),
    [
        ([86_400.0 * i for i in (19_000, 19_000, 19_001)], 86_400.0),
        ([86_400.0 * 19_000 - 5.5 * 3600] * 3, 900.0),
        ([7200.0, 10_800.0, 10_801.0], 3600.0),
        ([60.0, 120.0, 120.0, 181.0], 60.0),
        ([1.0, 2.0, 63.0], 1.0),
        ([1.25, 2.0, 63.5], FINEST),
        ([None, 60.0, None], 60.0),
        ([None], FINEST),
        ([], FINEST),
    ],
)
def test_the_step_that_times_are_cut_to(starts: list[float | None], step: float) -> None:
    assert replay.time_step(column(starts)) == step


def test_without_times_the_file_is_the_order() -> None:
    hits = walk([call(0, None), call(0, None), call(1, None)])
    assert (hits[0], hits[1]) == (None, Hit(0, 0))
    assert hits[2] is not None
    assert hits[2].served_by == 0
    assert replay.time_order(column([5.0, None, 1.0, None])).tolist() == [2, 3, 0, 1]


def test_a_text_without_known_tokens_is_only_found_by_key() -> None:
    hits = walk([call(3, 1), call(3, 2, key="other"), call(3, 3)], tau=0.0)
    assert hits == [None, None, Hit(0, 0)]


def test_exact_only_calls_are_only_found_by_key() -> None:
    hits = walk([call(0, 1), call(NO_VECTOR, 2), call(NO_VECTOR, 3), call(1, 4)], tau=0.0)
    assert hits[:3] == [None, None, Hit(1, 1)]
    assert hits[3] is not None
    assert hits[3].served_by == 0


def test_the_index_of_the_product_finds_what_exact_search_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 prompts in two partitions, so that the index changes its kind on the way."""
    chance = random.Random(0)
    verbs = ("reset", "change", "cancel", "download", "update", "delete", "find", "share", "archive", "rename")
    things = ("password", "invoice", "order", "account", "refund", "profile", "team", "licence", "webhook", "report")
    opens = ("How do I", "how can i", "Please")
    texts = [
        f"{chance.choice(opens)} {chance.choice(verbs)} {chance.choice(things)} {chance.randrange(100_000)}?"
        for _ in range(5_000)
    ]
    vectors = make_embedder("static").embed_many(texts)
    log = [call(i, float(i), wall=chance.choice("ab"), key=text) for i, text in enumerate(texts)]
    made: list[AutoIndex] = []

    class Watched(AutoIndex):
        def __init__(self, dim: int) -> None:
            super().__init__(dim)
            made.append(self)

    monkeypatch.setattr("recall_cli.measure.savings.semantic_replay.AutoIndex", Watched)
    fast = replayed(log, vectors, StaticPolicy(0.8))
    monkeypatch.setattr("recall_cli.measure.savings.semantic_replay.AutoIndex", ExactIndex)
    slow = replayed(log, vectors, StaticPolicy(0.8))
    assert [index.kind for index in made] == ["scan", "scan"]
    assert 200 < sum(hit is not None for hit in fast) < 2_000
    for a, b in zip(fast, slow, strict=True):
        assert (a and (a.exact_by, a.served_by)) == (b and (b.exact_by, b.served_by))
        assert a is None or a.similarity == pytest.approx(b.similarity, abs=1e-6)  # type: ignore[union-attr]


calls = st.builds(
    lambda text, wall, start, took: call(text, start, start + took, wall=wall),
    st.integers(0, 4),
    st.sampled_from("ab"),
    st.integers(0, 30).map(float),
    st.integers(0, 8).map(float),
)


@given(st.lists(calls, max_size=25), st.sampled_from([0.0, 0.5, 0.75, 0.9, 1.0]))
def test_nobody_is_served_what_was_not_there(log: list[Call], tau: float) -> None:
    hits = walk(log, tau)
    first = {}
    for at, hit in enumerate(hits):
        if hit is None:
            continue
        source = log[hit.served_by]
        assert source.partition == log[at].partition
        assert source.end is not None
        assert log[at].start is not None
        assert source.end <= log[at].start
        assert hits[hit.served_by] is None, "served by a call that was itself a hit, and stored nothing"
        first[at] = source
    repeats = Counter(c.identity for c in log)
    exact = Counter(log[at].identity for at, hit in enumerate(hits) if hit is not None and hit.exact)
    assert all(exact[identity] <= repeats[identity] - 1 for identity in exact)


@given(st.lists(calls, max_size=25), st.randoms(use_true_random=False))
def test_the_order_of_lines_does_not_matter(log: list[Call], random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(range(len(log)))
    random.shuffle(shuffled)
    straight = walk(log)
    mixed = walk([log[i] for i in shuffled])
    by_line = {i: mixed[at] for at, i in enumerate(shuffled)}
    for i, hit in enumerate(straight):
        other = by_line[i]
        assert (hit is None) == (other is None)
        assert hit is None or other is None or hit.exact == other.exact


def plain_walk(calls: Sequence[Call], latency: float, step: float) -> list[int | None]:
    """What keys serve, worked out the slow way: a queue of answers on their way, and a cache that is asked in turn."""
    entries: dict[bytes, int] = {}
    pending: list[tuple[float, int, int]] = []
    served: list[int | None] = []
    last = -math.inf
    for turn, c in enumerate(calls):
        assert c.start is None or c.start >= last
        last = last if c.start is None else c.start
        pending.sort()
        while pending and (c.start is None or pending[0][0] <= c.start):
            done = pending.pop(0)[2]
            entries.setdefault(calls[done].identity, done)
        served.append(entries.get(c.identity))
        if served[-1] is None:
            if c.start is None:
                ready = -math.inf
            else:
                took = latency if c.end is None else c.end - c.start
                short = step and took < (step if c.start % step == 0 else FINEST)
                ready = c.start if short else max(c.start + took, math.nextafter(c.start, math.inf))
            pending.append((ready, turn, turn))
    return served


odd_calls = st.builds(
    lambda text, wall, start, took: call(
        text, start, None if start is None or took is None else start + took, wall=wall
    ),
    st.integers(0, 2),
    st.sampled_from("ab"),
    st.one_of(st.none(), st.integers(0, 30).map(lambda n: n / 2)),
    st.one_of(st.none(), st.integers(0, 8).map(float)),
)


@given(st.lists(odd_calls, max_size=40), st.sampled_from([0.0, 1.5, 4.0]), st.sampled_from([0.0, FINEST, 1.0, 4.0]))
def test_one_sort_finds_what_asking_a_cache_in_turn_does(log: list[Call], latency: float, step: float) -> None:
    trace = Trace.of(log, latency, step)
    ordered = [log[at] for at in trace.order]
    found = [None if at == NO_HIT else at for at in served_by_key(trace.key, trace.time).tolist()]
    assert found == plain_walk(ordered, latency, step)


@given(st.lists(calls, max_size=25))
def test_exact_hits_do_not_depend_on_the_cutoff(log: list[Call]) -> None:
    loose, strict = walk(log, 0.0), walk(log, 1.0)
    assert [h is not None and h.exact for h in loose] == [h is not None and h.exact for h in strict]


@given(st.lists(calls, max_size=25), st.sampled_from([1.0, 4.0]))
def test_exact_hits_at_the_step_are_no_fewer(log: list[Call], step: float) -> None:
    strict, loose = walk(log), walk(log, step=step)
    exact = [sum(hit is not None and hit.exact for hit in hits) for hits in (strict, loose)]
    assert exact[0] <= exact[1]
    assert leaning(log, strict) == 0
    if not leaning(log, loose):
        # Of two calls that ask the same, the step decides which is stored first: who asked is the same either way.
        assert [asked_of(log, hit) for hit in strict] == [asked_of(log, hit) for hit in loose]


def asked_of(log: list[Call], hit: Hit | None) -> tuple[bool, float, bytes] | None:
    """How a hit was found, and what its answer was an answer to."""
    return None if hit is None else (hit.exact, hit.similarity, log[hit.served_by].identity)
