"""The peers that are proxies, each started before one upstream, with the store that its documentation starts with."""

from __future__ import annotations

import json
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.bench import Bench
from benchmarks.peers.services import REDIS_URL, SERVICES, free_port
from benchmarks.peers.venvs import VenvError, python_of
from benchmarks.serve import Server, running

KEY = "sk-bench-0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Start:
    """What a proxy's command is made of."""

    python: Path
    port: int
    folder: Path
    upstream: str
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Proxy:
    """A proxy to be compared.

    :param command: the words that start it, and the environment variables that it takes.
    :param tiers: the kinds of hit that it gives.
    :param apis: whose SDKs it answers from its cache, as far as it says.
    """

    name: str
    package: str
    command: Callable[[Start], tuple[list[str], dict[str, str]]]
    tiers: tuple[str, ...]
    apis: tuple[str, ...] = ("openai", "anthropic")
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Up:
    """A proxy that runs, and the upstream behind it."""

    url: str
    port: int
    server: Server
    calls: Callable[[], int]


def recall(start: Start) -> tuple[list[str], dict[str, str]]:
    """Return `recall serve` with everything on but the background checks, which ask upstream of themselves."""
    store, log = (str(start.folder / name) for name in ("answers.db", "access.jsonl"))
    return [
        sys.executable, "-m", "recall_cli", "serve", "--port", str(start.port), "--store", store, "--log", log,
        "--upstream-openai", start.upstream, "--upstream-anthropic", start.upstream, "--verify-sample", "0",
    ], {}  # fmt: skip


def litellm(start: Start) -> tuple[list[str], dict[str, str]]:
    """Return LiteLLM's proxy; with Redis its semantic cache, without it the one in its memory."""
    cache: dict[str, Any] = {"type": "local", "ttl": 3_600}
    if REDIS_URL in start.env:
        cache = {"type": "redis-semantic", "redis_url": start.env[REDIS_URL], "similarity_threshold": 0.8,
                 "redis_semantic_cache_embedding_model": "static"}  # fmt: skip
    models = [
        {"model_name": "gpt-4o", "litellm_params": {"model": "openai/gpt-4o", "api_base": f"{start.upstream}/v1"}},
        {"model_name": "static", "litellm_params": {"model": "openai/static", "api_base": f"{start.upstream}/v1"}},
        {"model_name": "claude-bench",
         "litellm_params": {"model": "anthropic/claude-bench", "api_base": start.upstream}},
    ]  # fmt: skip
    for model in models:
        model["litellm_params"]["api_key"] = "x"  # type: ignore[index]
    config = start.folder / "litellm.yaml"
    # JSON is YAML.
    config.write_text(json.dumps({"model_list": models, "litellm_settings": {"cache": True, "cache_params": cache}}))
    command = [str(start.python.with_name("litellm")), "--config", str(config), "--port", str(start.port),
               "--host", "127.0.0.1", "--num_workers", "1"]  # fmt: skip
    return command, {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                     "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}  # fmt: skip


def gptcache(start: Start) -> tuple[list[str], dict[str, str]]:
    """Return GPTCache's server."""
    command = [str(start.python), "-m", "benchmarks.peers.gptcache_proxy", "--port", str(start.port),
               "--folder", str(start.folder)]  # fmt: skip
    return command, {"OPENAI_API_BASE": f"{start.upstream}/v1"}


PROXIES = (
    Proxy("recall serve", "recall", recall, ("exact", "semantic")),
    Proxy("litellm proxy, local", "litellm", litellm, ("exact",)),
    Proxy("litellm proxy, redis-semantic", "litellm", litellm, ("exact", "semantic"), needs=("redis",)),
    Proxy("gptcache server", "gptcache", gptcache, ("exact", "semantic"), ("openai",)),
)


@contextmanager
def all_up(bench: Bench) -> Iterator[tuple[dict[Proxy, Up], dict[Proxy, str]]]:
    """Start what is asked for, each before an upstream of its own; yield those that run, and why the others do not."""
    up: dict[Proxy, Up] = {}
    absent: dict[Proxy, str] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=bench.stores)))
        for number, proxy in enumerate(bench.chosen(PROXIES)):
            place = folder / str(number)
            (place / "store").mkdir(parents=True)
            try:
                up[proxy] = start(bench, proxy, place, stack)
            except (VenvError, SystemExit) as error:
                absent[proxy] = str(error)
        yield up, absent


def start(bench: Bench, proxy: Proxy, place: Path, stack: ExitStack) -> Up:
    """Start one proxy, its services and its upstream, all ended with the stack."""
    python = python_of(proxy.package, bench.software[proxy.package].requirements, bench.work)
    env: dict[str, str] = {}
    for name in proxy.needs:
        _, told = stack.enter_context(SERVICES[name](bench.work, place))
        env |= told
    log = bench.work / "proxies.log"
    ports = free_port(), free_port()
    asked = f"http://127.0.0.1:{ports[0]}"
    upstream = [sys.executable, "-m", "benchmarks.peers.upstream", "--port", str(ports[0])]
    stack.enter_context(running(upstream, ports[0], 1, log))
    words, more = proxy.command(Start(python, ports[1], place / "store", asked, env))
    server = stack.enter_context(running(words, ports[1], 0, log, **env, **more))
    return Up(f"http://127.0.0.1:{ports[1]}", ports[1], server, lambda: calls(asked))


def calls(upstream: str) -> int:
    """Return how many chat calls an upstream has had."""
    with urllib.request.urlopen(f"{upstream}/calls", timeout=10) as answer:
        return int(json.load(answer)["calls"])
