"""The database cut off while `recall serve` is under load: what its callers notice. See benchmarks/postgres.py."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tests.postgres.server import Server
    from tests.proxy.fake import Answer

CALLERS = 4
AROUND_S = 10.0
"""Seconds of load before and after."""
KNOWN = [f"How do I reset the password of account {n}?" for n in range(50)]


def outage(server: Server, folder: Path, seconds: float) -> dict[str, Any]:
    """Cut the database off for so long under load; return what was answered before, during and after."""
    from tests.postgres.server import Cable
    from tests.proxy.answers import provider
    from tests.proxy.fake import FakeUpstream

    cable, upstream = Cable(server), FakeUpstream(provider(lambda prompt: f"to {prompt}"))
    url = server.through(server.new_url(), cable.folder)
    process = subprocess.Popen(
        [sys.executable, "-m", "recall_cli", "serve", "--port", "0", "--store", url, "--tau", "1", "--log",
         str(folder / "log.jsonl"), "--upstream-openai", upstream.url],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        port = int(re.findall(r"127\.0\.0\.1:(\d+)", process.stdout.readline())[0])
        phases = {}
        for name, lasts in (("before", AROUND_S), ("cut", seconds), ("after", AROUND_S)):
            if name == "cut":
                cable.cut()
            if name == "after":
                cable.mend()
                cable.tear()
            phases[name] = _load(port, name, lasts)
        return {"callers": CALLERS, **phases}
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        upstream.close()
        cable.close()


def _load(port: int, name: str, seconds: float) -> dict[str, Any]:
    """Ask for so long, half of it what was asked before; return counts and times."""
    ends, seen, lock, numbers = time.monotonic() + seconds, Counter[str](), threading.Lock(), itertools.count()
    took: list[float] = []
    first_hit: list[float] = []

    def call() -> None:
        while time.monotonic() < ends:
            number = next(numbers)
            prompt = KNOWN[number % 50] if number % 2 else f"What does article {number} of list {name} cost?"
            started = time.monotonic()
            got = _ask(port, prompt)
            now = time.monotonic()
            with lock:
                took.append(now - started)
                seen["failed" if got.status != 200 or got.text != f"to {prompt}" else got.outcome or "none"] += 1
                if got.outcome == "EXACT" and not first_hit:
                    first_hit.append(now - ends + seconds)

    with ThreadPoolExecutor(CALLERS) as pool:
        for done in [pool.submit(call) for _ in range(CALLERS)]:
            done.result()
    p50, p99 = (round(1e3 * float(value), 1) for value in np.quantile(took, (0.5, 0.99)))
    return {
        "seconds": seconds,
        "requests": len(took),
        "failed": seen.pop("failed", 0),
        "outcomes": dict(seen),
        "p50_ms": p50,
        "p99_ms": p99,
        "max_ms": round(1e3 * max(took), 1),
        "first_hit_s": round(first_hit[0], 2) if first_hit else None,
    }


def _ask(port: int, prompt: str) -> Answer:
    from tests.proxy.fake import ask

    class Place:
        def __init__(self) -> None:
            self.port = port

    return ask(Place(), prompt)  # type: ignore[arg-type]
