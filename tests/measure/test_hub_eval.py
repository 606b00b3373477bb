"""What `recall hub eval` says of a hub whose right answers are known."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_cli import stats
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.errors import InputError
from recall_cli.hub.ingest.pipeline import ingest
from recall_cli.hub.models import Document, Match, Question, RerankError
from recall_cli.hub.search.pipeline import Hub
from recall_cli.hub.search.rerank import LlmReranker
from recall_cli.hub.stores.folder import make_hub, open_hub
from recall_cli.measure import hub_eval
from recall_cli.measure.hub_eval import HubEvalPlan, load_foreign, load_judgements, ndcg, recall, reciprocal_rank, run

static = cache(partial(make_embedder, "static"))
THINGS = ("kettle", "router", "passport", "tomato", "invoice", "bicycle", "violin", "glacier", "lantern", "anchor")
NOUNS = ("inflation", "parliament", "cholesterol", "algebra", "hurricanes", "football", "enzymes", "mortgages")
gains = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 4), min_size=1)


# Measures


@given(gains, st.permutations("abcdefgh"))
def test_ndcg_is_1_for_the_best_order_and_less_for_others(known: dict[str, int], order: list[str]) -> None:
    best = sorted(order, key=lambda document: -known.get(document, 0))
    assert ndcg(best, known) == pytest.approx(1.0)
    assert 0.0 <= ndcg(order, known) <= 1.0 + 1e-12


def test_ndcg_by_hand() -> None:
    """Gains 3 and 1 at ranks 2 and 3, where 3 and 1 at ranks 1 and 2 would be best."""
    assert ndcg(["x", "a", "b"], {"a": 3, "b": 1}) == pytest.approx(
        (3 / np.log2(3) + 1 / np.log2(4)) / (3 + 1 / np.log2(3))
    )


def test_only_the_first_ten_count() -> None:
    order = [*"0123456789", "a"]
    assert ndcg(order, {"a": 1}) == recall(order, {"a": 1}) == reciprocal_rank(order, {"a": 1}) == 0.0
    assert reciprocal_rank(order, {"9": 1}) == 0.1


def test_what_was_not_found_counts_against_recall() -> None:
    assert recall(["a", "b"], {"a": 1, "gone": 1}) == 0.5
    assert ndcg([], {"a": 1}) == 0.0


@given(gains)
def test_no_measure_likes_a_better_order_less(known: dict[str, int]) -> None:
    documents = sorted(known)[:4]
    for order in permutations(documents):
        swapped = list(order)
        for at in range(len(swapped) - 1):
            if known[swapped[at]] < known[swapped[at + 1]]:
                better = [*swapped[:at], swapped[at + 1], swapped[at], *swapped[at + 2 :]]
                assert ndcg(better, known) > ndcg(swapped, known)


def test_the_interval_of_a_mean_covers_it_and_narrows() -> None:
    few, many = np.tile([0.0, 1.0], 10), np.tile([0.0, 1.0], 1000)
    for values in (few, many):
        mean, low, high = stats.mean_interval(values)
        assert low < mean == 0.5 < high
    assert np.diff(stats.mean_interval(many)[1:]) < np.diff(stats.mean_interval(few)[1:]) / 5
    assert stats.mean_interval([0.3]) == pytest.approx((0.3, 0.3, 0.3))


# Files


def lines(path: Path, *rows: object) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def queries(tmp_path: Path) -> str:
    return lines(tmp_path / "queries.jsonl", {"_id": "1", "text": "one?"}, {"_id": "2", "text": "two?"})


@pytest.mark.parametrize(
    "text",
    [
        "query-id\tcorpus-id\tscore\n1\ta\t2\n2\tb\t1\n1\tc\t0\n",
        "qid,doc_id,relevance\n1,a,2\n2,b,1\n",
        "1 0 a 2\n2 0  b 1\n2\t0\tx\t-1\n",
        '{"query-id": 1, "corpus-id": "a", "score": 2}\n{"query-id": 2, "corpus-id": "b", "score": 1}\n',
    ],
    ids=["tsv", "csv", "trec", "jsonl"],
)
def test_judgements_are_read_as_they_come(tmp_path: Path, queries: str, text: str) -> None:
    (tmp_path / "qrels").write_text(text, encoding="utf-8")
    read = load_judgements(queries, str(tmp_path / "qrels"))
    assert [(q.id, q.text, dict(q.gains)) for q in read.questions] == [("1", "one?", {"a": 2}), ("2", "two?", {"b": 1})]
    assert read.warnings == ()


def test_what_gives_no_judgement_is_said(tmp_path: Path) -> None:
    asked = lines(
        tmp_path / "q", {"_id": "1", "text": "one?"}, {"_id": "1", "text": "again?"}, {"_id": "2", "text": " "},
        {"text": "no id?"}, {"_id": "9", "text": "unjudged?"},
    )  # fmt: skip
    (tmp_path / "r").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n1\tb\tmany\n7\tc\t1\n", encoding="utf-8")
    read = load_judgements(asked, str(tmp_path / "r"))
    assert [question.id for question in read.questions] == ["1"]
    said = " ".join(warning.message for warning in read.warnings)
    for reason in ("came before", "without a text", "without an id", "is a number", "no judgement above 0", "not in"):
        assert reason in said


@pytest.mark.parametrize("qrels", ["", "query-id\tcorpus-id\tscore\n1\ta\t0\n", "what is\nthis?\n", "1 0 a 0\n"])
def test_files_without_an_answerable_question_are_refused(tmp_path: Path, queries: str, qrels: str) -> None:
    (tmp_path / "r").write_text(qrels, encoding="utf-8")
    with pytest.raises(InputError):
        load_judgements(queries, str(tmp_path / "r"))


def test_foreign_questions_need_no_id(tmp_path: Path) -> None:
    texts, said = load_foreign(lines(tmp_path / "f", {"text": "a?"}, {"question": "b?"}, {"id": 3}))
    assert texts == ["a?", "b?"]
    assert len(said) == 1


# A hub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    make_hub(tmp_path / "hubs", "home", static())
    engine = open_hub(tmp_path / "hubs", "home")
    texts = {name: f"The {name} stands in the hall. Take the {name} with you. " * 3 for name in THINGS}
    ingest(engine, static(), [Document(name, text, title=name.title()) for name, text in texts.items()])
    made = Hub(engine, static())
    yield made
    made.close()


def plan(tmp_path: Path, **more: object) -> HubEvalPlan:
    asked = lines(tmp_path / "q.jsonl", *({"_id": name, "text": f"where is the {name}?"} for name in THINGS))
    rows = [{"query-id": name, "corpus-id": name, "score": 1} for name in THINGS]
    return HubEvalPlan(asked, lines(tmp_path / "r.jsonl", *rows), **more)  # type: ignore[arg-type]


def test_a_hub_that_is_always_right_scores_1_in_every_leg(tmp_path: Path, hub: Hub) -> None:
    result = run(hub, plan(tmp_path))
    assert [row["leg"] for row in result.rows] == ["lexical", "vector", "fused"]
    for row in result.rows:
        assert row["queries"] == len(THINGS)
        assert row["ndcg_at_10"] == row["mrr_at_10"] == row["recall_at_10"] == pytest.approx(1.0)
    learned = result.summary["hubs"]["home"]
    assert learned["no_lexical_candidate"] == 0.0
    assert learned["gain_over_better_leg"] == 0.0
    assert result.warnings == []


def test_the_fused_row_is_what_the_hub_answers(tmp_path: Path, hub: Hub) -> None:
    """Judgements that name the document two places below the right one: whatever the order, it is the hub's own."""
    asked = plan(tmp_path)
    answers = {
        name: [m.passage.doc_id for m in hub.recall(Question(f"where is the {name}?")).results] for name in THINGS
    }
    rows = [{"query-id": name, "corpus-id": answers[name][2], "score": 1} for name in THINGS]
    shifted = HubEvalPlan(asked.queries, lines(tmp_path / "shifted.jsonl", *rows))
    fused = run(hub, shifted).rows[-1]
    assert fused["mrr_at_10"] == pytest.approx(1 / 3)
    assert fused["ndcg_at_10"] == pytest.approx(1 / np.log2(4))


