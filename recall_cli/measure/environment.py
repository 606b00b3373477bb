"""Where a measurement was made: a p50 without a machine cannot be compared."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "model2vec", "tokenizers", "nanotoken", "hnswlib", "faiss-cpu", "orjson", "blake3", "polars")
"""Versions that change what we measure."""

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM")


def environment() -> dict[str, Any]:
    """Return machine, interpreter, packages, BLAS threads and the state of the source tree."""
    return {
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "usable_cores": _usable_cores(),
        "memory_bytes": _memory_bytes(),
        "load_1m": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "packages": _packages().copy(),
        "blas": _blas(),
        "threads": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "commit": _commit(),
    }


@cache
def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _usable_cores() -> int | None:
    # A container may be given fewer cores than the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _blas() -> dict[str, Any]:
    import numpy as np

    try:
        found = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        name = {"name": found.get("name"), "version": found.get("version")}
    except (KeyError, TypeError):
        name = {}
    return {**name, "threads": blas_threads()}


def blas_threads() -> int | None:
    """Return how many threads numpy's BLAS may use, as far as its environment variables say."""
    for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(variable, "").isdigit():
            return int(os.environ[variable])
    return _usable_cores()


@cache
def _commit() -> str | None:
    """Return the commit of the checkout this runs from, with "+dirty" for local changes; None elsewhere.

    Asked once: it is the code that was loaded which measures.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        git = ["git", "-C", str(root)]
        head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, timeout=5)
        state = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    if head.returncode:
        return None
    return head.stdout.strip() + ("+dirty" if state.stdout.strip() else "")
