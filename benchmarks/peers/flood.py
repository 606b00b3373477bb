"""How many of the callers that ask for one unknown prompt at the same time reach the provider.

Libraries are asked by threads of one process, as a program that holds the cache would; proxies over HTTP. One is the
best there is; as many as there are callers means that nothing is collapsed. Fewer than one means that a semantic cache
answered with what it had stored for another prompt: `wrong` counts those callers.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks.peers.bench import Bench, Row
from benchmarks.peers.proxies import KEY, PROXIES, Up, all_up
from benchmarks.peers.upstream import ANSWER_S, answer_to
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
    with all_up(bench) as (up, absent):
        for proxy in bench.chosen(PROXIES):
            if proxy in absent:
                rows.append(bench.not_run("flood", proxy, absent[proxy]))
                continue
            asked = [at_once(up[proxy], text) for text in texts]
            errors = sorted({error for one in asked for error in one.errors})
            rows.append(row(proxy.name, "proxy", [one.calls for one in asked], errors, sum(one.wrong for one in asked)))
    return rows


def row(name: str, kind: str, calls: list[int], errors: list[str], wrong: int | None = None) -> Row:
    """Return one row: the provider's calls of each time, what failed, and who got another prompt's answer."""
    told: Row = {"workload": "flood", "arm": name, "kind": kind, "ran": True, "callers": CALLERS}
    return told | {"upstream_calls": calls, "errors": errors, "wrong": wrong}


@dataclass(frozen=True, slots=True)
class Flooded:
    """What came of one prompt asked by all callers at once."""

    calls: int
    errors: list[str]
    wrong: int


def at_once(up: Up, text: str) -> Flooded:
    """Send one request from many callers; return how many reached the provider, and what the callers got."""
    before = up.calls()
    gate = threading.Barrier(CALLERS)

    def ask(_: int) -> Said:
        gate.wait()
        return post(up.url, body(text))

    with ThreadPoolExecutor(CALLERS) as pool:
        said = list(pool.map(ask, range(CALLERS)))
    errors = [one.error for one in said if one.error]
    return Flooded(up.calls() - before, errors, sum(not one.error and one.text != answer_to(text) for one in said))


@dataclass(frozen=True, slots=True)
class Said:
    """The text of an answer, or why there is none."""

    text: str = ""
    error: str = ""


def post(url: str, text: str) -> Said:
    """Ask for a chat completion.

    :param text: the request's body.
    """
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", text.encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return Said(text=json.load(answer)["choices"][0]["message"]["content"])
    except OSError as error:
        return Said(error=str(error))
