"""What a request costs `recall serve`: the server's processor time, and ratios inside one run.

    python benchmarks/serve.py --out results/serve.json [--litellm PYTHON] [--fast] [--seconds 4] [--rounds 3]
    python benchmarks/serve.py --soak 30 --out results/serve-soak.json

One server process, callers and upstream beside it, loopback, everything on: tenants, limits, metrics, access log,
SQLite store. The server has the first core and the rest the second. Wall times on a shared machine tell little; the
processor time per request (user and system, from /proc) and the ratios tell most. Every answer is checked: its status
and what the cache says it was. `--litellm` names a Python with `litellm[proxy]`, whose cache hit then stands beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
HERE = Path(__file__).resolve().parent
TICK = os.sysconf("SC_CLK_TCK")
QUESTIONS, MOST = 500, 40_000
SYSTEM = "You are the assistant of a shop. Answer in one paragraph. " * 5

PORT, UPSTREAM_PORT, BARE_PORT, LITELLM_PORT = 18484, 18485, 18486, 18487


def body(text: str, **more: Any) -> str:
    """Return a request of about 600 bytes."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
    return json.dumps({"model": "gpt-4o", "temperature": 0, "messages": messages, **more})


def sentences(n: int, seed: int) -> list[str]:
    """Return word sequences far from each other: what is stored must not answer what was not asked."""
    from recall_cli.cache.evidence.lexicon import ranks

    words = sorted([word for word in ranks() if word.isalpha() and len(word) > 3])[:16_000]
    chance = random.Random(seed)
    return [" ".join(chance.choices(words, k=chance.randint(11, 15))) for _ in range(n)]


def fill(store: Path, texts: list[str]) -> float:
    """Store an answer to each text, as the proxy would; return the seconds that took."""
    from benchmarks.serve_load import answer
    from recall_cli.cache.cache import Cache
    from recall_cli.cache.embed.registry import make_embedder
    from recall_cli.cache.policy.static import StaticPolicy
    from recall_cli.cache.stores.sqlite import SqliteStore
    from recall_cli.proxy.planner import PlannedRequest, Planner, TenantKeys, tenant_key
    from recall_cli.proxy.providers.dialect import OPENAI
    from recall_cli.proxy.settings import Settings
    from recall_cli.types import Completion, Usage

    started = time.perf_counter()
    embedder = make_embedder("static")
    opened = SqliteStore(store, embedder=embedder)
    planner = Planner(TenantKeys(tenant_key(opened), Settings()), Settings())
    cache = Cache(embedder=embedder, policy=StaticPolicy(), store=opened)
    headers = [(b"authorization", b"Bearer sk-bench-0123456789abcdef")]
    stored = Completion(answer("word " * 130), "gpt-4o-2024-08-06", Usage(120, 130), time.time())
    for text in texts:
        ask = planner.plan(OPENAI, body(text).encode(), headers, b"/v1/chat/completions?")
        assert isinstance(ask, PlannedRequest)
        cache.put(ask.request, stored)
    cache.close()
    return time.perf_counter() - started


