"""The synthetic logs: what they promise to hold is in them, and the reports read it out again."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recall_cli.cli.app import main
from recall_cli.measure.synthetic.sample_log import Kind, log_lines

N = 500


def rows(kind: Kind, n: int = N, seed: int = 3) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log_lines(kind, n, seed)]


def asked(row: dict[str, Any]) -> str:
    """All that a request says, as one key."""
    return json.dumps([row["tenant"], row["request"]])


def answer(row: dict[str, Any]) -> str:
    response = row["response"]
    said: str = (response["choices"][0]["message"] if "choices" in response else response)["content"]
    return json.dumps(said)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What `recall savings` says of each kind."""
    folder, found = tmp_path_factory.mktemp("logs"), {}
    kinds: tuple[Kind, ...] = ("help-desk", "summaries")
    for kind in kinds:
        (folder / f"{kind}.jsonl").write_bytes(b"".join(log_lines(kind, N, 3)))
        assert main(["savings", str(folder / f"{kind}.jsonl"), "--out", str(folder / f"{kind}.json")]) == 0
        found[kind] = json.loads((folder / f"{kind}.json").read_bytes())
    return found


@pytest.mark.parametrize("kind", ["help-desk", "summaries"])
def test_equal_arguments_give_equal_bytes_and_another_seed_others(kind: Kind) -> None:
    first = list(log_lines(kind, 20, 1))
    assert first == list(log_lines(kind, 20, 1))
    assert first != list(log_lines(kind, 20, 2))


@pytest.mark.parametrize("kind", ["help-desk", "summaries"])
def test_calls_come_in_the_order_of_time(kind: Kind) -> None:
    times = [row["timestamp"] for row in rows(kind, 60)]
    assert times == sorted(times)
    assert len(times) == 60


def test_the_same_request_gets_the_same_answer() -> None:
    """As at temperature 0: else the log would speak against exact matching."""
    answers: dict[str, set[str]] = {}
    for row in rows("help-desk"):
        answers.setdefault(asked(row), set()).add(answer(row))
    assert len(answers) < N
    assert all(len(given) == 1 for given in answers.values())


def test_equal_last_words_mean_other_things_in_other_conversations() -> None:
    last: dict[str, set[str]] = {}
    for row in rows("help-desk"):
        turns = row["request"]["messages"]
        if len(turns) > 3:
            last.setdefault(turns[-1]["content"], set()).add(answer(row))
    assert max(map(len, last.values())) > 1


def test_a_help_desk_repeats_itself_and_holds_what_no_cache_may_answer(reports: dict[str, dict[str, Any]]) -> None:
    summary = reports["help-desk"]["summary"]
    hits = {name: tier["hits"] for name, tier in summary["tiers"].items()}
    assert min(hits[name] for name in ("exact", "normalised", "semantic")) > 0
    assert summary["excluded"].keys() == {"sampled", "tools"}
    assert summary["requests"] == N
    assert not summary["skipped"]
    models = Counter({row["model"]: row["requests"] for row in reports["help-desk"]["rows"]})
    assert models.keys() == {"gpt-4o", "claude-sonnet-4-5"}
    assert summary["spend_usd"] > summary["tiers"]["exact"]["usd_input"] > 0
    assert summary["verdict"].startswith("Worth it: exact matching alone saves")


def test_summaries_never_repeat_and_the_verdict_says_so(reports: dict[str, dict[str, Any]]) -> None:
    texts = [row["request"]["messages"][-1]["content"] for row in rows("summaries")]
    assert len({text.casefold() for text in texts}) == N
    summary = reports["summaries"]["summary"]
    assert summary["tiers"]["exact"]["hits"] == summary["tiers"]["normalised"]["hits"] == 0
    assert summary["verdict"].startswith("Not worth it")


def test_the_command_writes_lines_and_says_that_they_are_made_up(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    assert main(["sample-log", "summaries", "-n", "3", "--seed", "5"]) == 0
    told = capfdbinary.readouterr()
    assert told.out == b"".join(log_lines("summaries", 3, 5))
    assert b"synthetic" in told.err
