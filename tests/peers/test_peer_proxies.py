"""The works on proxies and on full caches: the provider they ask, what is called a fault, what plain LRU loses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.peers import eviction, flood, streaming, upstream
from benchmarks.peers.bench import Bench
from benchmarks.peers.proxies import PROXIES, Proxy, Up, calls
from benchmarks.peers.roster import ARMS, PACKAGES
from benchmarks.peers.services import free_port
from benchmarks.serve import Server, body


class Signalled(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: object = None) -> None:
        await super().startup(sockets)  # type: ignore[arg-type]
        self.up.set()


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    port = free_port()
    server = Signalled(uvicorn.Config(upstream.application(), port=port, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert server.up.wait(20)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(20)


@pytest.mark.parametrize("mode", streaming.MODES)
@pytest.mark.parametrize("usage", [False, True])
@pytest.mark.parametrize("prompt", ["ferries at noon", "call the tool"])
@pytest.mark.parametrize("api", streaming.KINDS)
def test_the_sdks_find_no_fault_in_the_provider_itself(
    provider: str, api: str, prompt: str, usage: bool, mode: str
) -> None:
    got = streaming.ask(api, provider, prompt, mode, usage=usage)
    assert streaming.faults(got, streaming.answer_of(api, prompt, mode, usage=usage)) == []


def test_a_fault_is_named() -> None:
    right = streaming.answer_of("openai", "call the tool", "whole")
    assert streaming.faults(streaming.Got("", (), None, "stop"), right) == ["tools", "usage", "ended"]
    assert streaming.faults(streaming.answer_of("openai", "other", "stream"), right) == [
        "text",
        "tools",
        "usage",
        "ended",
    ]


def direct(provider: str, **more: object) -> tuple[Proxy, Up]:
    """A proxy that is none: what it answers comes from the provider each time."""
    proxy = Proxy("none", "recall", lambda start: ([], {}), ("exact",), **more)  # type: ignore[arg-type]
    return proxy, Up(provider, 0, Server(None), lambda: calls(provider))  # type: ignore[arg-type]


def test_what_goes_to_the_provider_again_was_not_replayed(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "SETTLE_S", 0.0)
    told = streaming.case(*direct(provider), "openai", "text", ("stream", "whole"), "trains")
    assert told == {
        "provider": "openai",
        "kind": "text, stream then whole",
        "replayed": False,
        "faults": [],
    }
    silent = streaming.case(*direct(provider, apis=("openai",)), "anthropic", "text", ("whole", "whole"), "trains")
    assert silent["faults"] == ["it does not speak this API"]


def test_callers_that_meet_no_cache_all_reach_the_provider(provider: str) -> None:
    assert flood.at_once(direct(provider)[1], "boats") == flood.Flooded(flood.CALLERS, [], 0)
    assert "404" in flood.post(f"{provider}/nowhere", body("x")).error


def test_an_answer_to_another_prompt_is_counted(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flood, "body", lambda text: body("another"))
    assert flood.at_once(direct(provider)[1], "boats").wrong == flood.CALLERS


def test_every_proxy_is_of_a_known_package() -> None:
    assert {proxy.package for proxy in PROXIES} <= PACKAGES.keys()


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 12))
def test_plain_lru_loses_what_it_must(keys: list[int], capacity: int) -> None:
    lost = eviction.lru_lost(keys, capacity)
    for at, key in enumerate(keys):
        since = keys[:at][::-1]
        if key not in since:
            assert lost[at]
        else:
            # Kept as long as fewer other keys came since than there are places.
            assert lost[at] == (len(set(since[: since.index(key)])) >= capacity)


def test_a_full_cache_of_ours_is_plain_lru_and_an_unbounded_peer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction, "CAPACITY", 5)
    names = ("recall", "redisvl, our embedder")
    bench = Bench(tmp_path, tmp_path, [arm for arm in ARMS if arm.name in names], quick=True)
    ours, theirs = eviction.run(bench)
    assert ours["lost_rate"] == ours["lru_lost_rate"] > 0
    assert ours["wrong"] == 0
    assert (theirs["ran"], theirs["why"]) == (False, eviction.UNBOUNDED)
    assert not bench.absent
