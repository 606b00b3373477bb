"""Weights for one's own traffic: learned where there is something to learn, refused where there is not."""

import json

import numpy as np
import pytest

from recall_cli.cache.embed.registry import bundled_folder, make_embedder
from recall_cli.errors import GateFailed, InputError, UsageError
from recall_cli.measure.embedder import fit as model_adapt
from recall_cli.measure.embedder.fit import Learner, check, given, run
from recall_cli.measure.evaluate.pairs import Pair

THINGS = ["car", "boat", "house", "garden", "phone", "table", "lamp", "horse", "bread", "wine", "book", "clock"]
FRAMES = ["what does a {} {} cost", "price of one {} {} please", "how much for the {} {}"]


def traffic(decides=True):
    """Pairs in which a colour decides the answer, or in which chance does."""
    rng = np.random.default_rng(3)
    found = []
    for i in range(240):
        thing = THINGS[i % len(THINGS)] + f" {i}"
        one, two = rng.choice(["red", "blue", "green", "black"], 2, replace=False)
        same = bool(i % 2)
        first, second = rng.choice(len(FRAMES), 2, replace=False)
        a, b = FRAMES[first].format(one, thing), FRAMES[second if same else first].format(one if same else two, thing)
        found.append(Pair(a, b, same if decides else bool(rng.random() < 0.5)))
    return found


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    out = tmp_path_factory.mktemp("fit") / "mine"
    return out, run(traffic(), out)


def test_what_decides_gains_weight_and_the_folder_is_a_model(saved):
    out, result = saved
    check(result)
    assert result.summary["auc"]["cross_fitted"] > result.summary["auc"]["before"]
    fitted, base = make_embedder(f"model2vec:{out}"), make_embedder("static")
    assert fitted.fingerprint == result.summary["fingerprint"] != base.fingerprint
    factor = np.linalg.norm(fitted.table, axis=1) / np.maximum(np.linalg.norm(base.table, axis=1), 1e-9)

    def of(word):
        return factor[base.tokens.ids(word)[0]]

    assert min(map(of, ("red", "blue", "green", "black"))) > 1.02 > 0.99 > max(map(of, ("price", "please")))
    assert of("zebra") == pytest.approx(1, abs=0.01)
    assert result.rows[0]["token"]


def test_directions_of_tokens_stay(saved):
    fitted, base = make_embedder(f"model2vec:{saved[0]}"), make_embedder("static")
    cosines = np.einsum("ij,ij->i", fitted.table, base.table)
    lengths = np.linalg.norm(fitted.table, axis=1) * np.linalg.norm(base.table, axis=1)
    known = lengths > 0
    assert (cosines[known] / lengths[known]).min() > 0.999


def test_chance_teaches_nothing_and_writes_nothing(tmp_path):
    result = run(traffic(decides=False), tmp_path / "mine")
    assert not result.summary["saved"]
    assert not (tmp_path / "mine").exists()
    with pytest.raises(GateFailed, match="no model was written"):
        check(result)


def test_no_pair_is_scored_by_weights_it_was_learned_from(monkeypatch, tmp_path):
    seen = []
    fit = Learner.fit
    monkeypatch.setattr(Learner, "fit", lambda self, train: seen.append(set(train.tolist())) or fit(self, train))
    run(traffic(decides=False), tmp_path / "mine")
    assert len(seen) == model_adapt.FOLDS
    everything = set(range(240))
    held = [everything - train for train in seen]
    assert set().union(*held) == everything
    assert sum(map(len, held)) == 240


def test_the_gradient_is_the_slope_of_the_loss():
    learner = Learner(make_embedder("static"), traffic()[:30])
    train = np.arange(0, 30, 2)
    same = learner._same[train]
    sign, weight = np.where(same, -1.0, 1.0), np.ones(len(train))
    at = np.concatenate([np.random.default_rng(0).normal(0, 0.2, learner.size), [1.0, 0.6]])

    def loss(x):
        units, _ = learner._units(x[:-2])
        cosine = np.einsum("ij,ij->i", units[2 * train], units[2 * train + 1])
        z = sign * np.exp(x[-2]) * (cosine - x[-1])
        return np.logaddexp(0, z).sum() + (x[:-2] ** 2).sum() / 2 / model_adapt.SPREAD**2

    gradient = learner._gradient(at, train, sign, weight)
    for i in (0, 3, learner.size // 2, -2, -1):
        step = np.zeros(len(at))
        step[i] = 1e-2
        assert gradient[i] == pytest.approx((loss(at + step) - loss(at - step)) / 2e-2, rel=0.02, abs=2e-3)


def test_too_few_pairs_and_embedders_without_tokens_are_refused(tmp_path):
    with pytest.raises(InputError, match="too few"):
        run(traffic()[:50], tmp_path / "mine")
    with pytest.raises(UsageError, match="no token weights"):
        run(traffic(), tmp_path / "mine", embedder="hash-v1")
    with pytest.raises(UsageError, match="either a log or"):
        given(None, None, "static")
    with pytest.raises(UsageError, match="no model folder"):
        run(traffic(), bundled_folder().parent)


def test_pairs_of_a_log_are_near_questions_whose_answers_tell(tmp_path):
    log = tmp_path / "log.jsonl"
    asked = [("what does a red car cost", "It costs 10 dollars."), ("price of a red car", "It costs 10 dollars."),
             ("price of a blue car", "It costs 20 dollars."), ("who wrote Hamlet", "Shakespeare did.")]  # fmt: skip
    lines = [
        {"timestamp": 1_767_225_600 + i,
         "request": {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": text}]},
         "response": {"choices": [{"message": {"content": answer}, "finish_reason": "stop"}]}}
        for i, (text, answer) in enumerate(asked)
    ]  # fmt: skip
    log.write_text("\n".join(map(json.dumps, lines)))
    found = {(pair.a, pair.b): pair.same for pair in given(str(log), None, "static")}
    assert found[asked[0][0], asked[1][0]] is True
    assert found[asked[1][0], asked[2][0]] is False
    assert not any("Hamlet" in side for pair in found for side in pair)
