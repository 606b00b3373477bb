"""A log as a stream: answers compared two by two, walls that no hit crosses, nothing left out unsaid."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_cli.cache.answers.compare import Comparator
from recall_cli.cache.answers.verdict import Comparison, Same
from recall_cli.cache.evidence.evidence import evidence
from recall_cli.cache.evidence.floor import Floor
from recall_cli.cache.evidence.text_features import facts
from recall_cli.cache.policy.static import StaticPolicy
from recall_cli.errors import GateFailed, InputError, UsageError
from recall_cli.measure.evaluate import evaluate, from_log
from recall_cli.measure.evaluate import policies as eval_static
from recall_cli.measure.evaluate.comparator import ANSWERS
from recall_cli.measure.evaluate.evaluate import Log
from recall_cli.measure.evaluate.labels import Verdicts
from recall_cli.measure.evaluate.policies import ADAPTIVE, STATIC, Settings, run_seed
from recall_cli.measure.evaluate.replay import Stream, Trace, replay
from recall_cli.measure.synthetic.text import stream as text_stream
from recall_cli.measure.synthetic.vectors import World

SMALL = World(name="small", namespaces=3, queries=400, dims=16, intents=8, repeats=0.1, inter=(0.1, 0.4))


def line(text: str, answer: str | None = "Yes.", *, at: float | None = None, **request: Any) -> dict[str, Any]:
    messages = request.pop("messages", [{"role": "user", "content": text}])
    row: dict[str, Any] = {"request": {"model": "m-1", "temperature": 0, "messages": messages} | request}
    if answer is not None:
        row["response"] = {"choices": [{"message": {"content": answer}, "finish_reason": "stop"}]}
    return row | ({} if at is None else {"timestamp": at})


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def traffic(n: int, seed: int = 3) -> tuple[list[dict[str, Any]], list[int]]:
    """Return log lines of our text world, and the class of each answer; an answer comes in several wordings."""
    rng = np.random.default_rng(seed)
    classes: dict[tuple[str, str], int] = {}
    rows, of = [], []
    with_numbers = [answer for answer in ANSWERS if answer.numbers and len(answer.wordings) > 2]
    for i, item in enumerate(text_stream(n, seed)):
        number = classes.setdefault((item.namespace, item.answer_class), len(classes))
        answer = with_numbers[number % len(with_numbers)]
        said = answer.wordings[int(rng.integers(len(answer.wordings)))].replace("{n}", str(100 + number))
        said = said.replace("{e}", answer.names[number % len(answer.names)] if answer.names else "")
        system = {"role": "system", "content": item.namespace}
        rows.append(line("", said, at=1e9 + i, messages=[system, {"role": "user", "content": item.text}]))
        of.append(number)
    return rows, of


# The relation instead of classes


def relation(stream: Stream, share: float, seed: int) -> Callable[[int, int], bool | None]:
    """Return the truth of a stream's classes, with a share of the pairs left unsure."""
    answer = stream.answer.tolist()

    def same(i: int, j: int) -> bool | None:
        low, high = min(i, j), max(i, j)
        unsure = np.random.default_rng([seed, low, high]).random() < share
        return None if unsure else answer[i] == answer[j]

    return same


def test_a_relation_that_is_always_sure_is_a_class() -> None:
    classes = SMALL.stream(0)
    related = replace(classes, same=relation(classes, 0.0, 0), answer=np.zeros_like(classes.answer))
    luck = np.random.default_rng(0).random((len(classes), 2))
    one, two = (eval_static.grid(Trace(stream)) for stream in (classes, related))
    for name in ("hits", "wrong", "unsure", "queries", "exact"):
        assert np.array_equal(getattr(one, name), getattr(two, name))
    assert one.wrong.sum() > 0
    for target in (0.05, 0.2):
        a, b = (eval_static.oracle(table, target) for table in (one, two))
        assert a == b
    policies = [run_seed(_Fixed(stream), 1, Settings(targets=(0.2,))).tallies for stream in (classes, related)]
    assert policies[0] == policies[1]
    assert replay(Trace(related), StaticPolicy(0.8), luck) == replay(Trace(classes), StaticPolicy(0.8), luck)


class _Fixed:
    name = "fixed"

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def stream(self, seed: int) -> Stream:
        return replace(self._stream)


