"""Lifetimes, sizes and the cold start: held to a cache that is worked out the slow way."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.errors import UsageError
from recall_cli.measure.savings import replay, sweep
from recall_cli.measure.savings.replay import NO_HIT, Timing, served_by_key
from recall_cli.measure.savings.savings import SavingsPlan, run
from recall_cli.measure.savings.sweep import Limit, capacities, durations, hits_within
from tests.logs.log_writers import openai_call as call

HOUR, DAY, NEW_YEAR = 3_600.0, 86_400.0, 1_767_225_600.0


def timing(starts: Sequence[float], took: Sequence[float]) -> Timing:
    start = np.array(starts, dtype=np.float64)
    return replay.timing(start, start + np.array(took, dtype=np.float64))


def slow(keys: list[int], time: Timing, limit: Limit, sizes: list[int]) -> list[bool]:
    """A list of entries, least recently used first; answers come in once the call that fetched them has ended."""
    held: list[tuple[int, float, int]] = []
    hits: list[bool] = []
    for at, key in enumerate(keys):
        arrived = [j for j in range(at) if time.since[j] == at and not hits[j]]
        for j in sorted(arrived, key=lambda j: int(time.rank[j])):
            if sizes[j] > limit.bytes:
                continue
            held = [entry for entry in held if entry[0] != keys[j]] + [(keys[j], float(time.ready[j]), sizes[j])]
            while len(held) > limit.entries or sum(size for _, _, size in held) > limit.bytes:
                held.pop(0)
        entry = next((entry for entry in held if entry[0] == key), None)
        if entry is not None:
            held.remove(entry)
            if entry[1] + limit.ttl_s > time.start[at]:
                held.append(entry)
            else:
                entry = None
        hits.append(entry is not None)
    return hits


calls = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 20), st.integers(0, 6), st.integers(1, 4)), min_size=1, max_size=40
)
limits = st.builds(
    Limit,
    ttl_s=st.sampled_from([1.0, 5.0, math.inf]),
    entries=st.sampled_from([1, 2, 3, math.inf]),
    bytes=st.sampled_from([2, 5, 9, math.inf]),
)


@given(calls, limits)
def test_hits_are_those_of_a_cache_asked_in_turn(log: list[tuple[int, int, int, int]], limit: Limit) -> None:
    keys, starts, took, sizes = (list(column) for column in zip(*sorted(log, key=lambda c: c[1]), strict=True))
    time = timing(starts, took)
    found = hits_within(np.array(keys, dtype=np.int32), time, limit, np.array(sizes, dtype=np.int64))
    assert found.tolist() == slow(keys, time, limit, sizes)


@given(calls)
def test_without_limits_it_is_the_replay(log: list[tuple[int, int, int, int]]) -> None:
    keys, starts, took, _ = (list(column) for column in zip(*sorted(log, key=lambda c: c[1]), strict=True))
    time, column = timing(starts, took), np.array(keys, dtype=np.int32)
    assert hits_within(column, time, Limit()).tolist() == (served_by_key(column, time) != NO_HIT).tolist()


def test_lists_of_limits() -> None:
    assert durations("90s,5m, 1h,1d,2w,inf,1h") == (90, 300, HOUR, DAY, 14 * DAY, math.inf)
    assert capacities("100,64MB,1.5GB,inf,inf") == (
        Limit(entries=100), Limit(bytes=64e6), Limit(bytes=1.5e9), Limit(),
    )  # fmt: skip
    for text in ("", "5", "0s", "-1h", "1y", "one day", "nan", "5m,,1h"):
        with pytest.raises(UsageError):
            durations(text)
    for text in ("", "0", "-5", "10 apples", "5m", "1.0TiB"):
        with pytest.raises(UsageError):
            capacities(text)


def measure(path: Path, lines: list[dict[str, Any]], **plan: Any) -> dict[str, Any]:
    path.write_text("\n".join(map(json.dumps, lines)))
    return run(SavingsPlan([str(path)], **{"tiers": "exact,normalised", **plan})).summary


def test_the_tables_of_a_log(tmp_path: Path) -> None:
    """One prompt every ten minutes for a day, and one that comes twice, a week apart; $0.0035 each."""
    lines = [call("often", NEW_YEAR + 600 * i) for i in range(144)]
    lines += [call("red ox", NEW_YEAR), call("Red ox!", NEW_YEAR + 7 * DAY)]
    summary = measure(tmp_path / "log", lines, capacity="1,2,340B,inf", ttl="5m,1h,8d,inf")
    # Of an hour after it was stored, five later calls are served and the sixth finds it gone: 24 stored, 120 served.
    assert [(row["ttl_s"], row["hits"]) for row in summary["ttl"]] == [
        (300, 0), (HOUR, 143 - 143 // 6), (8 * DAY, 144), (None, 144),
    ]  # fmt: skip
    assert summary["ttl"][-1]["usd"] == pytest.approx(144 * 0.0035)
    assert summary["ttl"][-1]["hits"] == summary["tiers"]["combined"]["hits"]
    # Where one fits, the answer to "red ox", which ends with the first to "often", drops that: it is asked once more.
    assert [(row["entries"], row["bytes"], row["hits"]) for row in summary["capacity"]] == [
        (1, None, 142), (None, 340, 144), (None, None, 144),
    ]  # fmt: skip
    assert summary["capacity"][-1]["held_bytes"] == len("often" + "Yes.") + len("red ox" + "Yes.")


def test_a_log_without_times_has_no_lifetimes(tmp_path: Path) -> None:
    summary = measure(tmp_path / "log", [call("a", None) for _ in range(4)])
    assert summary["ttl"] == []
    assert [row["hits"] for row in summary["capacity"]] == [3]
    assert summary["cold_start"]["by"] == "position"


def test_a_cold_start_is_told_from_the_steady_state(tmp_path: Path) -> None:
    """Twelve prompts, each asked once an hour: the first round misses, all others hit."""
    lines = [call(f"{i % 12}", NEW_YEAR + 300 * i) for i in range(72)]
    cold = measure(tmp_path / "log", lines)["cold_start"]
    assert [part["hits"] for part in cold["sixths"]] == [0, 12, 12, 12, 12, 12]
    assert (cold["by"], cold["steady"]["hit_rate"], cold["share"]) == ("time", 1.0, pytest.approx(1 / 6))
    assert cold["steady"]["usd"] == pytest.approx(36 * 0.0035)
    assert cold["steady"]["span_s"] == pytest.approx(71 * 300 / 2)


def test_large_logs_are_walked_by_a_sample_of_their_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(0)
    texts = chance.zipf(1.3, size=6_000) % 800
    lines = [call(f"prompt {text}", NEW_YEAR + 10 * i) for i, text in enumerate(texts.tolist())]
    whole = measure(tmp_path / "log", lines, capacity="100,300,inf")["capacity"]
    monkeypatch.setattr(sweep, "MOST_ROWS", 3_000)
    part = measure(tmp_path / "log", lines, capacity="100,300,inf")["capacity"]
    assert [row["sampled_share"] for row in part] == [0.5, 0.5, 1.0]
    assert part[-1] == whole[-1]
    # Keys are unequal: the largest few decide, and half of them are drawn. The curve is near, not equal.
    for one, other in zip(part[:2], whole[:2], strict=True):
        assert one["n"] < other["n"]
        assert one["hit_rate"] == pytest.approx(other["hit_rate"], abs=0.15)
