"""Both ends played from a log, as README and docs/worth-it.md have a reader do it: no key, no provider."""

from __future__ import annotations

import importlib.util
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import openai
import pytest

from recall_cli.measure.synthetic.sample_log import log_lines
from tests.proxy.conftest import Start
from tests.proxy.fake import RunningProxy

ROOT = Path(__file__).resolve().parents[2]
N = 80


@pytest.fixture(scope="module")
def rehearse() -> ModuleType:
    spec = importlib.util.spec_from_file_location("rehearse", ROOT / "docs" / "rehearse.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "traffic.jsonl"
    path.write_bytes(b"".join(log_lines("help-desk", N, 0)))
    return path


@dataclass
class Stage:
    """A proxy before the provider that answers as logged."""

    log: Path
    start: Start
    url: str

    def proxy(self, **options: Any) -> RunningProxy:
        return self.start(openai=self.url, anthropic=self.url, **options)[0]


@pytest.fixture
def provider_url(rehearse: ModuleType, log: Path) -> Iterator[str]:
    server = rehearse.provider(log, 0)
    server.daemon_threads = False  # so that closing waits for the connections' ends
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(20)
    server.server_close()


@pytest.fixture
def stage(log: Path, provider_url: str, start: Start) -> Stage:
    """The proxy is made after the provider, so that it ends first."""
    return Stage(log, start, provider_url)


def test_in_shadow_mode_every_call_gets_its_own_answer(rehearse: ModuleType, stage: Stage) -> None:
    found = rehearse.ask(stage.log, stage.proxy(shadow=True).port)
    assert found.total() == N
    assert all(equal for _, equal in found)
    outcomes = {outcome.partition(" ")[0] for outcome, _ in found}
    assert outcomes == {"BYPASS", "MISS", "SHADOW"}


def test_asked_a_second_time_the_log_comes_from_the_cache(rehearse: ModuleType, stage: Stage) -> None:
    proxy = stage.proxy(policy="adaptive", verify_sample=0.05)  # which serves nothing near before it has learned
    first = rehearse.ask(stage.log, proxy.port)
    proxy.settle()
    again = rehearse.ask(stage.log, proxy.port)
    bypassed = {outcome: n for outcome, n in first.items() if outcome[0].startswith("BYPASS")}
    assert again == {("EXACT", True): N - sum(bypassed.values()), **bypassed}
    assert bypassed.keys() == {("BYPASS sampled", True), ("BYPASS tools", True)}


def test_one_key_has_one_answer(rehearse: ModuleType) -> None:
    """Follow-ups of equal words in other conversations are other questions."""
    answers: dict[str, set[str]] = {}
    for line in log_lines("help-desk", 400, 0):
        row = json.loads(line)
        answers.setdefault(rehearse.key(row["request"]), set()).add(rehearse.said(row["response"]))
    assert all(len(given) == 1 for given in answers.values())


def test_the_counts_are_a_table(rehearse: ModuleType) -> None:
    lines = rehearse.table({("EXACT", True): 1_200, ("EXACT", False): 3, ("MISS below_cutoff", True): 4}).splitlines()
    assert [line.split() for line in lines[1:]] == [["EXACT", "1,203", "1,200"], ["MISS", "below_cutoff", "4", "4"]]


def test_readmes_call_hits_as_it_says(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between two calls a reader's proxy has the time that `settle` waits for."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    proxy = stage.proxy()
    raw = openai.resources.chat.completions.CompletionsWithRawResponse
    create = raw.__init__

    def settled(self: Any, completions: Any) -> None:
        create(self, completions)
        asked = self.create
        self.create = lambda **call: (asked(**call), proxy.settle())[0]

    monkeypatch.setattr(raw, "__init__", settled)
    assert "http://127.0.0.1:8484/v1" in code
    names: dict[str, Any] = {}
    exec(compile(code.replace("http://127.0.0.1:8484", proxy.url), "README.md", "exec"), names)
    names["client"].close()
    assert capsys.readouterr().out.splitlines() == re.findall(r"# prints (.*)", code)
    assert "an echo" in names["answer"].parse().choices[0].message.content
