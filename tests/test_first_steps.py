"""The script that does README's first steps finds them in the pages, and reads what they print."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import first_steps
from benchmarks.first_steps import Step, asked, commands, steps, told

ROOT = Path(__file__).resolve().parents[1]


def test_both_pages_have_their_steps_in_order() -> None:
    names = {page: [step.name for step in steps(page, (ROOT / page).read_text())] for page in first_steps.PAGES}
    assert names == {
        "README.md": ["first table", "savings", "proxy", "client", "call"],
        "docs/worth-it.md": ["shadow", "first week", "serve", "second week"],
    }


def test_a_page_that_asks_a_proxy_has_started_one() -> None:
    for page in first_steps.PAGES:
        found = steps(page, (ROOT / page).read_text())
        asking = [step for step in found if ":8484" in step.code]
        assert asking
        for step in asking:
            assert any(earlier.stays for earlier in found[: found.index(step)])


@pytest.mark.parametrize("marks", ["", "<!-- command:run -->\n"])
def test_a_step_is_the_block_under_its_mark(marks: str) -> None:
    page = f"```bash\nno\n```\n\n<!-- step: a b -->\n{marks}```bash\none && two\n```\nText.\n```python\nno\n```\n"
    assert steps("p", page) == [Step("p", "a b", "bash", "one && two\n")]


def test_commands_are_lines_and_continued_ones_are_one() -> None:
    assert commands("# why\na b &\nrecall serve \\\n    --shadow\n\n") == ["a b &", "recall serve      --shadow"]
    assert Step("p", "s", "bash", "a &\nrecall serve\n").stays
    assert not Step("p", "s", "bash", "recall savings x\n").stays


PRINTED = """\
x-recall                        calls  as logged
BYPASS sampled                     49         49
EXACT                           1,217      1,216
{"up_s": 1.5, "false_hits": {"wrong": 1, "n": 20, "interval": [0.01, 0.2]}, "saved": {"usd": 0.5}}
"""


def test_what_the_rehearsal_prints_is_read() -> None:
    assert asked(PRINTED) == [
        {"outcome": "BYPASS sampled", "calls": 49, "as_logged": 49},
        {"outcome": "EXACT", "calls": 1217, "as_logged": 1216},
    ]
    found = told(Step("p", "w", "bash", "python docs/rehearse.py ask x\ncurl -s http://h/recall/live\n"), PRINTED)
    assert found["false_hits"]["n"] == 20
    assert found["saved_usd"] == 0.5
    assert asked("") == []


def test_an_example_is_held_to_what_its_page_says() -> None:
    step = Step("p", "c", "python", "print(1)\nprint(2)\n# prints 1\n# prints 2\n")
    assert told(step, "1\n2\n") == {"as_the_page_says": True}
    assert told(step, "1\n3\n") == {"as_the_page_says": False}