class Server:
    """A process under measurement."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def cpu(self) -> float:
        """Return the seconds of processor time it has used, its children's too."""
        return sum(map(cpu_s, [self.process.pid, *children(self.process.pid)]))

    def rss_mb(self) -> float:
        """Return its resident megabytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


def cpu_s(pid: int) -> float:
    """Return the processor seconds that a process has used, in the clock's ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def children(pid: int) -> list[int]:
    """Return the process's children."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@contextmanager
def running(command: list[str], port: int, core: int, log: Path, **env: str) -> Iterator[Server]:
    """Run a command on one core until it answers on its port, and end it afterwards."""
    pin = ["taskset", "-c", str(core % (os.cpu_count() or 1))] if shutil.which("taskset") else []
    with log.open("ab") as out:
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent), **env}
        process = subprocess.Popen([*pin, *command], stdout=out, stderr=out, env=environment)
        try:
            wait_for(port, process)
            yield Server(process)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return when somebody answers on the port."""
    for _ in range(4_000):  # LiteLLM takes eight seconds of processor time to start: minutes on a busy machine
        if process.poll() is not None:
            raise SystemExit(f"{process.args} ended with {process.returncode}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"nobody answers on port {port}")


def serve(folder: Path, store: Path | str, *more: str) -> list[str]:
    """Return the command of the proxy under measurement."""
    upstream = f"http://127.0.0.1:{UPSTREAM_PORT}"
    return [sys.executable, "-m", "recall_cli", "serve", "--port", str(PORT), "--store", str(store),
            "--log", str(folder / "access.jsonl"), "--upstream-openai", upstream, "--upstream-anthropic", upstream,
            "--verify-sample", "0", *more]  # fmt: skip


def role(name: str, port: int) -> list[str]:
    """Return the command of the upstream or of the bare application."""
    return [sys.executable, str(HERE / "serve_load.py"), name, "--port", str(port)]


def load(port: int, bodies: Path, connections: int, seconds: float, *more: str) -> dict[str, Any]:
    """Run one load and return what the callers saw."""
    pin = ["taskset", "-c", str(1 % (os.cpu_count() or 1))] if shutil.which("taskset") else []
    command = [*pin, sys.executable, str(HERE / "serve_load.py"), "load", "--port", str(port), "--bodies", str(bodies),
               "--connections", str(connections), "--seconds", str(seconds), *more]  # fmt: skip
    return dict(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))


def measure(
    arm: str, server: Server, port: int, bodies: Path, connections: int, seconds: float, outcome: str | None, *more: str
) -> dict[str, Any]:
    """Return one row. Stops the run when an answer was not what the arm is about."""
    before = server.cpu()
    seen = load(port, bodies, connections, seconds, *more)
    used = server.cpu() - before
    outcomes = set(seen["outcomes"])
    if seen["errors"] or set(seen["statuses"]) != {"200"} or (outcome is not None and outcomes != {outcome.lower()}):
        raise SystemExit(f"{arm}: {seen}")
    row = {
        "arm": arm,
        "connections": connections,
        "n": seen["n"],
        "requests_per_s": seen["n"] / seen["seconds"],
        "cpu_us": used / seen["n"] * 1e6,
        "p50_us": seen["p50_us"],
        "p99_us": seen["p99_us"],
        "first_byte_p50_us": seen["first_byte_p50_us"],
        "rss_mb": server.rss_mb(),
        "load_average": os.getloadavg()[0],
    }
    if seen["chunks"]:
        row["chunks"] = seen["chunks"]
    print(json.dumps(row), file=sys.stderr)
    return row


