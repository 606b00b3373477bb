"""Kept answers, joined computations and buckets, each by itself, on clocks and loops of the tests' own."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.hub.api.access import BURST_S, Rate
from recall_cli.hub.api.ask import Flights, SharedQuestion
from recall_cli.hub.api.errors import ApiError
from recall_cli.hub.api.result_cache import ResultCache
from recall_cli.hub.models import Answer, HubInfo, Level, Match, Passage, Question, Source, Visibility

HUB = HubInfo("docs", "uid", Visibility.PUBLIC, "ann", "hash-v1", "f", 256, 3, 9, 9, 1.0, 0.4, None)
QUESTION = Question("why?")
CLOSED = replace(HUB, visibility=Visibility.PRIVATE)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def answer(text: str = "", **more: Any) -> Answer:
    passage = Passage(1, "d", "", "", 0, text)
    return Answer(HUB, QUESTION, [Match(passage, Source.BOTH, 0.5, 1.0, 1.0)], **more)


def key(cache: ResultCache, hub: HubInfo = HUB, question: Question = QUESTION, **more: str) -> bytes | None:
    return cache.key(hub, question, **{"principal": "", "reranker": "m", **more})


OTHERS = {
    "uid": replace(HUB, uid="another"),
    "revision": replace(HUB, revision=4),
    "visibility": replace(HUB, visibility=Visibility.RESTRICTED),
    "embedder": replace(HUB, fingerprint="g"),
    "alpha": replace(HUB, alpha=0.5),
    "min_score": replace(HUB, min_score=0.1),
    "text": replace(QUESTION, text="why"),
    "k": replace(QUESTION, k=9),
    "level": replace(QUESTION, level=Level.CHUNK),
    "rerank": replace(QUESTION, rerank=False),
    "question's min_score": replace(QUESTION, min_score=0.0),
}


@pytest.mark.parametrize("what", [*OTHERS, "reranker"])
def test_an_answer_is_kept_under_all_it_hangs_on(what: str) -> None:
    cache, other = ResultCache(private=True), OTHERS.get(what)
    if isinstance(other, HubInfo):
        changed = key(cache, other)
    elif isinstance(other, Question):
        changed = key(cache, question=other)
    else:
        changed = key(cache, reranker="another")
    assert changed is not None
    assert changed != key(cache)


def test_a_reranker_that_is_not_asked_makes_no_difference() -> None:
    cache, plain = ResultCache(), replace(QUESTION, rerank=False)
    assert key(cache, question=plain, reranker="a") == key(cache, question=plain, reranker="b")


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_no_principal_passes_for_another(sub: str, scope: str, other_sub: str, other_scope: str) -> None:
    cache = ResultCache(private=True)
    one, other = (key(cache, CLOSED, principal=f"{a}\n{b}") for a, b in ((sub, scope), (other_sub, other_scope)))
    assert (one == other) is (f"{sub}\n{scope}" == f"{other_sub}\n{other_scope}")


def test_who_asks_makes_no_difference_where_everybody_may() -> None:
    cache = ResultCache(private=True)
    assert key(cache, principal="ann") == key(cache, principal="bob")
    assert key(ResultCache(), CLOSED, principal="ann") is None, "private answers are kept only where that was asked for"
    assert key(ResultCache(0.0)) is None, "nothing is kept for no time"


def test_an_answer_is_kept_for_its_time() -> None:
    clock = Clock()
    cache = ResultCache(60.0, clock=clock)
    cache.put(b"k", answer("a"))
    clock.now = 59.0
    found = cache.get(b"k")
    assert found is not None
    assert (found[0].results[0].passage.text, found[1]) == ("a", 59.0)
    clock.now = 60.0
    assert cache.get(b"k") is None


def test_the_answer_of_a_failed_reranker_is_not_kept() -> None:
    cache = ResultCache()
    cache.put(b"k", answer(rerank_error="timeout"))
    assert cache.get(b"k") is None


def test_no_more_is_kept_than_fits() -> None:
    cache = ResultCache(most_bytes=100_000)
    for n in range(50):
        cache.put(bytes([n]), answer("x" * 10_000))
        assert cache.get(b"\0") is not None or n > 9, "what is read is not the first to go"
    assert 5 <= len(cache) <= 10
    cache.put(b"large", answer("x" * 200_000))
    assert cache.get(b"large") is None
    assert len(cache) >= 5, "what never fits pushes nothing out"


async def steps(*answers: Answer, pause: asyncio.Event | None = None, fault: Exception | None = None) -> Any:
    for step in answers:
        yield step
        if pause is not None:
            await pause.wait()
    if fault is not None:
        raise fault


def run(work: Any) -> Any:
    return asyncio.run(work)


def test_all_who_follow_get_all_steps_whenever_they_come() -> None:
    async def main() -> None:
        go, first, last = asyncio.Event(), answer("first"), answer("last")
        flight = SharedQuestion(steps(first, last, pause=go))
        early = asyncio.ensure_future(collect(flight))
        await asyncio.sleep(0)
        late = asyncio.ensure_future(collect(flight))
        await asyncio.sleep(0)
        go.set()
        assert await early == await late == [first, last]
        assert await collect(flight) == [first, last], "after its end too"

    run(main())


async def collect(flight: SharedQuestion) -> list[Answer]:
    async with aclosing(flight.follow()) as following:
        return [step async for step in following]


def test_a_computation_ends_with_its_last_follower() -> None:
    async def main() -> None:
        never = asyncio.Event()
        flight = SharedQuestion(steps(answer(), pause=never))
        followers = [asyncio.ensure_future(collect(flight)) for _ in range(2)]
        await asyncio.sleep(0)
        followers[0].cancel()
        await asyncio.gather(followers[0], return_exceptions=True)
        assert not flight.is_over, "the other one still follows"
        followers[1].cancel()
        await asyncio.gather(followers[1], return_exceptions=True)
        assert flight.is_over
        await asyncio.gather(flight.task, return_exceptions=True)
        assert flight.task.cancelled()

    run(main())


def test_a_failure_reaches_all_who_follow() -> None:
    async def main() -> None:
        flight = SharedQuestion(steps(answer(), fault=ValueError("broken")))
        got = await asyncio.gather(collect(flight), collect(flight), return_exceptions=True)
        assert [str(error) for error in got] == ["broken", "broken"]

    run(main())


def test_what_is_over_is_not_joined() -> None:
    async def main() -> None:
        flights, never = Flights(), asyncio.Event()
        flight = flights.start(b"k", steps(answer(), pause=never))
        assert flights.join(b"k") is flight
        assert flights.join(b"other") is None
        follower = asyncio.ensure_future(collect(flight))
        await asyncio.sleep(0)
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)
        assert flights.join(b"k") is None, "it is being cancelled: whoever comes now computes anew"
        again = flights.start(b"k", steps(answer(), pause=(go := asyncio.Event())))
        await asyncio.gather(flight.task, return_exceptions=True)
        assert flights.join(b"k") is again, "the end of the first does not forget the second"
        go.set()
        await collect(again)
        await asyncio.sleep(0)
        assert len(flights) == 0

    run(main())


def test_a_bucket_empties_and_fills_again() -> None:
    clock = Clock()
    rate = Rate(2.0, clock=clock)
    for _ in range(int(2 * BURST_S)):
        rate.take("bob", "docs")
    with pytest.raises(ApiError) as refused:
        rate.take("bob", "docs")
    assert refused.value.retry_s == pytest.approx(0.5)
    clock.now += 0.5
    rate.take("bob", "docs")
    with pytest.raises(ApiError):
        rate.take("bob", "docs")
    rate.take("eve", "docs")
    rate.take("bob", "wiki")
    clock.now += 1_000.0
    taken = 0
    while taken < 100:
        try:
            rate.take("bob", "docs")
        except ApiError:
            break
        taken += 1
    assert taken == 2 * BURST_S, "a long silence fills no more than one bucket"


def test_no_limit_is_no_limit() -> None:
    rate = Rate(0.0, clock=Clock())
    for _ in range(10_000):
        rate.take("bob", "docs")
