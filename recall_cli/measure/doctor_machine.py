"""The machine as recall meets it: interpreter, processors and their quota, memory, descriptors."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from recall_cli import __version__
from recall_cli.measure.environment import environment
from recall_cli.measure.findings import Finding, State

QUOTA = Path("/sys/fs/cgroup/cpu.max")
CPU_INFO = Path("/proc/cpuinfo")
WIDE = ("avx2", "avx512f", "asimd")
"""Instruction sets with which the indexes compare eight numbers and more at once."""
LEAST_MEMORY = 1 << 30
"""A store of 100,000 entries with 256 dimensions serves in some 350 MB; below 1 GB there is no room beside it."""
LEAST_FILES = 4_096
"""`recall serve` takes 2,048 connections, and each may need one to the upstream."""


def python() -> Iterator[Finding]:
    """Yield which recall runs in which Python."""
    found = f"recall {__version__}, {platform.python_implementation()} {platform.python_version()} ({sys.platform})"
    yield Finding("python", State.OK, found)


def processor(quota: Path = QUOTA, cpu_info: Path = CPU_INFO) -> Iterator[Finding]:
    """Yield the processor, what a container may use of it, and how busy it is."""
    machine = environment()
    cores, load = machine["usable_cores"], machine["load_1m"]
    found = f"{machine['cpu']}, {machine['machine']}: {cores} of {machine['cores']} cores, load {load}"
    if load is not None and cores and load > cores:
        yield Finding("processor", State.SLOW, found, "more work waits than there are cores: times are not yours alone")
    else:
        yield Finding("processor", State.OK, found)
    share = _quota(quota)
    if share is not None and cores and share < cores:
        hint = f"threads beyond the quota make each other wait: set OMP_NUM_THREADS={max(1, int(share))}"
        yield Finding("cpu quota", State.SLOW, f"{share:g} cores' time on {cores} cores", hint)
    sets = _instructions(cpu_info)
    if sets is not None and not sets:
        hint = "indexes compare four numbers at once instead of eight: expect two to three times the search times"
        yield Finding("instructions", State.SLOW, f"none of {', '.join(WIDE)}", hint)


def memory() -> Iterator[Finding]:
    """Yield how much memory the machine has."""
    size = environment()["memory_bytes"]
    if size is None:
        return
    found = f"{size / (1 << 30):.1f} GiB"
    if size < LEAST_MEMORY:
        yield Finding("memory", State.SLOW, found, "a large store will not fit: bound it with --max-entries")
    else:
        yield Finding("memory", State.OK, found)


def open_files() -> Iterator[Finding]:
    """Yield how many descriptors a process may have: each connection of the proxy takes one or two."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < LEAST_FILES:
        hint = f"recall serve may run out of them: raise the limit with ulimit -n {LEAST_FILES}"
        yield Finding("open files", State.SLOW, f"{soft:,} a process (at most {hard:,})", hint)
    else:
        yield Finding("open files", State.OK, f"{soft:,} a process")


def _quota(path: Path) -> float | None:
    """Return how many cores' time a container gets, None when there is no limit or no way to tell."""
    try:
        allowed, period = path.read_text().split()
        return None if allowed == "max" else int(allowed) / int(period)
    except (OSError, ValueError):
        return None


def _instructions(path: Path) -> list[str] | None:
    """Return the wide instruction sets there are, None when the system does not say."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), None)
    return None if flags is None else [name for name in WIDE if name in flags]