def test_documents_that_the_hub_lacks_are_said_and_count_as_not_found(tmp_path: Path, hub: Hub) -> None:
    asked = plan(tmp_path)
    rows = [{"query-id": name, "corpus-id": doc, "score": 1} for name in THINGS for doc in (name, f"lost {name}")]
    result = run(hub, HubEvalPlan(asked.queries, lines(tmp_path / "more.jsonl", *rows)))
    assert [warning.code for warning in result.warnings] == ["ABSENT_DOCUMENTS"]
    assert result.rows[0]["recall_at_10"] == 0.5


def test_questions_without_a_known_word_are_counted(tmp_path: Path, hub: Hub) -> None:
    asked = lines(tmp_path / "q", {"_id": "1", "text": "kettle"}, {"_id": "2", "text": "zyzzyva"})
    rows = lines(tmp_path / "r", *({"query-id": n, "corpus-id": "kettle", "score": 1} for n in "12"))
    assert run(hub, HubEvalPlan(asked, rows)).summary["hubs"]["home"]["no_lexical_candidate"] == 0.5


def test_only_what_was_shown_to_be_worth_it_is_saved(tmp_path: Path, hub: Hub) -> None:
    """Every weight is right here, so none is better; the limit keeps questions about other things out."""
    frames = ("where is the {}?", "the {} in the hall", "take the {}", "who has the {}?", "{}")
    asked = [(f"{name} {n}", frame.format(name)) for name in THINGS for n, frame in enumerate(frames)]
    foreign = [{"text": f"{verb} {noun}"} for verb in ("rising", "buy", "seven", "why") for noun in NOUNS]
    before = hub.engine.info()
    learned = run(
        hub,
        HubEvalPlan(
            lines(tmp_path / "q", *({"_id": id, "text": text} for id, text in asked)),
            lines(tmp_path / "r", *({"query-id": i, "corpus-id": i.split()[0], "score": 1} for i, _ in asked)),
            foreign=lines(tmp_path / "f", *foreign),
            fit=True,
            target=0.2,
            save=True,
        ),
    ).summary["hubs"]["home"]
    after = hub.engine.info()
    assert learned["fit"]["gain_interval"] == [0.0, 0.0]
    assert after.alpha == before.alpha
    assert after.min_score is not None
    assert learned["saved"] == {"min_score": after.min_score}
    assert hub.recall(Question("rising inflation")).results == []
    assert hub.recall(Question("where is the violin?")).results


