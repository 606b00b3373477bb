"""Generate a large log with known repeats, run `recall savings` on it, and print its speed and peak memory.

    python benchmarks/savings.py --mb 1000                     # 5 shapes of row, 0.1 % broken lines
    python benchmarks/savings.py --rows 10000000 --short       # one shape, some 300 bytes a row
    python benchmarks/savings.py --mb 100 --tiers exact,normalised,semantic

The log is seeded: equal arguments give equal bytes. It is written beside the system's temporary files and removed,
unless --keep names a file. The run is a process of its own, and starts another to read; their memory is the sum of
the peaks that the kernel counted for each, their time that of both.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recall_cli.measure.result import environment, from_json, new_result, to_json

VOCABULARY = (
    "account address alert amount answer archive audit backup balance batch branch budget build bundle cache "
    "calendar case change channel charge check client cluster code column commit contract copy counter coupon "
    "credit customer date delay delivery deploy detail device discount domain draft driver entry error event "
    "export feature field file filter folder form gateway group history host image import index input invoice "
    "item job journal key label ledger level limit line link list location log machine mail manager market "
    "message meter method metric migration model module month name network node note notice number offer option "
    "order output owner package page parcel partner password path payment period plan pointer policy port price "
    "printer process product profile project proxy query queue quota quote rate reason receipt record refund "
    "region release report request reset result return review role route row rule sample schedule schema screen "
    "script section sector seller sensor server service session share shift shop signal site slot source stage "
    "state station status step storage store stream string summary supplier support switch system table target "
    "task tax team template tenant term test text thread ticket time title token tool total trace track trade "
    "transfer trial unit update user value vendor version view visit voucher wallet warehouse week window word "
    "worker zone "
)
WORDS = VOCABULARY.split()
START = 1_767_225_600  # 2026-01-01
LOOK_S = 0.1
"""How often the run's memory is looked at; the kernel keeps the peak, so only the last look counts."""
SHAPES = 5
BROKEN = 0.001
REPEAT, RESPELL = 0.15, 0.05
"""Shares of the rows that repeat an earlier one, letter by letter and but for case and spaces."""
MODELS = ("gpt-4o", "gpt-4o-mini", "gpt-4.1", "gpt-4.1-mini")


