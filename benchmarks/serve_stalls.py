"""How long the event loop of `recall serve` stands still while its cache grows.

    python benchmarks/serve_stalls.py --out results/serve-stalls.json [--entries 100000]

One process: the keeper of the server over a SQLite store. The writer thread stores answers in batches of 64 without a
pause, as under the heaviest load of misses; the event loop looks prompts up all the while, one after the other, and
notes how long it took from each turn to the next. What is not the lookup itself is a stall: a lock held by an
insertion, the interpreter's lock, or another process on the machine. Then the store is opened again, and timed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

BATCH, LOOKUPS_AHEAD = 64, 2_000
LIMIT_S = 0.005


async def grow(folder: Path, entries: int) -> list[dict[str, Any]]:
    """Fill a store while looking up; return one row a tenth of the way."""
    from benchmarks.serve import sentences
    from benchmarks.serve_load import answer
    from recall_cli.cache.cache import Cache
    from recall_cli.cache.embed.registry import make_embedder
    from recall_cli.cache.policy.static import StaticPolicy
    from recall_cli.cache.request import text_request
    from recall_cli.cache.stores.read_through import ReadThroughStore
    from recall_cli.cache.stores.sqlite import SqliteStore
    from recall_cli.proxy.lookup import CacheRunner
    from recall_cli.proxy.metrics import Metrics
    from recall_cli.proxy.serve import SWITCH_S, settle_memory
    from recall_cli.proxy.settings import Limits
    from recall_cli.stats import quantile
    from recall_cli.types import Completion, Put, Usage

    embedder = make_embedder("static")
    store = ReadThroughStore(SqliteStore(folder / "stalls.db", embedder=embedder))
    cache = Cache(embedder=embedder, policy=StaticPolicy(), store=store)
    keeper = CacheRunner(cache, Limits(), Metrics())
    stored = Completion(answer("word " * 130), "gpt-4o-2024-08-06", Usage(120, 130), time.time())
    texts = sentences(entries, seed=1)
    vectors = embedder.embed_many(texts)  # in the server they come with the lookup that missed
    puts = [Put(text_request(text), stored, vector) for text, vector in zip(texts, vectors, strict=True)]
    asked = [text_request(text) for text in sentences(LOOKUPS_AHEAD, seed=2)]
    sys.setswitchinterval(SWITCH_S)
    settle_memory()
    rows = []
    loop = asyncio.get_running_loop()
    for tenth in range(10):
        own = puts[tenth * entries // 10 : (tenth + 1) * entries // 10]
        left = [own[at : at + BATCH] for at in range(0, len(own), BATCH)]
        done = asyncio.Event()

        def store_next(left: list[list[Put]] = left, done: asyncio.Event = done) -> None:
            if not left:
                loop.call_soon_threadsafe(done.set)
                return
            cache.put_many(left.pop(0))
            keeper.write(lambda: store_next(left, done))

        keeper.write(store_next)
        turns, started, n = [], time.perf_counter(), 0
        while not done.is_set():
            await keeper.find(asked[n % len(asked)])
            await asyncio.sleep(0)
            now = time.perf_counter()
            turns.append(now - started)
            started, n = now, n + 1
        rows.append({
            "entries": (tenth + 1) * entries // 10, "turns": len(turns),
            "turn_us": {"p50": quantile(turns, 0.5) * 1e6, "p99": quantile(turns, 0.99) * 1e6,
                        "p99.9": quantile(turns, 0.999) * 1e6, "max": max(turns) * 1e6},
            "over_5_ms": sum(turn > LIMIT_S for turn in turns), "load_average": os.getloadavg()[0],
        })  # fmt: skip
        print(json.dumps(rows[-1]), file=sys.stderr)
    keeper.close()
    return rows


def insertion(entries: int, rows: int) -> dict[str, float]:
    """Insert into an index alone, so many rows at a time; return milliseconds of processor time a call."""
    import numpy as np

    from benchmarks.serve import sentences
    from recall_cli.cache.embed.registry import make_embedder
    from recall_cli.cache.index.auto import AutoIndex
    from recall_cli.proxy.serve import settle_memory
    from recall_cli.stats import quantile

    vectors = make_embedder("static").embed_many(sentences(entries, seed=1))
    settle_memory()  # as the server does, or the collector's looks at everything would be counted too
    index, took = AutoIndex(vectors.shape[1]), []
    for at in range(0, entries - rows + 1, rows):
        started = time.thread_time()
        index.add(np.arange(at, at + rows), vectors[at : at + rows])
        took.append((time.thread_time() - started) * 1e3)
    return {"rows": rows, "p50_ms": quantile(took, 0.5), "p99_ms": quantile(took, 0.99), "max_ms": max(took),
            "over_5_ms": sum(took_ms > LIMIT_S * 1e3 for took_ms in took)}  # fmt: skip


def reopen(folder: Path) -> dict[str, float]:
    """Open the store again, as a restarted server does."""
    from recall_cli.cache.cache import Cache
    from recall_cli.cache.embed.registry import make_embedder
    from recall_cli.cache.policy.static import StaticPolicy
    from recall_cli.cache.stores.sqlite import SqliteStore

    embedder = make_embedder("static")
    took = []
    for _ in range(3):
        started, cpu = time.perf_counter(), time.process_time()
        cache = Cache(
            embedder=embedder, policy=StaticPolicy(), store=SqliteStore(folder / "stalls.db", embedder=embedder)
        )
        took.append((time.perf_counter() - started, time.process_time() - cpu))
        held = len(cache)
        cache.close()
    best = min(took)
    return {"entries": held, "open_s": best[0], "open_cpu_s": best[1]}


def main() -> None:
    """Run, and write the result document."""
    from recall_cli.measure.result import OutFile, new_result, to_json

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--entries", type=int, default=100_000)
    arguments = parser.parse_args()
    out = OutFile(arguments.out)
    result = new_result("benchmarks/serve_stalls", {"entries": arguments.entries, "batch": BATCH})
    with tempfile.TemporaryDirectory() as folder:
        result.rows = uvloop.run(grow(Path(folder), arguments.entries))
        result.summary = {
            "turns": sum(row["turns"] for row in result.rows),
            "over_5_ms": sum(row["over_5_ms"] for row in result.rows),
            "max_us": max(row["turn_us"]["max"] for row in result.rows),
            "reopened": reopen(Path(folder)),
            "insertion": [insertion(arguments.entries, rows) for rows in (1, BATCH)],
        }
    out.write(to_json(result))
    print(json.dumps(result.summary, indent=2))


if __name__ == "__main__":
    main()
