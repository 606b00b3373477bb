"""One decision flow: the cache, the proxy, a transport, the replay of savings and that of eval decide alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from recall_cli.adapters.transport import CachedTransport
from recall_cli.cache.answers.compare import Comparator
from recall_cli.cache.cache import Cache
from recall_cli.cache.decision import as_miss, decide, learn
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.evidence.evidence import VETOES
from recall_cli.cache.policy.static import StaticPolicy
from recall_cli.cache.request import parse_body
from recall_cli.logs.read import read_log
from recall_cli.logs.report import ReadReport
from recall_cli.measure.columns import Workspace
from recall_cli.measure.evaluate.from_log import load
from recall_cli.measure.evaluate.replay import Trace, replay
from recall_cli.measure.pricing.book import PriceBook
from recall_cli.measure.savings.rows import collect
from recall_cli.measure.savings.tiers import BY_EXACT, BY_SEMANTIC, EXACT, SEMANTIC, Semantic, replay_rows
from recall_cli.proxy import serve
from recall_cli.types import Completion, Decision, Evidence, Lookup, Outcome, Request, Verdict
from tests.proxy.answers import provider
from tests.proxy.fake import FakeUpstream, RunningProxy, ask, make_plan
from tests.proxy.test_rules import wait_for

EMBEDDER = make_embedder("static")
COMPARE = Comparator(EMBEDDER)

WAYS = (
    "How do I {} my {}?",
    "How can I {} my {}?",
    "how do i {} my {}",
    "How do I {} my {}?",
    "my {1}, how do I {0} it?",
    "How do I {} my {} in под?",
    "How do I not {} my {}?",
)
TASKS = [
    (verb, thing) for verb in ("reset", "change", "print", "share") for thing in ("password", "invoice", "calendar")
]
STREAM = [(way.format(*task), f"See page {at}.") for way in WAYS for at, task in enumerate(TASKS)]
"""Each task in all wordings: repeats, rewordings, words in another order, words that were not read, and negations."""
# Of every fifth question the answer has changed since.
STREAM = [(text, answer if at % 5 else f"Ask number {at}.") for at, (text, answer) in enumerate(STREAM)]
PRIME = "What is the weather like on the coast of Norway in May?", "Cold."
"""The first question, which has no candidate, and the last, an exact hit: in a log the answer before it is there."""


class Recorded(StaticPolicy):
    """A policy that learns nothing, has a third of the hits checked, and writes down all it is told."""

    learns = True
    candidates = 8

    def __init__(self) -> None:
        super().__init__(0.8)
        self.told: list[tuple[Any, ...]] = []

    def decide(self, namespace: str, evidence: Evidence) -> Verdict:
        verdict = super().decide(namespace, evidence)
        verdict.audit = verdict.serve and is_drawn(evidence.similarity)
        self.told.append(("decide", *seen(evidence), verdict.serve))
        return verdict

    def observe(self, namespace: str, evidence: Evidence, *, same: bool) -> None:
        self.told.append(("observe", *seen(evidence), same))

    def unsure(self, namespace: str, evidence: Evidence) -> None:
        self.told.append(("unsure", *seen(evidence)))


def is_drawn(similarity: float) -> bool:
    """Return whether a hit is to be checked: a third of them, by a digit that the headers tell too."""
    return round(similarity * 1e4) % 3 == 0


def seen(evidence: Evidence) -> tuple[float, ...]:
    """Return what a policy is shown; vectors computed one by one and together differ in the last digits."""
    names = ("similarity", "margin", "overlap", "length_ratio", "numbers", "negation", "roles", "detail", "names")
    return tuple(round(getattr(evidence, name), 4) for name in (*names, "history"))


Driver = Callable[[Recorded, frozenset[str], Path], list[str]]
"""Asks the whole stream in order, under a policy and with these vetoes; returns what became of each question."""


def questions() -> Iterator[tuple[str, str]]:
    yield PRIME
    yield from STREAM
    yield PRIME


def by_the_cache(policy: Recorded, vetoes: frozenset[str], folder: Path) -> list[str]:
    cache = Cache(embedder=EMBEDDER, policy=policy, vetoes=vetoes)
    outcomes = []
    for text, answer in questions():
        request = parse_body(
            "openai", {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": text}]}
        )
        assert isinstance(request, Request)
        found = cache.get(request)
        outcomes.append(found.decision.outcome.value)
        if found.completion is None or found.audit:
            nearest = None if found.decision.entry is None else cache.store.get(found.decision.entry)
            same = None
            if nearest is not None and found.evidence is not None:
                same = COMPARE(answer, nearest.body.decode()).label
            cache.learn(request, found, Completion(answer.encode()), same=same)
    return outcomes


def audits(proxy: RunningProxy) -> int:
    return sum(count for (source, _), count in proxy.server.metrics.labels.items() if source == "audit")


def by_the_proxy(policy: Recorded, vetoes: frozenset[str], folder: Path) -> list[str]:
    answers: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve, "make_policy", lambda name, **options: policy)
        patch.setattr(serve, "vetoes_of", lambda name, policy: vetoes)
        upstream = FakeUpstream(provider(lambda prompt: answers[-1]))
        with closing(upstream), closing(RunningProxy(make_plan(upstream, verify_sample=0.5))) as proxy:
            outcomes: list[str] = []
            drawn = 0
            for text, answer in questions():
                answers.append(answer)
                reply = ask(proxy, text)
                outcomes.append(reply.outcome)
                drawn += reply.outcome == "SEMANTIC" and is_drawn(float(reply.header("x-recall-similarity") or 0))
                wait_for(partial(lambda n: audits(proxy) == n, drawn))
                proxy.settle()
            return outcomes


def by_a_transport(policy: Recorded, vetoes: frozenset[str], folder: Path) -> list[str]:
    """A hit that is to be checked is not served here, and counts as one all the same."""
    answers: list[str] = []
    upstream = FakeUpstream(provider(lambda prompt: answers[-1]))
    cache = Cache(embedder=EMBEDDER, policy=policy, vetoes=vetoes)
    http = openai.DefaultHttpxClient(transport=CachedTransport(cache))
    outcomes = []
    with (
        closing(upstream),
        openai.OpenAI(
            base_url=upstream.url + "/v1", api_key="k", max_retries=0, timeout=20, http_client=http
        ) as client,
    ):
        for text, answer in questions():
            answers.append(answer)
            turn: Any = {"role": "user", "content": text}
            raw = client.chat.completions.with_raw_response.create(model="m", temperature=0, messages=[turn])
            outcome, _, reason = raw.headers["x-recall"].partition("; reason=")
            outcomes.append("SEMANTIC" if reason == "audited" else outcome)
    return outcomes


def written(folder: Path) -> str:
    """Return the path of the stream as a request log."""
    log = folder / "log.jsonl"
    with log.open("w") as file:
        for at, (text, answer) in enumerate(questions()):
            turn = {"role": "user", "content": text}
            said = {"message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
            line = {
                "timestamp": 1_767_225_600 + 10 * at,
                "latency_ms": 100,
                "request": {"model": "m", "temperature": 0, "messages": [turn]},
                "response": {"model": "m", "choices": [said], "usage": {"prompt_tokens": 9, "completion_tokens": 9}},
            }
            file.write(json.dumps(line) + "\n")
    return str(log)


def by_savings(policy: Recorded, vetoes: frozenset[str], folder: Path) -> list[str]:
    tally = ReadReport()
    with Workspace() as space:
        rows = collect(read_log(written(folder), tally), tally, folder=space, prices=PriceBook(), allow_sampled=False)
        semantic = Semantic(EMBEDDER, policy, space, None, vetoes)
        found = replay_rows(rows, tiers=(EXACT, SEMANTIC), semantic=semantic)
        names = {BY_EXACT: "EXACT", BY_SEMANTIC: "SEMANTIC"}
        return [names.get(int(by), "MISS") for by in found.outcome]


def by_eval(policy: Recorded, vetoes: frozenset[str], folder: Path) -> list[str]:
    """The replay counts, and tells no single decision."""
    stream = load(written(folder)).stream(0)
    tally = replay(Trace(stream), policy, np.ones((len(stream), 2)), vetoes)
    return ["EXACT"] * tally.exact + ["SEMANTIC"] * sum(tally.hits)


@pytest.mark.parametrize("vetoes", [frozenset(), frozenset(VETOES)])
def test_one_stream_is_decided_alike_by_all(vetoes: frozenset[str], tmp_path: Path) -> None:
    policy = Recorded()
    expected = by_the_cache(policy, vetoes, tmp_path)
    assert {"EXACT", "SEMANTIC", "MISS"} == set(expected)
    kinds = [entry[0] for entry in policy.told]
    assert kinds.count("observe") > 15
    for driver in (by_the_proxy, by_a_transport, by_savings, by_eval):
        told = Recorded()
        outcomes = driver(told, vetoes, tmp_path)
        if driver is by_eval:
            assert sorted(outcomes) == sorted(outcome for outcome in expected if outcome != "MISS")
        else:
            assert outcomes == expected, driver.__name__
        assert told.told == policy.told, driver.__name__


def test_what_the_floor_refuses_teaches_nothing_and_what_a_veto_refuses_does() -> None:
    policy, evidence = Recorded(), Evidence(0.9)
    floor = decide(policy, "", evidence, lambda: (evidence, "unread_text"))
    veto = decide(policy, "", evidence, lambda: (evidence, "veto_numbers"))
    opinion = decide(policy, "", evidence, lambda: (evidence, ""), lambda: False)
    below = decide(policy, "", Evidence(0.1), lambda: pytest.fail("a miss reads no text"))
    assert (floor.evidence, veto.evidence, opinion.evidence) == (None, evidence, evidence)
    assert [choice.reason for choice in (floor, veto, opinion, below)] == [
        "unread_text", "veto_numbers", "second_opinion", "below_cutoff",
    ]  # fmt: skip
    before = len(policy.told)
    assert learn(policy, "", None, served=False, same=True).stores
    assert len(policy.told) == before


@pytest.mark.parametrize(
    ("served", "same", "stores"),
    [(False, True, True), (False, False, True), (False, None, True), (True, True, False), (True, False, True),
     (True, None, False)],
)  # fmt: skip
def test_an_audit_replaces_only_what_was_found_wrong(served: bool, same: bool | None, stores: bool) -> None:
    learned = learn(Recorded(), "", Evidence(0.9), served=served, same=same)
    assert (learned.stores, learned.counts) == (stores, same is not None)


def test_a_hit_made_a_miss_keeps_what_its_label_needs() -> None:
    vector, evidence = np.ones(4, np.float32), Evidence(0.9)
    hit = Lookup(Decision(Outcome.SEMANTIC, 0.9, 0.8, 7), Completion(b"x"), vector, evidence, audit=True)
    miss = as_miss(hit, "audited")
    assert (miss.decision.outcome, miss.decision.entry, miss.decision.reason) == (Outcome.MISS, 7, "audited")
    assert miss.completion is None
    assert not miss.audit
    assert miss.vector is vector
    assert miss.evidence is evidence
