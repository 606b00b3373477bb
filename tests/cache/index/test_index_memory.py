"""What an index says it takes is what the process grows by."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROBE = """
import os, sys
import numpy as np
from recall_cli.cache.index.auto import make_index

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

kind, options, step, n = sys.argv[1], eval(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
random = np.random.default_rng(0)
rows = random.standard_normal((n, 256), np.float32)
rows /= np.linalg.norm(rows, axis=1, keepdims=True)
warm = make_index(kind, 256, **options)
warm.add(np.arange(2_000), rows[:2_000])
warm.search(rows[0])
index = make_index(kind, 256, **options)
before = resident()
for at in range(0, n, step):
    index.add(np.arange(at, at + step) + 10**6, rows[at : at + step])
    if hasattr(index, "wait"):
        index.wait()  # what is written during a move is logged, and the C library keeps those blocks
print(index.memory_bytes() / (resident() - before))
"""

SMALL = (
    PROBE.split("index = ")[0]
    + """
n = step
before = resident()
parts = [make_index(kind, 256, **options) for _ in range(max(20, 2_000 // n))]
for part in parts:
    for at in range(n):
        part.add(np.array([at + 10**6]), rows[at : at + 1])
    if hasattr(part, "wait"):
        part.wait()
print(sum(part.memory_bytes() for part in parts) / (resident() - before))
"""
)


# A graph is added at once: while it grows, hnswlib reallocates, and the C library keeps up to 32 MB of the old blocks.
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident size from /proc")
@pytest.mark.parametrize(
    ("kind", "options", "step"),
    [
        ("exact", {}, 1_000),
        ("scan", {}, 1_000),
        ("auto", {}, 1_000),
        ("auto", {}, 30_000),
        ("hnsw", {"M": 16, "ef_construction": 16}, 30_000),
    ],
)
def test_memory_is_reported_within_15_percent(kind, options, step):
    arguments = [sys.executable, "-c", PROBE, kind, repr(options), str(step), "30000"]
    run = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert float(run.stdout) == pytest.approx(1.0, abs=0.15)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident size from /proc")
@pytest.mark.parametrize(
    ("kind", "options", "rows"),
    [(kind, {}, rows) for kind in ("exact", "scan", "hnsw", "auto") for rows in (1, 100)]
    + [("hnsw", {"M": 16, "ef_construction": 16}, 1_010)],
)
def test_memory_of_small_partitions_is_reported_within_30_percent(kind, options, rows):
    arguments = [sys.executable, "-c", SMALL, kind, repr(options), str(rows), "2000"]
    run = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert float(run.stdout) == pytest.approx(1.0, abs=0.3)
