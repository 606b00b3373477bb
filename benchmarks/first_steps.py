"""README's first steps, and those of docs/worth-it.md, done as written on a bare machine: the seconds each takes.

    python benchmarks/first_steps.py --out results/first-steps.json

A fresh clone, a fresh environment and an empty package cache; the package registry and a C++ compiler must be there.
A step is a block of code under `<!-- step: NAME -->`. One that starts `recall serve` goes on until the next such one,
or until its page ends; what it sends to the background stays as long as the page.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.dependencies import children_cpu
from recall_cli.cli.render.blocks import Block, Line, count, number, percent, table
from recall_cli.cli.render.text import to_markdown
from recall_cli.measure.judged import Judged
from recall_cli.measure.result import OutFile, new_result, to_json
from recall_cli.types import Result

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/worth-it.md")
STEP = re.compile(r"<!-- step: ([^\n]*?) -->\n(?:<!-- [^\n]* -->\n)*```(\w+)\n(.*?)```", re.S)
PRINTS = re.compile(r"# prints (.*)")
ASKED = re.compile(r"^([A-Z]+(?: \w+)?) +([\d,]+) +([\d,]+)$", re.M)
"""A line of what docs/rehearse.py prints: outcome, calls, answered as logged."""
END_S = 60.0
"""Seconds that a server has to end: it writes what it owes first."""


@dataclass(frozen=True, slots=True)
class Step:
    """One block of a page."""

    page: str
    name: str
    language: str
    code: str

    @property
    def stays(self) -> bool:
        """Whether it starts a server, which a reader leaves running in its terminal."""
        return "recall serve" in self.code


def steps(page: str, text: str) -> list[Step]:
    """Return the steps of a page, in its order."""
    return [Step(page, name, language, code) for name, language, code in STEP.findall(text)]


def commands(code: str) -> list[str]:
    """Return the commands of a shell block, continued lines joined."""
    lines = code.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def asked(printed: str) -> list[dict[str, Any]]:
    """Return the counts that docs/rehearse.py printed."""
    rows = [(outcome, *(int(n.replace(",", "")) for n in counts)) for outcome, *counts in ASKED.findall(printed)]
    return [{"outcome": outcome, "calls": calls, "as_logged": equal} for outcome, calls, equal in rows]


class Desk:
    """A reader's two terminals, in a fresh clone."""

    def __init__(self, clone: Path) -> None:
        self.clone = clone
        own = {name: value for name, value in os.environ.items() if not name.startswith(("RECALL_", "PYTHON"))}
        # The environment's programs first, as `. .venv/bin/activate` has them; and nothing that pip has kept.
        path = f"{clone / '.venv' / 'bin'}:{os.environ['PATH']}"
        self._environment = {**own, "PATH": path, "PIP_NO_CACHE_DIR": "1"}
        self._open = ExitStack()
        self._server: subprocess.Popen[str] | None = None

    def do(self, step: Step) -> str:
        """Do a step as written; return what it printed. Raises CalledProcessError when a command fails."""
        if step.language == "python":
            return self._run([str(self.clone / ".venv" / "bin" / "python"), "-c", step.code])
        if not step.stays:
            return self._run(["bash", "-euo", "pipefail", "-c", step.code])
        self.end_server()
        *before, last = commands(step.code)
        for command in before:
            if command.endswith("&"):
                self._open.callback(end, self._start(command.removesuffix("&")))
            else:
                self._run(["bash", "-euo", "pipefail", "-c", command])
        self._server = self._start(last)
        return ""

    def end_server(self) -> None:
        """End the server in the foreground, as Ctrl-C does."""
        if self._server is not None:
            end(self._server)
        self._server = None

    def leave(self) -> None:
        """End all that runs."""
        self.end_server()
        self._open.close()

    def _run(self, command: Sequence[str]) -> str:
        done = subprocess.run(
            command, cwd=self.clone, env=self._environment, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout

    def _start(self, command: str) -> subprocess.Popen[str]:
        """Return a program that runs, once it has said its first line: where it listens."""
        process = subprocess.Popen(
            shlex.split(command), cwd=self.clone, env=self._environment, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        if not process.stdout.readline():
            raise subprocess.CalledProcessError(process.wait(), command)
        return process


def end(process: subprocess.Popen[str]) -> None:
    """End a server in good order."""
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=END_S)


@contextmanager
def desk(root: Path) -> Iterator[Desk]:
    """Yield a desk with nothing on it but a clone."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "recall"
        subprocess.run(["git", "clone", "--quiet", str(root), str(clone)], check=True)
        yield Desk(clone)


def walk(root: Path) -> Result:
    """Do all steps of all pages; return a row a step."""
    result = new_result("benchmarks/first_steps", {"pages": list(PAGES)})
    with desk(root) as reader:
        started = time.perf_counter()
        for page in PAGES:
            try:
                for step in steps(page, (reader.clone / page).read_text(encoding="utf-8")):
                    before, used = time.perf_counter(), children_cpu()
                    printed = reader.do(step)
                    now = time.perf_counter()
                    took = {
                        "took_s": round(now - before, 2),
                        "cpu_s": None if step.stays else round(children_cpu() - used, 2),
                        "since_start_s": round(now - started, 1),
                    }
                    result.rows.append({"page": page, "step": step.name, **took, **told(step, printed)})
                    print(f"{page}: {step.name}: {took['took_s']} s", file=sys.stderr)
            finally:
                reader.leave()
    return result


def told(step: Step, printed: str) -> dict[str, Any]:
    """Return what a step's own output says: did the example print what the page says, and what the proxy counted."""
    found: dict[str, Any] = {}
    if promised := PRINTS.findall(step.code):
        found["as_the_page_says"] = printed.splitlines() == promised
    if rows := asked(printed):
        found["asked"] = rows
    live = printed[printed.find('{"') :] if "/recall/live" in step.code else ""
    if live:
        document = json.loads(live)
        found["false_hits"] = document["false_hits"]
        found["saved_usd"] = document["saved"]["usd"]
    return found


def view(result: Result) -> list[Block]:
    """Return the seconds of each step, then what the proxy did with each week."""
    names = ("step", "page", "seconds", "of a processor", "since the start")
    rows = [
        (row["step"], row["page"], *(number(row[key], 1) for key in ("took_s", "cpu_s", "since_start_s")))
        for row in result.rows
    ]
    blocks: list[Block] = [table("The first steps", names, rows, left=2)]
    for row in result.rows:
        if "asked" in row:
            cells = [(entry["outcome"], count(entry["calls"]), count(entry["as_logged"])) for entry in row["asked"]]
            blocks.append(table(f"The {row['step']}", ("x-recall", "calls", "as logged"), cells))
            wrong = row["false_hits"]
            if wrong.get("unsure"):
                said = Judged(wrong["n"] - wrong["wrong"], wrong["wrong"], wrong["unsure"]).said()
                blocks.append(Line(f"false_hits, wrong: {said}."))
                continue
            low, high = (percent(end) for end in wrong["interval"])
            blocks.append(Line(f"false_hits: {wrong['wrong']} wrong of {wrong['n']} compared [{low}, {high}]."))
    return blocks


def main() -> None:
    """Do the steps, print the rows, write the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="document to write")
    arguments = parser.parse_args()
    out = OutFile(arguments.out)
    result = walk(ROOT)
    out.write(to_json(result))
    print(to_markdown(view(result)))


if __name__ == "__main__":
    main()
