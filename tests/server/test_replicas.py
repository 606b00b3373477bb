"""Two `recall serve` on one database: what one stores, the other serves; what fails there fails no request."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.server.conftest import Start
from tests.server.fake import RunningProxy, ask

PAUSE = threading.Event()


def soon(holds: Callable[[], bool], seconds: float = 10.0, every: float = 0.02) -> int:
    """Wait until something holds, and return how many looks it took."""
    for look in range(int(seconds / every)):
        if holds():
            return look
        PAUSE.wait(every)
    raise AssertionError(f"it did not come to hold within {seconds:g} s")


def held(proxy: RunningProxy) -> int:
    return len(proxy.server.keeper.cache)


def test_what_one_stores_the_other_serves(start: Start, database: str) -> None:
    one, upstream = start(store=database)
    other, idle = start(store=database)
    assert ask(one).outcome == "MISS"
    one.settle()
    assert ask(other).outcome == "EXACT", "a partition that is not in memory is looked up in the database"
    assert ask(other, "how do i reset my password").outcome == "SEMANTIC"
    assert ask(other, "What is the capital of France?").outcome == "MISS"
    other.settle()
    soon(lambda: held(one) == held(other) == 2)
    assert ask(one, "What is the capital of France?").outcome == "EXACT", "and one that is there follows the others"
    assert [len(upstream.seen), len(idle.seen)] == [1, 1]
