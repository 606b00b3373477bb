"""What people see of benchmarks/serve.py's document: what a request costs, and what stands beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recall_cli.cli.render.blocks import Block, Line, number, table
from recall_cli.types import Result

ARMS = {
    "bare": "a bare application, no cache",
    "exact@10000": "exact hit, 10,000 entries",
    "exact@100000": "exact hit, 100,000 entries",
    "semantic@10000": "hit by meaning, 10,000 entries",
    "semantic@100000": "hit by meaning, 100,000 entries",
    "stored miss": "miss, stored",
    "streamed miss": "miss, streamed and stored",
    "litellm hit": "LiteLLM's proxy cache, hit",
}
MANY, ONE = "c=64", "c=1"


def view(result: Result) -> Sequence[Block]:
    """Return a row an arm, at 64 connections and at one, and what comes later for being passed on."""
    summary = result.summary
    bare = summary[f"bare {MANY}"]["requests_per_s"]
    rows = [
        _row(name, summary[f"{arm} {MANY}"], summary.get(f"{arm} {ONE}", {}), bare)
        for arm, name in ARMS.items()
        if f"{arm} {MANY}" in summary
    ]
    names = ("request", "CPU us, 64", "requests/s, 64", "of the bare", "p50 ms, 64", "p50 ms, 1", "MB")
    ratios = summary["ratios"]
    later, stream = ratios["added_first_byte_us"] / 1e3, ratios["added_first_byte_of_stream_us"] / 1e3
    return [
        table("What a request costs the server, at 64 connections and at 1", names, rows),
        Line(
            f"A miss's first byte comes {later:.1f} ms later than without the proxy, that of a stream {stream:.1f} ms. "
            "CPU is the server's own, one process on one core; callers and upstream have another. The upstream "
            "answers after 5 ms, and the 50 chunks of a stream come a millisecond apart."
        ),
    ]


def _row(name: str, many: Mapping[str, Any], one: Mapping[str, Any], bare: float) -> tuple[str, ...]:
    alone = one.get("p50_us")
    return (
        name,
        number(many["cpu_us"], 0),
        number(many["requests_per_s"], 0),
        number(many["requests_per_s"] / bare, 3),
        number(many["p50_us"] / 1e3, 1),
        number(None if alone is None else alone / 1e3, 2),
        number(many["rss_mb"], 0),
    )
