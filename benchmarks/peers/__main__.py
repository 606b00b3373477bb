"""Run the works and write the result document."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers.bench import DATA, Bench, Row
from benchmarks.peers.roster import PACKAGES
from benchmarks.peers.works import WORKS
from recall_cli.measure.result import OutFile, load, new_result, to_json
from recall_cli.types import Warn

MEMORY = Path("/dev/shm")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="where the peers' environments are kept")
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(WORKS), metavar="WORK,...",
                        help=f"of {', '.join(WORKS)}; other rows stay as they are in --out")  # fmt: skip
    parser.add_argument("--arms", default="", help="only arms and proxies whose name contains this")
    parser.add_argument("--stores", type=Path, default=MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir()))
    parser.add_argument("--data", type=Path, default=DATA, help="the evaluation sets (default: ../shared/data)")
    parser.add_argument("--quick", action="store_true", help="a few calls each: does everything run?")
    asked = parser.parse_args()
    out = OutFile(asked.out)
    asked.work.mkdir(parents=True, exist_ok=True)
    stores = "memory" if asked.stores == MEMORY else "disk"
    pinned = {package.name: list(package.requirements) for package in PACKAGES.values()}
    result = new_result("benchmarks/peers", {"stores": stores, "quick": asked.quick, "pinned": pinned})
    if (asked.only != list(WORKS) or asked.arms) and Path(asked.out).exists() and Path(asked.out).stat().st_size:
        before = load(asked.out)
        kept = [row for row in before.rows if row["workload"] not in asked.only or asked.arms not in row["arm"]]
        result.rows = kept
        result.summary = before.summary
    bench = Bench(asked.work.resolve(), asked.stores, names=asked.arms, quick=asked.quick, data=asked.data)
    bench.packages |= result.summary.get("packages", {})
    seconds, loads = dict(result.summary.get("seconds", {})), dict(result.summary.get("load_1m", {}))
    for name in asked.only:
        started = time.perf_counter()
        result.rows += WORKS[name](bench)
        seconds[name] = round(time.perf_counter() - started, 1)
        loads[name] = round(os.getloadavg()[0], 2)
        # A work is minutes: what is done is kept if the next one breaks.
        result.summary = {"packages": bench.packages, "seconds": seconds, "load_1m": loads}
        result.warnings = warnings(result.rows, loads)
        out.write(to_json(result))
        print(f"{name}: {seconds[name]} s", file=sys.stderr)


def warnings(rows: list[Row], loads: Mapping[str, float]) -> list[Warn]:
    """Return one warning a peer that did not run, since its absence is no win, and one of a machine with other work."""
    ran = {row["arm"] for row in rows if row["ran"]}
    absent = {row["arm"]: row["why"] for row in rows if row["arm"] not in ran}
    told = [Warn("NOT_RUN", f"{arm} did not run: {why}") for arm, why in sorted(absent.items())]
    busy = {name: load for name, load in loads.items() if load > 2 * (os.cpu_count() or 1)}
    if busy:
        said = ", ".join(f"{name} {load:g}" for name, load in busy.items())
        told.append(Warn("BUSY_MACHINE", f"others worked meanwhile (load: {said}): times stand only beside each other",
                         "run again when the machine is quiet"))  # fmt: skip
    return told


if __name__ == "__main__":
    main()