@settings(max_examples=15)
@given(seed=st.integers(0, 100), share=st.floats(0, 1), walls=st.integers(1, 5), tau=st.sampled_from([0.5, 0.8, 0.95]))
def test_replays_of_a_relation_behind_walls_equal_brute_force(seed: int, share: float, walls: int, tau: float) -> None:
    stream = replace(SMALL, queries=150).stream(seed)
    inner = np.random.default_rng(seed).integers(walls, size=len(stream))
    stream.wall = stream.namespace * walls + inner
    # A text is an exact hit only within its wall.
    stream.text = stream.text * walls + inner
    stream.same = relation(stream, share, seed)
    held: list[int] = []
    hits = wrong = unsure = exact = 0
    for i in range(len(stream)):
        own = [j for j in held if stream.wall[j] == stream.wall[i]]
        if any(stream.text[j] == stream.text[i] for j in own):
            exact += 1
            continue
        best = max(own, key=lambda j: float(stream.vectors[j] @ stream.vectors[i]), default=None)
        if best is not None and float(stream.vectors[best] @ stream.vectors[i]) >= tau:
            hits += 1
            wrong += stream.same(i, best) is False
            unsure += stream.same(i, best) is None
        else:
            held.append(i)
    traced = Trace(stream)
    many = eval_static.at(eval_static.grid(traced), eval_static.TAUS.index(tau))
    one = replay(traced, StaticPolicy(tau), np.zeros((len(stream), 2)))
    for tally in (one, many):
        found = (sum(tally.hits), sum(tally.wrong), sum(tally.unsure), tally.exact)
        assert found == (hits, wrong, unsure, exact)
    assert sum(one.queries) + one.exact == len(stream)


def test_nothing_is_learned_from_unsure_pairs_and_no_target_is_held_by_them() -> None:
    stream = SMALL.stream(0)
    stream.same = lambda i, j: None
    outcome = run_seed(_Fixed(stream), 1, Settings(targets=(0.2,)))
    adaptive = outcome.tallies[ADAPTIVE, 0.2]
    assert sum(adaptive.hits) == 0
    assert adaptive.unlabelled > 0
    assert not eval_static.best(outcome.grid, 0.9).feasible
    static = outcome.tallies[STATIC, 0.2]
    assert sum(static.unsure) == sum(static.hits) > 0
    assert sum(static.wrong) == 0


def test_another_order_keeps_walls_and_truth() -> None:
    stream = SMALL.stream(0)
    stream.wall = stream.namespace * 2 + np.arange(len(stream)) % 2
    stream.same = relation(stream, 0.3, 1)
    order = np.random.default_rng(0).permutation(len(stream))
    other = stream.reordered(order)
    assert other.wall is not None
    assert other.same is not None
    for i, j in [(0, 1), (5, 9), (200, 17)]:
        assert other.same(i, j) is stream.same(int(order[i]), int(order[j]))
        assert other.wall[i] == stream.wall[order[i]]


def test_dealt_out_answers_are_learned_as_nothing() -> None:
    stream = replace(SMALL, queries=1_500).stream(2)
    stream.same = relation(stream, 0.0, 0)
    honest = run_seed(_Fixed(stream), 1, Settings(targets=(0.05,), policies=(ADAPTIVE,)))
    dealt = run_seed(_Fixed(stream), 1, Settings(targets=(0.05,), policies=(ADAPTIVE,), shuffle_labels=True))
    assert sum(honest.tallies[ADAPTIVE, 0.05].hits) > 100
    assert sum(dealt.tallies[ADAPTIVE, 0.05].hits) == 0


# Verdicts


