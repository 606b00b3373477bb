"""How fast logs are read and normalised: a generated JSON Lines log of five schemas, every 1,000th line broken.

    python benchmarks/read_logs.py --mb 1000 --out results/read-logs.json

writes a log of 1,000 MB (in --folder it finds the one it wrote before: the seed fixes every byte), reads it in a
process of its own, and prints a row: MB/s of three readings by the clock and by CPU time, that CPU time over the time
that `orjson.loads` alone takes in the same round, peak memory. Every count is checked against what was written before a
time is printed. --out writes the row as a result document.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from recall_cli.measure.result import new_result, to_json

SEED = 5
BROKEN_EVERY = 1_000
ROW_BYTES = 3_400
"""What a row weighs on average: a system prompt, a question with some context, an answer."""
START = 1_790_000_000
VOCABULARY = 4_000


def write(path: Path, megabytes: int) -> dict[str, int]:
    """Write the log and return what is in it."""
    draw = random.Random(SEED)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 9))) for _ in range(VOCABULARY)]
    # Texts are slices of one long text: drawing each word anew would take longer than everything else.
    text = " ".join(draw.choices(words, k=200_000))

    def some(n: int) -> str:
        at = draw.randrange(len(text) - n)
        return text[at : at + n]

    counts = {"rows": 0, "broken": 0, "input_tokens": 0}
    size = 0
    with path.open("wb") as file:
        while size < megabytes * 1_000_000:
            row = counts["rows"]
            line = orjson.dumps(_row(row, some, draw))
            if row % BROKEN_EVERY == BROKEN_EVERY - 1:
                line = line[: len(line) // 2]
                counts["broken"] += 1
            else:
                counts["input_tokens"] += _tokens(row)
            size += file.write(line + b"\n")
            counts["rows"] += 1
    return counts


def _tokens(row: int) -> int:
    return 500 + row % 97


def _row(row: int, some: Any, draw: random.Random) -> dict[str, Any]:
    kind = row % 5
    messages = [
        {"role": "system", "content": some(900)},
        {"role": "user", "content": some(ROW_BYTES - 2_500 + draw.randrange(600))},
    ]
    request = {"model": "gpt-4o", "temperature": 0, "messages": messages}
    response = {
        "id": f"chatcmpl-{row}", "object": "chat.completion", "created": START + row, "model": "gpt-4o-2024-08-06",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": some(900), "refusal": None},
                     "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": _tokens(row), "completion_tokens": 200, "total_tokens": _tokens(row) + 200,
                  "prompt_tokens_details": {"cached_tokens": 128, "audio_tokens": 0},
                  "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0}},
        "system_fingerprint": "fp_1",
    }  # fmt: skip
    when = time.strftime("%Y-%m-%dT%H:%M:%S.250Z", time.gmtime(START + row))
    if kind == 0:
        return {"timestamp": when, "latency_ms": 840, "request": request, "response": response}
    if kind == 1:
        return {"ts": START + row, "team": f"team-{row % 7}", "url": "https://api.openai.com/v1/chat/completions",
                "status": 200, "request": request, "response": response}  # fmt: skip
    if kind == 2:
        return {"created_at": when, "duration_s": 0.84, "request_body": json.dumps(request),
                "response_body": json.dumps(response)}  # fmt: skip
    if kind == 3:
        return {"start_time": when, "end_time": START + row + 2, "user_id": row % 50,
                "request": {"method": "POST", "body": request},
                "response": {"status_code": 200, "body": response}}  # fmt: skip
    return {"id": f"chatcmpl-{row}", "call_type": "acompletion", "status": "success", "custom_llm_provider": "openai",
            "startTime": START + row + 0.5, "endTime": START + row + 1.5, "model": "gpt-4o", "messages": messages,
            "metadata": {"user_api_key_team_id": f"team-{row % 7}"}, "response_cost": 0.0012, "cache_hit": None,
            "prompt_tokens": _tokens(row), "completion_tokens": 200, "response": response,
            "model_parameters": {"temperature": 0}, "hidden_params": {}}  # fmt: skip


def read(path: Path, counts: dict[str, int]) -> dict[str, float]:
    """Read the log once; return the seconds of CPU and of the clock."""
    from recall_cli.logs.read import read_log
    from recall_cli.logs.report import ReadReport

    tally = ReadReport()
    tokens = 0
    cpu, wall = time.process_time(), time.perf_counter()
    for record in read_log(str(path), tally):
        tokens += record.usage.input if record.usage else 0
    took = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
    assert tally.lines == counts["rows"]
    assert tally.skipped == {"malformed_json": counts["broken"]}
    assert tokens == counts["input_tokens"]
    return took


def parse(path: Path) -> float:
    """Return the seconds of CPU that decoding the lines takes, and nothing else: what no reader can do without."""
    cpu = time.process_time()
    with path.open("rb", buffering=1 << 20) as file:
        for line in file:
            with suppress(ValueError):
                orjson.loads(line)
    return time.process_time() - cpu


def main() -> None:
    """Write the log if it is not there, read it in another process, print and keep what it took."""
    parser = argparse.ArgumentParser(description="How fast logs are read and normalised.")
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="keeps the log; without it the log is removed")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = arguments.folder or Path(temporary)
        path, facts = folder / f"read-{arguments.mb}.jsonl", folder / f"read-{arguments.mb}.json"
        if not (path.exists() and facts.exists()):
            facts.write_text(json.dumps(write(path, arguments.mb)))
        result = new_result("benchmarks/read_logs", {"mb": arguments.mb})
        # A process of its own: its peak memory is the reader's.
        child = subprocess.run(
            [sys.executable, __file__, "--read", str(path), str(facts)], check=True, stdout=subprocess.PIPE
        )
    sys.stdout.write(child.stdout.decode())
    result.rows = [json.loads(child.stdout)]
    if arguments.out:
        arguments.out.write_bytes(to_json(result))


def report(path: Path, facts: Path) -> None:
    """Read three times and print what was measured."""
    counts = json.loads(facts.read_text())
    rounds = [(read(path, counts), parse(path)) for _ in range(3)]
    took = [reading for reading, _ in rounds]
    size = path.stat().st_size
    found = {
        **counts,
        "bytes": size,
        "row_bytes": round(size / counts["rows"]),
        "mb_per_s": [round(size / 1e6 / t["wall_s"], 1) for t in took],
        "mb_per_cpu_s": [round(size / 1e6 / t["cpu_s"], 1) for t in took],
        "cpu_over_parsing_alone": [round(t["cpu_s"] / alone, 2) for t, alone in rounds],
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        report(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
