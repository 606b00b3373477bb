"""Over HTTP, before a real upstream: no question gets the answer of another one that looks like it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import never_the_same as kinds
from tests.proxy.answers import provider
from tests.proxy.conftest import Start
from tests.proxy.fake import RunningProxy, ask

DEFAULTS: dict[str, Any] = {}
POLICIES = [
    DEFAULTS,
    {"policy": "static", "tau": 0.8},
    {"policy": "adaptive", "verify_sample": 0.05},
    {"policy": "exact"},
]


def wrong(proxy: RunningProxy, groups: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """Ask every text of each group in turn; return (asked, the question of its group whose answer came instead)."""
    served = []
    for group in groups:
        for text in group:
            got = ask(proxy, text).text.removeprefix("to ")
            if got != text and got in group:
                served.append((text, got))
            proxy.settle()
    return served


@pytest.mark.parametrize("options", POLICIES, ids=str)
def test_what_was_not_read_or_not_told_apart_is_asked_upstream(options: dict[str, Any], start: Start) -> None:
    proxy, _ = start(provider(lambda text: f"to {text}"), **options)
    groups = [*kinds.QUESTIONS.values(), *kinds.UNREAD, *kinds.NOT_TOLD_APART]
    assert wrong(proxy, groups) == []


@pytest.mark.shared
@pytest.mark.parametrize("options", POLICIES, ids=str)
def test_the_questions_at_hand_are_asked_upstream(options: dict[str, Any], start: Start, shared_data: Path) -> None:
    given = json.loads((shared_data.parent / "faults" / "never-the-same.json").read_bytes())
    proxy, _ = start(provider(lambda text: f"to {text}"), **options)
    pairs = [(pair["a"], pair["b"]) for kind in ("unread", "opposite") for pair in given[kind]]
    assert wrong(proxy, [*given["questions"].values(), *pairs]) == []


def test_the_reason_stands_in_the_header_and_the_metrics(start: Start) -> None:
    proxy, _ = start(provider(lambda text: f"to {text}"))
    texts = ("Какая сегодня погода в Москве?", "Did Alice pay Bob today?", "Did Bob pay Alice today?")
    reasons = []
    for text in texts:
        reasons.append(ask(proxy, text).reason)
        proxy.settle()
    assert reasons == ["unread_text", "empty_partition", "not_told_apart"]
    assert ask(proxy, texts[0]).outcome == "EXACT"
    counted = proxy.server.metrics.summary()["reasons"]
    assert {"openai MISS unread_text", "openai MISS not_told_apart"} <= counted.keys()
