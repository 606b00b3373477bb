"""Token counts where a log has none."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.errors import UsageError
from recall_cli.measure.pricing import tokens as token_estimate
from recall_cli.measure.pricing.tokens import EVERY, FIRST, MIN_CALIBRATION, Estimator, Fit, input_text, size
from recall_cli.types import Usage


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("four", 1),
        ("hello you", 2.25),
        ("日本語", 2.25),
        ("漢字 and more", 1.5 + 9 / 4),
        ("grüße", 1.25),
        ("한국", 1.5),
    ],
)
def test_size(text: str, tokens: float) -> None:
    assert size(text) == tokens


@given(st.lists(st.tuples(st.floats(1, 1e5), st.floats(1, 1e5)), min_size=1, max_size=40))
def test_the_ratio_is_that_of_least_squares(rows: list[tuple[float, float]]) -> None:
    fit = Fit()
    for x, y in rows:
        fit.add(x, y)
    x, y = np.array(rows).T
    (ratio,), *_ = np.linalg.lstsq(x[:, None], y)
    assert fit.ratio == pytest.approx(ratio, rel=1e-6)
    left = np.sqrt(np.mean((y - ratio * x) ** 2)) / y.mean()
    assert fit.spread == pytest.approx(left, rel=1e-3, abs=1e-5)


def learnt(n: int = MIN_CALIBRATION, **more: bool) -> Estimator:
    """Return an estimator that saw n rows of a model with 1.5 tokens a unit in and 2 out."""
    estimator = Estimator(**more)
    for at in range(n):
        estimator.learn("m", (100.0 + at, 10.0), Usage(round(1.5 * (100 + at)), 20))
    return estimator


def test_a_row_without_counts_gets_those_of_its_model() -> None:
    estimator = learnt()
    assert estimator.fill("m", (1000.0, 50.0)) == Usage(1500, 100)
    assert estimator.fill("other", (1000.0, 50.0)) is None
    found = estimator.summary(10)
    assert found is not None
    assert (found["requests"], found["share"], found["left_without"], found["counter"]) == (1, 0.1, 1, "characters")
    (model,) = found["models"]
    assert (model["model"], model["requests"], model["calibrated_on"]) == ("m", 1, MIN_CALIBRATION)
    assert model["input_ratio"] == pytest.approx(1.5, rel=0.01)
    assert model["output_spread"] == pytest.approx(0)


def test_too_few_rows_calibrate_nothing() -> None:
    assert learnt(MIN_CALIBRATION - 1).fill("m", (1000.0, 50.0)) is None


def test_nothing_missing_is_nothing_estimated() -> None:
    assert learnt().summary(20) is None


def test_exact_counts_need_no_calibration() -> None:
    pytest.importorskip("bpe_openai")
    estimator = Estimator(exact=True)
    text = "The quick brown fox jumps over the lazy dog."
    assert estimator.count(text) == 10  # as o200k has it
    assert estimator.count("<|endoftext|>") > 1  # text of a log is never a control token
    assert estimator.fill("never seen", (12.0, 3.0)) == Usage(12, 3)
    found = estimator.summary(1)
    assert found is not None
    assert found["counter"] == "bpe-openai o200k"
    assert found["models"][0]["input_ratio"] is None


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bpe_openai", None)
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(UsageError, match="needs a tokenizer") as raised:
        token_estimate.exact_counter()
    assert "pip install '.[tokens]'" in raised.value.hint


def test_rows_are_measured_sparsely() -> None:
    estimator = Estimator()
    wanted = [estimator.wants("m") for _ in range(FIRST + 10 * EVERY)]
    assert all(wanted[:FIRST])
    assert sum(wanted[FIRST:]) == 10


def test_input_text_is_what_is_billed() -> None:
    body = {
        "model": "m",
        "system": [{"type": "text", "text": "be kind"}],
        "messages": [
            {"role": "user", "content": "hello"},
            {"role": "user", "content": [{"type": "text", "text": "look"},
                                         {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
        ],
        "tools": [{"type": "function", "function": {"name": "find", "description": "finds things"}}],
        "metadata": {"user": "not billed"},
    }  # fmt: skip
    assert input_text(body).split("\n") == ["be kind", "hello", "look", "find", "finds things"]


@given(st.recursive(st.none() | st.booleans() | st.text() | st.floats(allow_nan=False),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10))  # fmt: skip
def test_any_messages_have_a_text(messages: object) -> None:
    assert isinstance(input_text({"messages": messages}), str)