def sentences(chance: random.Random, size: int) -> str:
    """Return text of about that many characters."""
    words = chance.choices(WORDS, k=max(1, size // 7))
    return " ".join(words).capitalize() + "."


def rows(seed: int) -> Iterator[bytes]:
    """Yield log lines without end: five shapes in turn, over ten days, about 3.4 kB each."""
    chance = random.Random(seed)
    systems = [sentences(chance, 700) for _ in range(20)]
    answers = [sentences(chance, chance.randrange(300, 1500)) for _ in range(2_000)]
    asked: list[tuple[int, str]] = []
    at = 0
    while True:
        at += 1
        if chance.random() < BROKEN:
            yield b'{"timestamp": "2026-01-01T00:00:00Z", "request": {"model": "gpt-4o", "messages": [{"role'
            continue
        draw = chance.random()
        if asked and draw < REPEAT + RESPELL:
            system, text = chance.choice(asked)
            text = text if draw < REPEAT else "  " + text.upper()
        else:
            system, text = chance.randrange(len(systems)), sentences(chance, chance.randrange(400, 2_600))
            # Repeats come from a window, as in life; and the generator's own memory has an end.
            if len(asked) < 20_000:
                asked.append((system, text))
            else:
                asked[chance.randrange(20_000)] = (system, text)
        yield shape(at, chance, systems[system], text, chance.choice(answers), MODELS[system % len(MODELS)])


def shape(at: int, chance: random.Random, system: str, text: str, answer: str, model: str) -> bytes:
    """Return one call in one of the shapes that OpenAI traffic is logged in."""
    start = START + at * 2.6 + chance.random()
    took = 400 + chance.randrange(4_000)
    counts = {
        "prompt_tokens": (len(system) + len(text)) // 5 + 8,
        "completion_tokens": len(answer) // 5,
        "prompt_tokens_details": {"cached_tokens": chance.choice((0, 0, 128))},
    }
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    request: dict[str, Any] = {"model": model, "temperature": 0, "messages": messages}
    finish = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
    response = {
        "id": f"chatcmpl-{at}",
        "object": "chat.completion",
        "model": model,
        "choices": [finish],
        "usage": counts,
    }
    iso = datetime.fromtimestamp(start, UTC).isoformat()
    kind = at % SHAPES
    row: dict[str, Any]
    if kind == 0:
        row = {"timestamp": iso, "latency_ms": took, "request": request, "response": response}
    elif kind == 1:
        row = {"startTime": start, "endTime": start + took / 1e3, "requestBody": json.dumps(request),
               "responseBody": json.dumps(response), "status": 200}  # fmt: skip
    elif kind == 2:
        row = {"ts": int(start * 1e3), "duration_ms": took, "request": {"method": "POST", "body": request},
               "response": {"status_code": 200, "body": response}, "team_id": "search"}  # fmt: skip
    elif kind == 3:
        messages[1] = {"role": "user", "content": [{"type": "text", "text": text}]}
        row = {"created_at": iso, "latency_s": took / 1e3, "request_body": request, "response_body": response,
               "url": "https://api.openai.com/v1/chat/completions"}  # fmt: skip
    else:
        request["stream"] = True
        half = len(answer) // 2
        chunks = [{"model": model, "choices": [{"index": 0, "delta": {"content": part}, "finish_reason": None}]}
                  for part in (answer[:half], answer[half:])]  # fmt: skip
        chunks.append({"model": model, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        chunks.append({"model": model, "choices": [], "usage": counts})
        row = {"started_at": iso, "latency_ms": took, "request": request, "response": chunks}
    return json.dumps(row).encode()


def short_rows(seed: int, distinct: int) -> Iterator[bytes]:
    """Yield small calls without end, each of about half as many distinct ones as there are rows."""
    chance = random.Random(seed)
    for at in range(sys.maxsize):
        question, tokens = chance.randrange(distinct), chance.randrange(20, 60)
        yield (
            b'{"ts":%.3f,"latency_ms":200,"request":{"model":"gpt-4o-mini","temperature":0,"messages":[{"role":"user",'
            b'"content":"Where is parcel %d?"}]},"response":{"choices":[{"message":{"content":"In depot %d."},'
            b'"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":7}}}'
            % (START + at * 0.1, question, question % 97, tokens)
        )


def generate(path: Path, *, size: int, count: int, short: bool, seed: int) -> tuple[int, int]:
    """Write the log; return its rows and bytes."""
    written = done = 0
    with path.open("wb", buffering=1 << 20) as file:
        for line in short_rows(seed, max(1, count // 2)) if short else rows(seed):
            written += file.write(line + b"\n")
            done += 1
            if done == count or (size and written >= size):
                break
    return done, written


def main() -> None:
    """Generate, run, print; with --out also add a row to the recorded document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=0, help="size of the log in megabytes")
    parser.add_argument("--rows", type=int, default=0, help="or its number of rows")
    parser.add_argument("--short", action="store_true", help="small rows of one shape; give --rows")
    parser.add_argument("--tiers", default="exact,normalised")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="use this log if it is there, and leave it")
    parser.add_argument("--out", type=Path, help="document to add the run to, made if it is not there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.keep or Path(folder) / "log.jsonl"
        if not path.exists():
            size = arguments.mb * 10**6
            generate(path, size=size, count=arguments.rows, short=arguments.short, seed=arguments.seed)
        log = "short rows of one shape" if arguments.short else "five shapes of OpenAI traffic, 0.1 % broken lines"
        row = {"log": log} | measure(path, Path(folder) / "out.json", arguments.tiers)
    sys.stdout.write(json.dumps(row, indent=1) + "\n")
    if arguments.out is not None:
        result = new_result("savings-scale", {"seed": arguments.seed})
        if arguments.out.exists():
            result = from_json(arguments.out.read_bytes())
        result.rows.append(row)
        arguments.out.write_bytes(to_json(result))


def peaks_of(pid: int) -> dict[int, int]:
    """Return the peak memory in bytes of a process and of those it started, by their number, so far."""
    peaks = {}
    # One that ended has no memory to speak of.
    with suppress(OSError, IndexError):
        for one in (pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())):
            status = Path(f"/proc/{one}/status").read_text()
            peaks[one] = 1024 * int(status.partition("VmHWM:")[2].split()[0])
    return peaks


def measure(path: Path, out: Path, tiers: str) -> dict[str, Any]:
    """Run the command with one thread to each library and return its speed, memory and main figures."""
    here = environment()
    one_thread = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    started, before = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "recall_cli", "savings", str(path), "--tiers", tiers, "--out", str(out)],
        stdout=subprocess.DEVNULL, env=os.environ | one_thread,
    )  # fmt: skip
    ended, peaks = 0, dict[int, int]()
    while not ended:
        time.sleep(LOOK_S)
        peaks |= peaks_of(process.pid)
        ended, status, used = os.wait4(process.pid, os.WNOHANG)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - before
    if process.returncode:
        sys.exit(f"recall savings ended with exit code {process.returncode}")
    summary = json.loads(out.read_bytes())["summary"]
    size, cpu = path.stat().st_size, used.ru_utime + used.ru_stime
    return {
        "bytes": size,
        "lines": summary["lines"],
        "requests": summary["requests"],
        "skipped": summary["skipped"],
        "tiers": tiers,
        "hits": {name: tier["hits"] for name, tier in summary["tiers"].items()},
        "wall_s": round(wall, 2),
        "cpu_s": round(cpu, 2),
        "mb_per_s": round(size / 1e6 / wall, 1),
        "mb_per_cpu_s": round(size / 1e6 / cpu, 1),
        # Elsewhere than on Linux only the larger process is known; macOS counts it in bytes.
        "peak_rss_bytes": sum(peaks.values()) or used.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "started_at": started,
        # Of the last minute before the run: what else the machine was doing.
        "load_1m": here["load_1m"],
        "commit": here["commit"],
    }


if __name__ == "__main__":
    main()
