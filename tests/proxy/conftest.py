"""A proxy before a fake upstream, both on real sockets, closed again whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.proxy.answers import provider
from tests.proxy.fake import FakeUpstream, Handler, RunningProxy, make_plan

Start = Callable[..., tuple[RunningProxy, FakeUpstream]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return what starts a pair, given an upstream's handler and the proxy's options."""
    running: list[Any] = []

    def make(handler: Handler | None = None, **options: Any) -> tuple[RunningProxy, FakeUpstream]:
        upstream = FakeUpstream(handler or provider())
        running.append(upstream)
        proxy = RunningProxy(make_plan(upstream, **options))
        running.append(proxy)
        return proxy, upstream

    yield make
    for one in reversed(running):
        one.close()
