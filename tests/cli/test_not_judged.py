"""No report says "0 % wrong" beside answers that nobody could judge: it prints the bound, or that it is not known."""

from __future__ import annotations

import html
import json
import re
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cli.app import main
from recall_cli.measure.judged import Judged

PROSE = (
    "Payment is possible with a card; cash works too.",
    "You can pay by card or in cash.",
    "Both cards and cash are accepted as payment here.",
    "We take payment in cash, and cards are fine as well.",
    "Paying works in cash and with any card.",
)
"""One answer in wordings of which the rules cannot tell that they say the same."""


def write(path: Path, answers: list[tuple[str, str]]) -> str:
    """Write a log: a call a minute, each with its question and answer."""
    with path.open("w") as file:
        for at, (question, answer) in enumerate(answers):
            call: dict[str, Any] = {
                "timestamp": f"2026-10-0{1 + at // 1440}T{at // 60 % 24:02}:{at % 60:02}:00+00:00",
                "request": {
                    "model": "gpt-4o-mini",
                    "temperature": 0,
                    "messages": [{"role": "user", "content": question}],
                },
                "response": {
                    "model": "gpt-4o-mini",
                    "choices": [
                        {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
                    ],
                    "usage": {"prompt_tokens": 40, "completion_tokens": 4, "total_tokens": 44},
                },
            }
            file.write(json.dumps(call) + "\n")
    return str(path)


def classified(answer: Any, n: int = 240) -> list[tuple[str, str]]:
    """Return questions of one template whose payloads differ in a word or two, and what `answer` makes of each."""
    words = product(("kettle", "radio", "lamp", "chair", "desk"), ("great", "awful", "fine", "poor"), range(99))
    return [
        (f"Classify the ticket below. Answer with one label only.\n\nTicket {n}: the {thing} is {said}.", answer(at))
        for at, (thing, said, n) in zip(range(n), words, strict=False)
    ]


def run(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main([*args]) == 0
    said = capsys.readouterr()
    return " ".join((said.out + said.err).split())


def document(tmp_path: Path, *args: str) -> dict[str, Any]:
    out = tmp_path / "out.json"
    assert main([*args, "--out", str(out)]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.mark.parametrize(
    "labels",
    [
        ("approve", "reject", "escalate"),
        ("Billing", "Shipping", "Technical Support"),
        ('{"label": "a"}', '{"label": "b"}'),
        ("👍", "👎"),
        ("5 kg", "5 lb", "7 kg"),
    ],
)
def test_savings_counts_other_labels_as_wrong(
    labels: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = Random(7)
    answers = classified(lambda at: chance.choice(labels))
    log = write(tmp_path / "log.jsonl", answers)
    found = document(tmp_path, "savings", log)["summary"]
    judged = found["tiers"]["semantic"]["judged"]
    equal = found["tiers"]["semantic"]["answers_equal"]
    assert judged["unsure"] == 0
    assert judged["different"] == equal["n"] - equal["equal"] > 0.4 * judged["n"]
    assert judged["different_bounds"] == [judged["different_rate"]] * 2
    assert f"by rules {100 * judged['different_rate']:.1f} % are wrong" in found["verdict"]
    assert "not shown to be safe" in found["verdict"]
    assert f"wrong: {100 * judged['different_rate']:.1f} % [" in run(capsys, "savings", log)
    # A policy that learns from these labels serves nothing.
    learnt = document(tmp_path, "savings", log, "--policy", "adaptive")["summary"]["tiers"]["semantic"]
    assert (learnt["hits"], learnt["unlabelled"]) == (0, 0)


def test_savings_prints_the_bound_where_answers_cannot_be_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write(tmp_path / "log.jsonl", classified(lambda at: PROSE[at % len(PROSE)]))
    found = document(tmp_path, "savings", log)["summary"]
    judged = found["tiers"]["semantic"]["judged"]
    assert judged["different"] == 0
    assert 0 < judged["unsure"] < judged["n"]
    low, high = judged["different_bounds"]
    assert (low, high) == (0, judged["unsure"] / judged["n"])
    bound = f"0 to {100 * high:.1f} %"
    assert f"by rules {bound} are wrong: {judged['unsure']} of {judged['n']} could not be" in found["verdict"]
    out = run(capsys, "savings", log)
    assert f"wrong: {bound} ({judged['unsure']} of {judged['n']} could not be judged)" in out
    assert not re.search(r"(?<!\d)0(\.0)? % (\[[^]]*\] )?(are )?wrong", out)


def test_savings_says_not_known_where_nothing_could_be_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Numbers of words that no rule tells apart or alike.
    log = write(
        tmp_path / "log.jsonl",
        [("How can I pay here?", PROSE[0]), ("How could I pay here?", PROSE[1])],
    )
    judged = document(tmp_path, "savings", log)["summary"]["tiers"]["semantic"]["judged"]
    assert judged["n"] == judged["unsure"] == 1
    assert judged["different_bounds"] == [None, None]
    assert "wrong: not known (none of 1 could be judged)" in run(capsys, "savings", log)


def test_eval_log_prints_the_bound_and_no_rate_of_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write(tmp_path / "log.jsonl", classified(lambda at: PROSE[at % len(PROSE)]))
    rows = {row["policy"]: row for row in document(tmp_path, "eval", "--log", log)["rows"]}
    row = rows["static@0.8"]
    assert row["false_hits"] == 0 < row["unsure_hits"]
    out = run(capsys, "eval", "--log", log)
    assert f"0 to {100 * row['false_hit_bounds'][1]:.2f} %" in out
    assert "0.00 % [0.00" not in out.split("target 1.0 %")[1]


def test_eval_log_counts_other_labels_as_wrong(tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", classified(lambda at: ("spam", "ham")[at % 2]))
    rows = {row["policy"]: row for row in document(tmp_path, "eval", "--log", log)["rows"]}
    assert rows["static@0.8"]["unsure_hits"] == 0
    assert rows["static@0.8"]["false_hit_rate"] > 0.3
    assert rows["adaptive"]["hits"] == 0


@pytest.mark.parametrize("command", [("savings",), ("eval", "--log")])
def test_the_html_report_prints_the_bound(command: tuple[str, ...], tmp_path: Path) -> None:
    log = write(tmp_path / "log.jsonl", classified(lambda at: PROSE[at % len(PROSE)]))
    page = tmp_path / "page.html"
    assert main([*command, log, "--report", str(page)]) == 0
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page.read_text())).split())
    assert re.search(r"\b0 to \d+\.\d+ %", text)
    assert not re.search(r"0\.0+ % \[0\.0+, [^]]*\]\s*(were |are )?wrong", text)


COUNTS = st.integers(0, 500)


@given(COUNTS, COUNTS, COUNTS)
def test_the_words_for_a_share_hold_what_is_not_known(right: int, wrong: int, unsure: int) -> None:
    judged = Judged(right, wrong, unsure)
    said = judged.said()
    low, high = judged.bounds
    if right + wrong == 0:
        assert said.startswith("not known")
    elif unsure:
        assert low is not None
        assert high is not None
        assert low < high
        assert " to " in said or said.startswith("not known")
        assert f"{unsure:,} of {judged.n:,} could not be judged" in said
        assert judged.interval[0] <= low
        assert high <= judged.interval[1]
    else:
        assert low == high == wrong / judged.n
