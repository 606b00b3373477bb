"""What a cache costs that replicas share over PostgreSQL, beside the embedded one.

    python benchmarks/postgres.py --out results/postgres.json [--entries 200000] [--calls 2000] [--outage 30]

PostgreSQL with pgvector runs beside it, on the same machine, over a socket, with fsync on, 1 GB of shared
buffers, and otherwise as installed.
Half of the entries are one partition, a tenth another, and the rest are partitions of 1,900. Every lookup is checked:
what it is, and whose answer. Embedded and shared are timed in turns, in one thread; compare ratios and processor time
rather than wall times, which a busy machine stretches.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.serve import sentences
from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.policy.static import StaticPolicy
from recall_cli.cache.request import text_request
from recall_cli.cache.stores.read_through import ReadThroughStore
from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.errors import GateFailed
from recall_cli.measure.result import OutFile, new_result, to_json
from recall_cli.measure.timing import Arm, interleave, microseconds, one_thread, ratio, sketch
from recall_cli.postgres import lookup
from recall_cli.postgres.replica_cache import SharedCache
from recall_cli.postgres.replica_sync import Follower
from recall_cli.postgres.store import PostgresStore
from recall_cli.types import Completion, Lookup, Outcome, Put, Request, Store, Usage

TAU, NEAR = 0.8, 0.8
BUFFERS = "1GB"
"""The server's memory for pages: with less than the graphs take, a search reads them again and again."""
SMALL = 1_900
"""Rows of most partitions: as many as are compared whole."""
BATCH = 64
"""Answers stored at a time, as the server does."""
BODY = b'{"choices": [{"message": {"content": "%s"}, "finish_reason": "stop"}], "text": "' + b"word " * 300 + b'"}'
EPSILON = 1e-5
"""Neighbours this close are the same: the database computes its similarities in another order."""

Spaces = dict[str, list[str]]