class Turned(LlmReranker):
    """Likes last what was first, and fails at every third question."""

    asked = 0
    closed = False

    async def __call__(self, question: str, matches: Sequence[Match]) -> list[float]:
        self.asked += 1
        if self.asked % 3 == 0:
            raise RerankError("timeout")
        return [float(rank) for rank in range(len(matches))]

    async def close(self) -> None:
        self.closed = True


def test_the_reranked_order_is_a_row_and_its_failures_are_counted(tmp_path: Path, hub: Hub) -> None:
    reranker = Turned()
    result = run(Hub(hub.engine, static(), reranker=reranker), plan(tmp_path), reranker=reranker)
    reranked = result.rows[-1]
    assert reranked["leg"] == "reranked"
    # The right document comes last of ten, or first where the fused order stood.
    assert reranked["mrr_at_10"] == pytest.approx((3 + 7 / 10) / 10)
    assert result.summary["hubs"]["home"]["rerank_failures"] == {"timeout": 3}
    assert reranker.closed


# The weight


def peaked(best: float, n: int = 60) -> list[float]:
    """Return where each of n questions likes the weight best, around one place."""
    return np.clip(best + np.random.default_rng(3).normal(scale=0.08, size=n), 0, 1).tolist()


@pytest.mark.parametrize("best", [0.1, 0.35, 0.8])
def test_the_fit_finds_where_questions_are_answered_best(best: float) -> None:
    places = peaked(best)
    fit = hub_eval.fit_alpha(lambda alpha: [1 - abs(alpha - place) for place in places], present=0.5)
    assert fit.alpha == pytest.approx(best, abs=0.051)
    assert fit.summary["gain_interval"][0] > 0
    assert fit.warnings == ()
    top = max(fit.summary["curve"], key=lambda point: point["ndcg_at_10"])
    assert top["alpha"] == fit.alpha


def test_a_weight_that_only_fits_noise_is_said_to_gain_nothing() -> None:
    noise = np.random.default_rng(1).random((21, 40))
    fit = hub_eval.fit_alpha(lambda alpha: noise[round(alpha * 20)].tolist(), present=0.5)
    assert [warning.code for warning in fit.warnings] == ["NO_GAIN_SHOWN"]


def test_equal_weights_stay_with_the_present_one() -> None:
    assert hub_eval.fit_alpha(lambda alpha: [1.0, 0.5, 0.2], present=0.3).alpha == pytest.approx(0.3)
    assert hub_eval.fit_alpha(lambda alpha: [1.0], present=0.3).summary["folds"] == 1


# The limit


def cosines(low: float, high: float, n: int, seed: int = 0) -> Sequence[float]:
    return np.random.default_rng(seed).uniform(low, high, n).tolist()


def test_a_gap_between_answerable_and_foreign_questions_is_found() -> None:
    limit = hub_eval.learn(cosines(0.6, 0.9, 300), cosines(0.1, 0.4, 300), target=0.05)
    assert limit.min_score is not None
    assert 0.4 <= limit.min_score <= 0.7
    assert limit.summary["auc"] == 1.0
    assert limit.summary["foreign_answered"] == 0.0
    assert limit.summary["answerable_answered"] > 0.7
    assert limit.warnings == ()


def test_questions_that_cannot_be_told_apart_give_no_limit() -> None:
    limit = hub_eval.learn(cosines(0.2, 0.9, 200), cosines(0.2, 0.9, 200, seed=1), target=0.05)
    assert limit.min_score is None
    assert limit.summary["false_answers"] is None
    assert [warning.code for warning in limit.warnings] == ["NO_MIN_SCORE"]


@given(st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_the_limit_keeps_its_target_on_questions_held_out(seed: int) -> None:
    """Overlapping kinds: the promise is on the mix of the files, with room for the luck of one draw."""
    rng = np.random.default_rng(seed)
    answerable, foreign = rng.normal(0.7, 0.08, 400), rng.normal(0.5, 0.08, 400)
    limit = hub_eval.learn(answerable.tolist(), foreign.tolist(), target=0.1, seed=seed)
    assert limit.min_score is not None
    assert limit.summary["false_answers"] <= 0.15
