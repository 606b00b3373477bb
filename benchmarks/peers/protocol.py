"""What an adapter is, and the loop that lets another process speak to it: one JSON object a line, one line back.

The loop runs inside the peer's environment, so it imports nothing but the standard library.

| asked | answered |
| --- | --- |
| `{"op": "hello"}` | `{"python", "packages": {name: version}}` |
| `{"op": "open", "folder", "embedder", "threshold", "capacity", ...}` | what `Adapter.open` returns |
| `{"op": "fill", "prompts", "answers"}` | `{}`: all are stored, by the peer's way for many where it has one |
| `{"op": "put", "prompts", "answers"}` | `{"ns": [...]}` |
| `{"op": "get", "prompts"}` | `{"answers": [str or null], "scores": [float or null], "ns": [...], "cpu_ns": int}` |
| `{"op": "stream", "prompts", "answers"}` | as `get`; a prompt that finds nothing is put before the next is asked |
| `{"op": "pairs", "opening", "stored", "asked"}` | `{"answers", "scores"}`: for each, an empty cache that holds one |
| `{"op": "flood", "prompt", "answer", "callers", "upstream_s"}` | `{"upstream_calls": int, "errors": [...]}` |
| `{"op": "close"}` | `{}` |

A prompt is a string, or a list of strings: the turns of a conversation, user and assistant in turn, of which the last
is asked. `ns` are the nanoseconds of each call, taken here, so that the pipe costs none of them. Whatever the peer
raises comes back as `{"error": text}`. What it prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import metadata
from typing import Any, Protocol

Turns = Sequence[str]
"""A conversation; the last turn is the one asked."""

Found = tuple[str | None, float | None]
"""The answer served, or None, and what the peer tells of how near it was, on the peer's own scale."""


class Adapter(Protocol):
    """A peer's cache, as its documentation says to use it."""

    packages: tuple[str, ...]
    """Distributions whose versions the result names."""

    def open(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Open an empty cache, closing the one before; return what it is set to, `threshold` above all.

        `settings` has at least `folder` (an empty one), `embedder` (a name of ours, None: the peer's default),
        `threshold` (None: the peer's default) and `capacity` (entries, None: no limit).
        """

    def put(self, turns: Turns, answer: str) -> None:
        """Store an answer."""

    def get(self, turns: Turns) -> Found:
        """Look a prompt up."""

    # An adapter may also have `fill(prompts, answers)`, where the peer has a way to store many at once.

    def close(self) -> None:
        """Release what `open` opened; a second call does nothing."""


def turns(prompt: str | list[str]) -> list[str]:
    """Return the turns of a prompt."""
    return [prompt] if isinstance(prompt, str) else prompt


def messages(turns: Turns) -> list[dict[str, str]]:
    """Return a conversation as the chat APIs take it."""
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(turns)]


def serve(adapter: Adapter) -> None:
    """Answer standard input's lines until it ends."""
    # The peers print; only the loop may write to what the driver reads.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            answer = handle(adapter, json.loads(line))
        except BaseException as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
            if isinstance(error, KeyboardInterrupt):
                raise
        out.write(json.dumps(answer) + "\n")
        out.flush()
    adapter.close()


def handle(adapter: Adapter, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Do what one line asks."""
    op = asked["op"]
    if op == "hello":
        return {"python": platform.python_version(), "packages": versions(adapter.packages)}
    if op == "open":
        return adapter.open({key: value for key, value in asked.items() if key != "op"})
    if op == "fill":
        many = getattr(adapter, "fill", None) or partial(_one_by_one, adapter)
        many([turns(prompt) for prompt in asked["prompts"]], asked["answers"])
        return {}
    if op == "put":
        return {"ns": [_put(adapter, one, answer) for one, answer in _pairs(asked)]}
    if op == "get":
        return _get(adapter, [(turns(prompt), None) for prompt in asked["prompts"]])
    if op == "stream":
        return _get(adapter, _pairs(asked))
    if op == "pairs":
        return apart(adapter, asked["opening"], asked["stored"], asked["asked"])
    if op == "flood":
        return flood(adapter, turns(asked["prompt"]), asked["answer"], asked["callers"], asked["upstream_s"])
    if op == "close":
        adapter.close()
        return {}
    raise ValueError(f"there is no operation {op!r}")


def _pairs(asked: Mapping[str, Any]) -> list[tuple[list[str], str]]:
    return [(turns(prompt), answer) for prompt, answer in zip(asked["prompts"], asked["answers"], strict=True)]


def _one_by_one(adapter: Adapter, prompts: Sequence[Turns], answers: Sequence[str]) -> None:
    for prompt, answer in zip(prompts, answers, strict=True):
        adapter.put(prompt, answer)


def _put(adapter: Adapter, prompt: Turns, answer: str) -> int:
    started = time.perf_counter_ns()
    adapter.put(prompt, answer)
    return time.perf_counter_ns() - started


def _get(adapter: Adapter, asked: Sequence[tuple[Turns, str | None]]) -> dict[str, Any]:
    """Look up each prompt; where an answer stands beside it and nothing was found, put it."""
    answers, scores, taken = [], [], []
    clock, busy = time.perf_counter_ns, time.process_time_ns()
    for prompt, fresh in asked:
        started = clock()
        answer, score = adapter.get(prompt)
        taken.append(clock() - started)
        answers.append(answer)
        scores.append(score)
        if answer is None and fresh is not None:
            adapter.put(prompt, fresh)
    return {"answers": answers, "scores": scores, "ns": taken, "cpu_ns": time.process_time_ns() - busy}


def apart(
    adapter: Adapter, opening: Mapping[str, Any], stored: Sequence[str | list[str]], asked: Sequence[str | list[str]]
) -> dict[str, Any]:
    """Open a cache for each pair, in a folder of its own, put the one prompt and get the other."""
    answers, scores = [], []
    for number, (one, other) in enumerate(zip(stored, asked, strict=True)):
        folder = os.path.join(opening["folder"], str(number))
        os.mkdir(folder)
        adapter.open({**opening, "folder": folder})
        adapter.put(turns(one), "stored")
        answer, score = adapter.get(turns(other))
        answers.append(answer)
        scores.append(score)
    adapter.close()
    return {"answers": answers, "scores": scores}


def flood(adapter: Adapter, prompt: Turns, answer: str, callers: int, upstream_s: float) -> dict[str, Any]:
    """Let threads ask for one unknown prompt at the same time, each calling upstream and storing when it finds none.

    It is what a program does that holds the cache as a library.
    """
    gate = threading.Barrier(callers)
    calls: list[int] = []
    errors: list[str] = []

    def ask(caller: int) -> None:
        gate.wait()
        try:
            if adapter.get(prompt)[0] is None:
                calls.append(caller)
                time.sleep(upstream_s)
                adapter.put(prompt, answer)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}"[:200])

    threads = [threading.Thread(target=ask, args=(caller,)) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"upstream_calls": len(calls), "errors": errors}


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of those of the distributions that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