class Counting(Comparator):
    """The rules, counting how often they are asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []

    def __call__(self, a: str, b: str) -> Comparison:
        self.asked.append((a, b))
        return super().__call__(a, b)


def test_verdicts_are_symmetric_and_each_pair_of_answers_is_compared_once() -> None:
    answers = ["It takes 3 days.", "It takes 5 days.", "It takes 3 days.", "Maybe."]
    rules = Counting()
    verdicts = Verdicts(answers, rules)
    for i in range(4):
        for j in range(4):
            assert verdicts(i, j) is verdicts(j, i)
    assert len({frozenset(pair) for pair in rules.asked}) == len(rules.asked)
    assert verdicts(0, 2) is True
    assert verdicts(0, 1) is False
    assert verdicts(0, 3) is None
    counts = verdicts.counts()
    assert counts["pairs"] == counts["same"] + counts["different"] + counts["unsure"]
    assert sum(reason["pairs"] for reason in counts["reasons"]) == counts["pairs"]


# Logs


def test_walls_are_those_of_the_cache(tmp_path: Path) -> None:
    def asked(*before: str) -> list[dict[str, str]]:
        roles = ["user", "assistant"] * len(before)
        turns = [{"role": role, "content": text} for role, text in zip(roles, before, strict=False)]
        return [*turns, {"role": "user", "content": "How do I reset my password?"}]

    rows = [
        line("", messages=asked()),
        line("", messages=asked("Hello", "Hi!")),
        line("", messages=[{"role": "system", "content": "Be brief."}, *asked()]),
        line("", messages=asked(), max_tokens=5),
        line("", messages=asked()) | {"tenant": "acme"},
        line("How do I reset my passwords?"),
        line("How do I reset my password?", n=2),
        line("How do I reset my password?", n=2),
        line("龘龘"),
    ]
    stream = from_log.load(write(tmp_path / "log.jsonl", rows)).stream(0)
    assert stream.wall is not None
    assert stream.wall.tolist() == [0, 1, 2, 3, 4, 0, 5, 5, 6]
    # Their namespaces are fewer: a cutoff is learned across conversations and tenants.
    assert len(stream.namespaces) == 2
    traced = Trace(stream)
    assert [near for near in traced.rows if near] == [[0], [6]]
    assert traced.twins[7] == [6]


def test_order_and_what_is_left_out(tmp_path: Path) -> None:
    rows = [
        line("third?", at=1e9 + 30),
        line("first?", at=1e9 + 10),
        line("second?", at=1e9 + 20),
        line("warm?", at=1e9, temperature=0.7),
        line("failed?", None, at=1e9),
        line("tools?", at=1e9, tools=[{"type": "function"}]),
        line("hit?", at=1e9) | {"cached": True},
    ]
    path = write(tmp_path / "log.jsonl", rows)
    with open(path, "a") as file:
        file.write("not json\n")
    source = from_log.load(path)
    assert [request.text for request in source.asked.requests] == ["first?", "second?", "third?"]
    facts = from_log.facts(source)
    assert facts["excluded"] == {"sampled": 1, "no_answer": 1, "tools": 1, "already_cached": 1}
    assert facts["skipped"] == {"malformed_json": 1}
    assert facts["requests"] + sum(facts["skipped"].values()) == facts["lines"] == 8
    assert (facts["cacheable"], facts["order"], facts["span_s"]) == (3, "time", 20.0)
    warm = from_log.load(path, allow_sampled=True)
    assert warm.asked.requests[0].text == "warm?"
    assert warm.params()["allow_sampled"] is True


def test_a_log_without_times_says_so(tmp_path: Path) -> None:
    source = from_log.load(write(tmp_path / "log.jsonl", [line("b?"), line("a?")]))
    assert [request.text for request in source.asked.requests] == ["b?", "a?"]
    facts = from_log.facts(source)
    assert facts["order"] == "file position"
    assert "NO_TIMES" in {warning.code for warning in from_log.warnings(source, facts)}


def test_repeats_tell_how_far_the_model_repeats_itself(tmp_path: Path) -> None:
    answers = ["It takes 3 days.", "it takes 3 days", "It takes 5 days.", "Maybe."]
    rows = [line("How long does it take?", answer) for answer in answers]
    source = from_log.load(write(tmp_path / "log.jsonl", rows))
    repeats = from_log.facts(source)["exact_repeats"]
    assert {name: repeats[name] for name in ("n", "same", "different", "unsure")} == {
        **{"n": 3, "same": 1, "different": 1, "unsure": 1}
    }
    outcome = run_seed(source, 0, Settings(policies=(STATIC,)))
    assert outcome.tallies[STATIC, 0.01].exact == 3
    assert sum(outcome.tallies[STATIC, 0.01].queries) == 1


@pytest.mark.parametrize(
    ("rows", "hint"),
    [([line("a?", temperature=1)], "--allow-sampled"), ([line("a?", None)], "recall savings")],
)
def test_nothing_to_cache_is_an_input_error(tmp_path: Path, rows: list[dict[str, Any]], hint: str) -> None:
    with pytest.raises(InputError, match="may be answered by a cache") as raised:
        from_log.load(write(tmp_path / "log.jsonl", rows))
    assert hint in raised.value.hint


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Any:
    rows, _ = traffic(700)
    path = write(tmp_path_factory.mktemp("log") / "log.jsonl", rows)
    settings = Settings(targets=(0.05,))
    return evaluate.run_all(evaluate.plans([], [], {}, Log(path), embedder="static", seed=1_000, settings=settings))


def test_bounds_hold_the_truth_that_the_comparator_cannot_see(result: Any) -> None:
    rows, classes = traffic(700)
    texts = [row["request"]["messages"][-1]["content"] for row in rows]
    spaces = [row["request"]["messages"][0]["content"] for row in rows]
    row = next(row for row in result.rows if row["policy"] == STATIC)
    from recall_cli.cache.embed.registry import make_embedder, read_vectors

    floor = Floor(make_embedder("static"))
    vectors = read_vectors(make_embedder("static"), texts)
    held: list[int] = []
    hits = wrong = 0
    for i in range(len(rows)):
        own = [j for j in held if spaces[j] == spaces[i]]
        if any(texts[j] == texts[i] for j in own):
            continue
        best = max(own, key=lambda j: float(vectors[j] @ vectors[i]), default=None)
        near = best is not None and float(vectors[best] @ vectors[i]) >= 0.8
        if near and not floor.refusal(texts[i], texts[best], evidence(facts(texts[i]), facts(texts[best]), 1.0)):
            hits += 1
            wrong += classes[best] != classes[i]
        else:
            held.append(i)
    assert row["hits"] == hits > 100
    low, high = row["false_hit_bounds"]
    assert low <= wrong / hits <= high
    assert low < high
    assert row["judged_hits"] + row["unsure_hits"] == row["hits"]
    assert low * hits == pytest.approx(row["false_hits"])
    assert high * hits == pytest.approx(row["false_hits"] + row["unsure_hits"])


def test_the_comparator_and_its_errors_stand_beside_the_rows(result: Any) -> None:
    (log,) = [entry["log"] for entry in result.summary["workloads"].values()]
    truth = log["truth"]
    assert truth["comparator"] == Comparator(_static()).name
    assert truth["errors"]["false_different_n"] > 1_000
    low, high = truth["errors"]["false_same_interval"]
    assert low <= truth["errors"]["false_same_rate"] <= high
    assert truth["unsure_share"] == pytest.approx(truth["unsure"] / truth["pairs"])
    checks = log["to_check"]
    assert {check["verdict"] for check in checks} == {"same", "different", "unsure"}
    assert all(check["a"].rpartition(":")[2].isdigit() and check["a"] != check["b"] for check in checks)
    assert "UNSURE" in {warning.code for warning in result.warnings}
    assert {row["runs"] for row in result.rows} == {1}
    assert result.params["log"].endswith("log.jsonl")


def _static() -> Any:
    from recall_cli.cache.embed.registry import make_embedder

    return make_embedder("static")


def test_a_gate_counts_unjudged_hits_as_wrong(result: Any) -> None:
    row = next(row for row in result.rows if row["policy"] == STATIC)
    assert row["false_hit_bounds_interval"][1] > row["false_hit_interval"][1]
    evaluate.check(result, max_false_hit=row["false_hit_bounds_interval"][1], policy=STATIC)
    with pytest.raises(GateFailed, match="not judged") as raised:
        evaluate.check(result, max_false_hit=row["false_hit_interval"][1], policy=STATIC)
    assert "--judge" in raised.value.hint


def test_a_log_is_one_stream(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", [line(f"What is {i} plus {i}?", f"{2 * i}") for i in range(40)])

    def plan(**changes: Any) -> Any:
        how = Settings(order=changes.pop("order", "time"), policies=(STATIC,))
        return evaluate.plans([], [], {}, Log(path), embedder="static", seed=1_000, settings=how, **changes)

    assert plan()[0].runs == 1
    with pytest.raises(UsageError, match="one stream"):
        plan(runs=2)
    found = evaluate.run_all(plan(runs=3, order="shuffled"))
    assert {row["runs"] for row in found.rows} == {3}
    assert {row["queries"] for row in found.rows} == {120}
    once = evaluate.run_all(plan(runs=1, order="shuffled")).rows[0]
    for key in ("hit_rate_interval", "false_hit_interval"):
        # The same questions three times over are no more questions.
        width = [row[key][1] - row[key][0] for row in (once, found.rows[0])]
        assert width[1] > 0.8 * width[0]


# A judge


class Oracle:
    """A judge that knows, and counts; the interface is that of `cache.answers.llm_judge.Judge`."""

    name = "llm:oracle"

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.asked: list[tuple[str, str]] = []

    @property
    def spent(self) -> bool:
        return len(self.asked) >= self.limit

    @property
    def calls(self) -> int:
        return len(self.asked)

    def __call__(self, a: str, b: str) -> bool | None:
        if self.spent:
            return None
        self.asked.append((a, b))
        return False


def test_the_judge_is_asked_for_unsure_pairs_alone_the_nearest_first(tmp_path: Path) -> None:
    rows, _ = traffic(300)
    path = write(tmp_path / "log.jsonl", rows)
    judge: Any = Oracle(10)
    source = from_log.load(path, judge=judge)
    assert len(judge.asked) == len(set(judge.asked)) == 10
    rules = Comparator(_static())
    assert {rules(a, b).verdict for a, b in judge.asked} == {Same.UNSURE}
    judged = [reason for reason in source.verdicts.counts()["reasons"] if reason["reason"] == "judge"]
    assert sum(reason["pairs"] for reason in judged) >= 10
    # The pair put first is the nearest of all that are unsure.
    plain = from_log.load(path)
    eval_static.grid(Trace(plain.questions))
    vectors, answers = plain.questions.vectors, plain.asked.answers
    unsure = [pair for pair in plain.verdicts._pairs if plain.verdicts(*pair) is None]
    nearest = max(float(vectors[i] @ vectors[j]) for i, j in unsure)
    first = [pair for pair in unsure if {answers[pair[0]], answers[pair[1]]} == set(judge.asked[0])]
    assert max(float(vectors[i] @ vectors[j]) for i, j in first) == pytest.approx(nearest)