def make_spaces(entries: int) -> Spaces:
    """Return the texts by namespace, each namespace a partition."""
    texts = sentences(entries, seed=1)
    cuts = [entries // 2, entries // 10]
    while (left := entries - sum(cuts)) > 0:
        cuts.append(min(SMALL, left))
    spaces, at = {}, 0
    for number, size in enumerate(cuts):
        spaces[f"space-{number}-of-{size}"] = texts[at : at + size]
        at += size
    return spaces


def fill(store: Store, spaces: Spaces, embedder: Any) -> float:
    """Store an answer to each text, in the server's batches; return the seconds that took, embedding left out."""
    took = 0.0
    for space, texts in spaces.items():
        vectors = embedder.embed_many(texts)
        for at in range(0, len(texts), BATCH):
            started = time.perf_counter()
            with store.batch():
                for text, vector in zip(texts[at : at + BATCH], vectors[at : at + BATCH], strict=True):
                    answer = Completion(BODY % text.encode(), "m", Usage(120, 130), 1.0)
                    store.append(text_request(text, space), answer, vector, created=1.0, expires=None)
            took += time.perf_counter() - started
    return took


def expect(outcome: Outcome) -> Callable[[Request, Lookup], None]:
    """Return what checks that a lookup is of this outcome, and of the answer to the text that was asked."""

    def check(request: Request, found: Lookup) -> None:
        text = request.text.removesuffix(" please").encode()
        if found.decision.outcome is not outcome or found.completion is None or text not in found.completion.body:
            raise GateFailed(
                f"{request.text!r} was to be {outcome}, and is {found.decision}", hint="look at the engine"
            )

    return check


def arm(name: str, cache: Cache, requests: Sequence[Request], outcome: Outcome, may_miss: bool = False) -> Arm:
    """Return an arm of checked lookups, each of which was made once before.

    :param may_miss: a graph finds nearly all, and what it does not find is a miss.
    """
    check = expect(outcome)

    def look(request: Request) -> None:
        found = cache.get(request)
        if not may_miss or found.completion is not None:
            check(request, found)

    for request in requests:
        look(request)
    return Arm(name, look, requests)


def row(arm: Arm, **facts: Any) -> dict[str, Any]:
    """Return an arm as a row."""
    cpu = round(median(arm.cpu) / 1_000, 2)
    return {"arm": arm.name, **facts, "us": microseconds(arm), "cpu_us": cpu, "sketch": sketch(arm)}


def spread(texts: Sequence[str], n: int) -> Sequence[str]:
    """Return n of the texts, evenly spread over them."""
    return texts[:: max(1, len(texts) // n)][:n]


def pick(spaces: Spaces, space: str, n: int, tail: str = "") -> list[Request]:
    """Return requests for some of a namespace's texts, spread over it."""
    return [text_request(text + tail, space) for text in spread(spaces[space], n)]


def local(
    spaces: Spaces, shared: SharedCache, embedded: Cache, calls: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Time hits on entries in memory: embedded and shared in turns."""
    rows, ratios = [], {}
    for space in list(spaces)[:3]:
        for outcome, tail in ((Outcome.EXACT, ""), (Outcome.SEMANTIC, " please")):
            # Fewer than stay in memory with their answers: what is timed is the lookup, not the disk behind it.
            requests = pick(spaces, space, 500, tail)
            arms = [arm(f"{outcome.lower()}, embedded", embedded, requests, outcome)]
            arms.append(arm(f"{outcome.lower()}, shared, in memory", shared, requests, outcome))
            interleave(arms, calls=calls, warmup=200, seed=0)
            rows += [row(one, partition_rows=len(spaces[space])) for one in arms]
            ratios[f"{outcome.lower()}_in_{len(spaces[space])}"] = ratio(arms[1], arms[0])
    return rows, ratios


def cold(spaces: Spaces, replica: SharedCache, calls: int) -> list[dict[str, Any]]:
    """Time lookups of a replica that holds nothing, and count its nearest neighbours that are the nearest."""
    rows = []
    n = min(calls, 500)
    for space in list(spaces)[:3]:
        facts = {"partition_rows": len(spaces[space])}
        exact = arm("exact, from the database", replica, pick(spaces, space, n), Outcome.EXACT)
        near = arm("semantic, from the database", replica, pick(spaces, space, n, " please"), Outcome.SEMANTIC, True)
        interleave([exact, near], calls=n, warmup=50, seed=0)
        rows += [row(exact, **facts), row(near, **facts, **recall(spaces, replica, space, n))]
    return rows


def recall(spaces: Spaces, replica: SharedCache, space: str, n: int) -> dict[str, Any]:
    """Return the share of queries whose nearest neighbour the database finds, given that there is a near one."""
    embedder, texts = replica.embedder, spaces[space]
    vectors = embedder.embed_many(texts)
    words = [text.split() for text in spread(texts, n)]
    # A text with words left out: from the very near to the merely related.
    queries = embedder.embed_many([" ".join(text[number % 6 :]) for number, text in enumerate(words)])
    partition, found, near = text_request("", space).partition, 0, 0
    for query in queries:
        best = float((vectors @ query).max())
        if best >= NEAR:
            near += 1
            first = lookup.nearest(replica.shared, partition, query, 1, 2.0)
            found += bool(first) and first[0].similarity >= best - EPSILON
    return {"recall_at_1_near": found / near, "near_n": near, "queries": len(queries)}


def propagation(one: SharedCache, other: SharedCache, space: str, times: int) -> dict[str, Any]:
    """Return how long after a write was acknowledged another replica serves it, from memory, as it does in service."""
    delays = []
    for number, text in enumerate(sentences(times, seed=2)):
        request = text_request(text, space)
        one.put_many([Put(request, Completion(BODY % text.encode()))])
        started = time.perf_counter()
        while request.identity not in other._shelf.by_identity:
            time.sleep(0.002)
        delays.append(time.perf_counter() - started)
        expect(Outcome.EXACT)(request, other.get(request))
        near = text_request(text + " please", space)
        expect(Outcome.SEMANTIC)(near, other.get(near))
        time.sleep(0.013 * (number % 16))  # at any moment between two looks at the feed
    return {"times": times, "p50_ms": round(1e3 * median(delays), 1), "max_ms": round(1e3 * max(delays), 1)}


def resident() -> int:
    """Return this process's resident bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def following(url: str, embedder: Any, **options: Any) -> Iterator[SharedCache]:
    """Open a replica with its follower."""
    cache = SharedCache(
        embedder=embedder, policy=StaticPolicy(TAU), store=PostgresStore(url, embedder=embedder), **options
    )
    try:
        Follower(cache, fault=lambda error: print("a turn failed:", error, file=sys.stderr)).start()
        yield cache
    finally:
        cache.close()


def hold(cache: SharedCache, spaces: Spaces) -> dict[str, Any]:
    """Bring every partition into memory; return how long it took, and what it took."""
    before, started = resident(), time.perf_counter()
    for space in spaces:
        cache.want(text_request("", space).partition)
    total = sum(map(len, spaces.values()))
    while len(cache) < total or len(cache.held) < len(spaces):
        time.sleep(0.05)
    took = time.perf_counter() - started
    return {"entries": total, "s": round(took, 2), "bytes_per_entry": round((resident() - before) / total)}


def idle(seconds: float = 10.0) -> float:
    """Return the share of one core that a replica takes which nobody asks."""
    busy = time.process_time()
    time.sleep(seconds)
    return round((time.process_time() - busy) / seconds, 5)


def run(arguments: argparse.Namespace, folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Measure, and return rows and summary."""
    from tests.postgres.server import Server

    embedder = make_embedder("static")
    spaces = make_spaces(arguments.entries)
    server = Server(fsync=True, buffers=BUFFERS)
    try:
        url = server.new_url()
        store = PostgresStore(url, embedder=embedder)
        summary: dict[str, Any] = {"server": server.version(), "entries": sum(map(len, spaces.values()))}
        summary["store_s"] = {"shared": round(fill(store, spaces, embedder), 1)}
        started = time.perf_counter()
        summary["graphs"] = lookup.tend_graphs(store.database)[0]
        summary["graphs_s"] = round(time.perf_counter() - started, 1)
        with server.superuser(url) as db:
            db.execute("VACUUM ANALYZE")
            summary["database_bytes"] = db.execute("SELECT pg_database_size(current_database())").fetchone()[0]
        store.close()
        sqlite = SqliteStore(folder / "answers.db", embedder=embedder)
        summary["store_s"]["embedded"] = round(fill(sqlite, spaces, embedder), 1)
        embedded = Cache(embedder=embedder, policy=StaticPolicy(TAU), store=ReadThroughStore(sqlite))
        with following(url, embedder) as nothing:
            nothing.want = lambda partition: None
            rows = cold(spaces, nothing, arguments.calls)
            summary["idle_cpu"] = idle()
            with following(url, embedder, held_bytes=4 << 30) as shared:
                summary["held"] = hold(shared, spaces)
                more, summary["ratios"] = local(spaces, shared, embedded, arguments.calls)
                summary["propagation"] = propagation(nothing, shared, list(spaces)[2], arguments.times)
        embedded.close()
        rows += more
        if arguments.outage:
            from benchmarks.outage import outage

            summary["outage"] = outage(server, folder, arguments.outage)
        return rows, summary
    finally:
        server.stop()


def main() -> None:
    """Run, and write the result document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--outage", type=float, default=30.0, metavar="SECONDS")
    arguments = parser.parse_args()
    out = OutFile(arguments.out)
    params = {name: value for name, value in vars(arguments).items() if name != "out"}
    result = new_result("benchmarks/postgres", {**params, "tau": TAU, "buffers": BUFFERS})
    with tempfile.TemporaryDirectory() as folder, one_thread():
        result.rows, result.summary = run(arguments, Path(folder))
    out.write(to_json(result))
    print(json.dumps(result.summary, indent=2))


if __name__ == "__main__":
    main()
