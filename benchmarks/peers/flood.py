"""How many of the callers that ask for one unknown prompt at the same time reach the provider.

Libraries are asked by threads of one process, as a program that holds the cache would; proxies over HTTP. One is the
best there is; as many as there are callers means that nothing is collapsed.
"""

from __future__ import annotations

import json
import tempfile
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.peers.bench import Bench, Row
from benchmarks.peers.proxies import KEY, PROXIES, Up, all_up
from benchmarks.peers.upstream import ANSWER_S
from benchmarks.serve import body, sentences

CALLERS, TIMES = 16, 3


def run(bench: Bench) -> list[Row]:
    """Return a row for each library and each proxy."""
    rows: list[Row] = []
    texts = sentences(TIMES, seed=6)
    for arm in bench.arms:
        with bench.all_opened([arm], rows, "flood") as running:
            for peer, _ in running.values():
                told = [
                    peer.ask("flood", prompt=text, answer="an answer", callers=CALLERS, upstream_s=ANSWER_S)
                    for text in texts
                ]
                errors = sorted({error for one in told for error in one["errors"]})
                rows.append(row(arm.name, "library", [one["upstream_calls"] for one in told], errors))
    chosen = bench.chosen(PROXIES)
    with tempfile.TemporaryDirectory(dir=bench.stores) as folder, all_up(bench, chosen, Path(folder)) as (up, absent):
        for proxy in chosen:
            if proxy in absent:
                rows.append(bench.not_run("flood", proxy, absent[proxy]))
                continue
            asked = [at_once(up[proxy], text) for text in texts]
            errors = sorted({error for _, failed in asked for error in failed})
            rows.append(row(proxy.name, "proxy", [calls for calls, _ in asked], errors))
    return rows


def row(name: str, kind: str, calls: list[int], errors: list[str]) -> Row:
    """Return one row: the provider's calls of each time, and what failed."""
    told: Row = {"workload": "flood", "arm": name, "kind": kind, "ran": True, "callers": CALLERS}
    return told | {"upstream_calls": calls, "errors": errors}


def at_once(up: Up, text: str) -> tuple[int, list[str]]:
    """Send one request from many callers; return how many reached the provider, and what failed."""
    before = up.calls()
    gate = threading.Barrier(CALLERS)

    def ask(_: int) -> str:
        gate.wait()
        return post(up.url, body(text))

    with ThreadPoolExecutor(CALLERS) as pool:
        said = list(pool.map(ask, range(CALLERS)))
    return up.calls() - before, [one for one in said if one]


def post(url: str, text: str) -> str:
    """Ask for a chat completion; return what went wrong, or nothing."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", text.encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            json.load(answer)
    except OSError as error:
        return str(error)
    return ""
