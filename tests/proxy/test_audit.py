"""Labels from traffic: audits, shadow mode, misses; and the second opinion before a hit."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import pytest

from recall_cli.proxy.metrics import Metrics
from tests.proxy.answers import chat, provider, reply_with
from tests.proxy.conftest import Start
from tests.proxy.fake import Reply, Seen, ask
from tests.proxy.test_rules import NEAR, fill, wait_for

DAYS = {"old": "You have 30 days to return it.", "new": "You have 14 days to return it."}


def scripted(*texts: str) -> Any:
    left = list(texts)
    return provider(lambda prompt: left.pop(0) if len(left) > 1 else left[0])


def test_a_hit_is_asked_again_and_found_right(start: Start) -> None:
    proxy, upstream = start(scripted(DAYS["old"]), verify_sample=1.0)
    fill(proxy, stream=True)
    assert ask(proxy, NEAR, stream=True).text == DAYS["old"]
    metrics = proxy.server.metrics
    wait_for(lambda: metrics.labels["audit", "same"] == 1)
    asked = upstream.seen[-1].json
    assert asked["temperature"] == 0
    assert "stream" not in asked
    assert upstream.seen[-1].header("authorization") == "Bearer k-1"
    wrong, n, interval = metrics.false_hits()
    assert (wrong, n) == (0, 1)
    assert interval is not None
    proxy.settle()
    assert len(upstream.seen) == 2
    assert len(proxy.server.keeper.cache) == 1


def test_a_wrong_hit_is_asked_twice_and_gets_its_own_answer(start: Start) -> None:
    proxy, upstream = start(scripted(DAYS["old"], DAYS["new"]), verify_sample=1.0)
    fill(proxy)
    assert ask(proxy, NEAR).text == DAYS["old"]
    metrics = proxy.server.metrics
    wait_for(lambda: metrics.labels["audit", "different"] == 1)
    assert len(upstream.seen) == 3
    wait_for(lambda: len(proxy.server.keeper.cache) == 2)
    got = ask(proxy, NEAR)
    assert (got.outcome, got.text) == ("EXACT", DAYS["new"])
    assert metrics.false_hits()[:2] == (1, 1)


def test_a_model_that_does_not_repeat_itself_makes_no_label(start: Start) -> None:
    proxy, _ = start(scripted(DAYS["old"], DAYS["new"], DAYS["old"]), verify_sample=1.0)
    fill(proxy)
    ask(proxy, NEAR)
    wait_for(lambda: proxy.server.metrics.labels["audit", "unsure"] == 1)
    assert proxy.server.metrics.false_hits()[:2] == (0, 0)


PROSE = ("Payment is possible with a card; cash works too.", "You can pay by card or in cash.")


def test_hits_that_nobody_can_judge_are_a_bound_on_the_page_and_in_the_metrics(start: Start) -> None:
    proxy, _ = start(scripted(PROSE[0], PROSE[1], PROSE[0]), shadow=True)
    fill(proxy)
    metrics = proxy.server.metrics
    for n, (low, high) in enumerate(((None, None), (0.0, 0.5)), start=1):
        assert ask(proxy, NEAR + "?" * n).outcome == "SHADOW"
        proxy.settle()
        told = metrics.summary()["false_hits"]
        assert (told["unsure"], told["low"], told["high"]) == (1, low, high)
    exposed = metrics.exposition().decode()
    assert "recall_false_hit_unsure 1.0" in exposed
    assert "recall_false_hit_most 0.5" in exposed
    # It would say that nothing is wrong.
    assert "recall_false_hit_rate " not in exposed


def test_another_label_is_a_wrong_hit(start: Start) -> None:
    proxy, _ = start(scripted("positive", "negative", "positive"), shadow=True)
    fill(proxy)
    for n in (1, 2):
        ask(proxy, NEAR + "?" * n)
        proxy.settle()
    # Each is the other's opposite: what was wrong was stored, and is what the next one is near.
    assert proxy.server.metrics.false_hits()[:2] == (2, 2)
    assert "recall_false_hit_rate 1.0" in proxy.server.metrics.exposition().decode()


@pytest.mark.skipif(shutil.which("node") is None, reason="the page's script runs in node")
@pytest.mark.parametrize(
    ("right", "wrong", "unsure", "said"),
    [
        (0, 0, 0, "–"),
        (9, 1, 0, "10.0 %"),
        (9, 0, 0, "0.0 %"),
        (0, 0, 3, "not known"),
        (39, 0, 61, "0 to 61.0 %"),
        (80, 10, 10, "10.0 to 20.0 %"),
    ],
)
def test_the_page_says_what_is_known(right: int, wrong: int, unsure: int, said: str) -> None:
    metrics = Metrics()
    for verdict, n in (("same", right), ("different", wrong), ("unsure", unsure)):
        metrics.labels["audit", verdict] = n
    page = (files("recall_cli") / "proxy" / "page.html").read_text()
    needed = [re.search(rf"^{start}.*?^{end}", page, re.M | re.S) for start, end in (("const percent", "const range"),)]
    function = re.search(r"^function wrong\(f\) \{.*?^\}", page, re.M | re.S)
    assert function is not None
    assert needed[0] is not None
    percent = needed[0][0].rsplit("const range", 1)[0]
    facts = json.dumps(metrics.summary()["false_hits"])
    code = f"{percent}\n{function[0]}\nprocess.stdout.write(wrong({facts}))"
    assert subprocess.run(["node", "-e", code], capture_output=True, check=True, text=True).stdout == said


def test_an_audit_that_fails_is_counted_and_harms_nobody(start: Start) -> None:
    calls: list[Seen] = []

    def handle(seen: Seen) -> Reply:
        calls.append(seen)
        return reply_with(chat(), seen) if len(calls) == 1 else Reply([b"{}"], status=500)

    proxy, _ = start(handle, verify_sample=1.0)
    fill(proxy)
    assert ask(proxy, NEAR).outcome == "SEMANTIC"
    wait_for(lambda: proxy.server.metrics.dropped["audit"] == 1)
    assert ask(proxy, NEAR).outcome == "SEMANTIC"


def test_shadow_mode_labels_what_it_would_have_served(start: Start) -> None:
    proxy, _ = start(scripted(DAYS["old"], DAYS["old"], DAYS["new"]), shadow=True)
    fill(proxy)
    assert ask(proxy, NEAR).outcome == "SHADOW"
    proxy.settle()
    assert ask(proxy, NEAR + "?").outcome == "SHADOW"
    proxy.settle()
    assert proxy.server.metrics.labels == {("shadow", "same"): 1, ("shadow", "different"): 1}
    assert proxy.server.metrics.false_hits()[:2] == (1, 2)


def test_the_adaptive_policy_learns_from_misses_and_then_serves(start: Start) -> None:
    """Cold, it serves nothing; the labels of misses alone bring it to serve what is the same question again."""
    topics = [f"How do I {verb} my {thing}?" for verb in VERBS for thing in THINGS]
    pages = {topic.lower().rstrip("?"): number for number, topic in enumerate(topics)}
    proxy, _ = start(
        # Answers whose numbers differ are different by rule: a label for each miss.
        provider(lambda prompt: f"It is described on page {pages[prompt.lower().rstrip('?')]} of the manual."),
        policy="adaptive",
        target_false_hit=0.05,
        verify_sample=0.1,
    )
    outcomes = []
    for topic in topics:
        for prompt in (topic, topic.lower().rstrip("?")):
            outcomes.append(ask(proxy, prompt).outcome)
            proxy.settle()
    assert outcomes[:100].count("SEMANTIC") == 0, "nothing before it has labels"
    assert outcomes[-100:].count("SEMANTIC") > 20
    assert proxy.server.metrics.labels["miss", "same"] > 40
    assert proxy.server.keeper.cache.policy.state()["labels"] >= 100


VERBS = ["reset", "change", "delete", "export", "share", "print", "rename", "archive", "restore", "sort"]
THINGS = ["password", "invoice", "calendar", "profile", "report", "photo", "folder", "playlist", "ticket", "address",
          "contract", "budget", "recipe", "backup", "survey"]  # fmt: skip


def test_evidence_as_a_second_opinion(start: Start) -> None:
    proxy, _ = start(scripted("one", "two", "three"), tau=0.6, verify_on_hit="evidence")
    fill(proxy, "Can I return the item within 30 days of delivery?")
    got = ask(proxy, "Can't I return the item within 30 days of delivery?")
    assert (got.outcome, got.reason) == ("MISS", "veto_negation")
    assert ask(proxy, "can i return the item within 30 days of delivery").outcome == "SEMANTIC"


@pytest.mark.parametrize(("says", "outcome"), [("Yes.", "SEMANTIC"), ("no", "MISS"), ("Hm", "MISS"), ("", "MISS")])
def test_a_model_as_a_second_opinion(says: str, outcome: str, start: Start) -> None:
    def handle(seen: Seen) -> Reply:
        if seen.json["model"] == "judge":
            return reply_with(chat(says), seen)
        return reply_with(chat(f"to {seen.json['messages'][-1]['content']}"), seen)

    proxy, upstream = start(handle, verify_on_hit="llm:judge")
    fill(proxy)
    got = ask(proxy, NEAR)
    assert got.outcome == outcome
    if outcome == "MISS":
        assert got.reason == "second_opinion"
        assert got.text == f"to {NEAR}"
    judged = [seen.json for seen in upstream.seen if seen.json["model"] == "judge"]
    assert len(judged) == 1
    question = json.dumps(judged[0]["messages"])
    assert NEAR in question
    assert "How do I reset my password?" in question


def test_a_local_second_opinion(start: Start) -> None:
    proxy, upstream = start(scripted("one", "two", "three"), tau=0.6, verify_on_hit="model")
    fill(proxy, "Can I return the item within 30 days of delivery?")
    got = ask(proxy, "Should I return the item within 30 days of delivery?")
    assert (got.outcome, got.reason, got.text) == ("MISS", "second_opinion", "two")
    assert ask(proxy, "can i return the item within 30 days of delivery").outcome == "SEMANTIC"
    assert len(upstream.seen) == 2