def run(arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Measure every arm, round by round, so that a busy minute of the machine meets all of them."""
    rows: list[dict[str, Any]] = []
    log, seconds = folder / "servers.log", arguments.seconds
    for entries in arguments.entries:
        texts = sentences(entries, seed=1)
        store = folder / f"{entries}.db"
        print(f"{entries} entries stored in {fill(store, texts):.1f} s", file=sys.stderr)
        asked = random.Random(2).sample(texts, min(QUESTIONS, entries))
        (folder / f"{entries}.exact").write_text("\n".join(body(text) for text in asked))
        (folder / f"{entries}.near").write_text("\n".join(body(text + " please") for text in asked))
    fresh = sentences(MOST, seed=3)
    (folder / "fresh").write_text("\n".join(body(text) for text in fresh))
    (folder / "fresh-streams").write_text("\n".join(body(text, stream=True) for text in sentences(MOST, seed=4)))
    first = arguments.entries[0]
    with running(role("upstream", UPSTREAM_PORT), UPSTREAM_PORT, 1, log):
        for turn in range(arguments.rounds):
            with running(role("bare", BARE_PORT), BARE_PORT, 0, log) as server:
                for connections in (64, 1):
                    exact = folder / f"{first}.exact"
                    rows.append(measure("bare", server, BARE_PORT, exact, connections, seconds, None))
            for extra in [False, True] if arguments.fast else [False]:
                for entries in arguments.entries:
                    rows += hits(folder, entries, seconds, log, fast=extra)
            rows += misses(folder, turn, seconds, log, folder / f"{first}.db")
            for arm, bodies in (("upstream", "fresh"), ("upstream stream", "fresh-streams")):
                direct = load(UPSTREAM_PORT, folder / bodies, 1, seconds)
                told = {name: direct[name] for name in ("n", "p50_us", "first_byte_p50_us")}
                rows.append({"arm": arm, "connections": 1, **told})
            if arguments.litellm:
                rows.append(litellm(arguments.litellm, folder, folder / f"{first}.exact", seconds, log))
    return rows


def hits(folder: Path, entries: int, seconds: float, log: Path, *, fast: bool) -> list[dict[str, Any]]:
    """Measure exact and semantic hits."""
    rows = []
    store = folder / "work.db"
    shutil.copy(folder / f"{entries}.db", store)
    # Without the extra, its package must not be found: an empty module of its name stands before it.
    hide = {} if fast else {"PYTHONPATH": f"{without(folder, 'nanotoken')}:{HERE.parent}"}
    with running(serve(folder, store), PORT, 0, log, **hide) as server:
        for kind, outcome in (("exact", "EXACT"), ("near", "SEMANTIC")):
            for connections in (64, 1):
                arm = f"{'exact' if kind == 'exact' else 'semantic'}@{entries}{' fast' if fast else ''}"
                bodies = folder / f"{entries}.{kind}"
                load(PORT, bodies, connections, 1.0)
                rows.append(measure(arm, server, PORT, bodies, connections, seconds, outcome))
    remove(store)
    return rows


def misses(folder: Path, turn: int, seconds: float, log: Path, filled: Path) -> list[dict[str, Any]]:
    """Measure stored misses and relayed streams, over a store of the first size."""
    rows = []
    store = folder / "work.db"
    shutil.copy(filled, store)
    skip = str(turn * (MOST // 8))
    with running(serve(folder, store, "--tau", "1"), PORT, 0, log) as server:
        for connections in (64, 1):
            for arm, bodies in (("stored miss", "fresh"), ("streamed miss", "fresh-streams")):
                more = ("--once", "--skip", str(int(skip) + (0 if connections == 64 else MOST // 2)))
                rows.append(measure(arm, server, PORT, folder / bodies, connections, seconds, "MISS", *more))
    remove(store)
    return rows


def litellm(python: str, folder: Path, bodies: Path, seconds: float, log: Path) -> dict[str, Any]:
    """Measure the cache hit of LiteLLM's proxy, in-memory cache, the same bodies."""
    config = folder / "litellm.yaml"
    config.write_text(
        "model_list:\n  - model_name: gpt-4o\n    litellm_params:\n      model: openai/gpt-4o\n"
        f"      api_base: http://127.0.0.1:{UPSTREAM_PORT}/v1\n      api_key: x\n"
        "litellm_settings:\n  cache: true\n  cache_params:\n    type: local\n    ttl: 3600\n"
    )
    command = [str(Path(python).with_name("litellm")), "--config", str(config), "--port", str(LITELLM_PORT),
               "--host", "127.0.0.1", "--num_workers", "1"]  # fmt: skip
    few = folder / "litellm.bodies"
    few.write_text("\n".join(bodies.read_text().splitlines()[:50]))
    with running(command, LITELLM_PORT, 0, log, LITELLM_LOG="ERROR",
                 LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY="true") as server:  # fmt: skip
        load(LITELLM_PORT, few, 4, 10.0)
        return measure("litellm hit", server, LITELLM_PORT, few, 64, max(8.0, seconds), None)


def without(folder: Path, package: str) -> Path:
    """Return a folder that makes a package look as if it were not installed."""
    place = folder / f"no-{package}"
    place.mkdir(exist_ok=True)
    (place / f"{package}.py").write_text("raise ImportError('left out for this measurement')\n")
    return place


def remove(store: Path) -> None:
    """Remove a store and its side files."""
    for path in store.parent.glob(store.name + "*"):
        path.unlink()


def soak(arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Keep a bounded load of hits, misses and streams on one server; return its memory, minute by minute."""
    rows: list[dict[str, Any]] = []
    texts = sentences(2_000, seed=5)
    lines = [body(text + wish, stream=stream) for text in texts for wish in ("", " please") for stream in (False, True)]
    random.Random(6).shuffle(lines)
    (folder / "mixed").write_text("\n".join(lines))
    with (
        running(role("upstream", UPSTREAM_PORT), UPSTREAM_PORT, 1, folder / "servers.log"),
        running(serve(folder, folder / "soak.db", "--policy", "adaptive", "--max-entries", "1000",
                      "--verify-sample", "0.05"), PORT, 0,
                folder / "servers.log") as server,
    ):  # fmt: skip
        for minute in range(arguments.soak):
            before = server.cpu()
            seen = load(PORT, folder / "mixed", 8, 60.0, "--pause", "0.04", "--skip", str(minute * 997 % 4_000))
            rows.append({"minute": minute + 1, "n": seen["n"], "outcomes": seen["outcomes"], "errors": seen["errors"],
                         "statuses": seen["statuses"], "cpu_us": (server.cpu() - before) / seen["n"] * 1e6,
                         "rss_mb": server.rss_mb()})  # fmt: skip
            print(json.dumps(rows[-1]), file=sys.stderr)
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians over the rounds, and the ratios that the run is judged by."""
    found: dict[str, Any] = {}
    for key in sorted({(row["arm"], row["connections"]) for row in rows}):
        own = [row for row in rows if (row["arm"], row["connections"]) == key]
        names = ("cpu_us", "p50_us", "first_byte_p50_us", "requests_per_s", "rss_mb")
        found[f"{key[0]} c={key[1]}"] = {
            name: median([row[name] for row in own]) for name in names if name in own[0]
        } | {"rounds": len(own)}
    first = next(name for name in found if name.startswith("exact@") and name.endswith("c=64") and "fast" not in name)
    exact, bare = found[first], found["bare c=64"]
    stream = [row for row in rows if row["arm"] == "streamed miss" and row["connections"] == 64]
    plain = found["stored miss c=64"]["cpu_us"]
    chunks = [(row["cpu_us"] - plain) / (row["chunks"] / row["n"]) for row in stream]
    found["ratios"] = {
        "exact_over_bare_requests_per_s": exact["requests_per_s"] / bare["requests_per_s"],
        "bare_cpu_over_exact_cpu": bare["cpu_us"] / exact["cpu_us"],
        "relayed_chunk_cpu_us": median(chunks),
        "added_first_byte_us": found["stored miss c=1"]["first_byte_p50_us"]
        - found["upstream c=1"]["first_byte_p50_us"],
        "added_first_byte_of_stream_us": found["streamed miss c=1"]["first_byte_p50_us"]
        - found["upstream stream c=1"]["first_byte_p50_us"],
    }
    if "litellm hit c=64" in found:
        theirs = found["litellm hit c=64"]["requests_per_s"]
        found["ratios"]["exact_over_litellm_requests_per_s"] = exact["requests_per_s"] / theirs
    return found


def main() -> None:
    """Run, and write the result document."""
    from recall_cli.measure.result import OutFile, new_result, to_json

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--litellm", help="a Python that has litellm[proxy]")
    parser.add_argument("--fast", action="store_true", help="measure with the extra `fast` too")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--entries", type=lambda text: [int(n) for n in text.split(",")], default=[10_000, 100_000])
    parser.add_argument("--soak", type=int, default=0, metavar="MINUTES")
    arguments = parser.parse_args()
    out = OutFile(arguments.out)
    params = {"seconds": arguments.seconds, "rounds": arguments.rounds, "entries": arguments.entries,
              "fast": arguments.fast, "litellm": bool(arguments.litellm), "soak_minutes": arguments.soak}  # fmt: skip
    result = new_result("benchmarks/serve", params)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.soak:
            result.rows = soak(arguments, Path(folder))
            sizes = [row["rss_mb"] for row in result.rows]
            result.summary = {
                "rss_mb_first": sizes[0],
                "rss_mb_last": sizes[-1],
                "requests": sum(r["n"] for r in result.rows),
            }
        else:
            result.rows = run(arguments, Path(folder))
            result.summary = summary(result.rows)
    out.write(to_json(result))
    print(json.dumps(result.summary, indent=2))


if __name__ == "__main__":
    main()
