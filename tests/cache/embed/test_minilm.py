"""The transformer of the extra `verify`: BERT's ids from the bundled vocabulary, and vectors that mean something."""

import json

import numpy as np
import pytest

from recall_cli.cache.embed import minilm
from recall_cli.cache.embed.registry import bundled_folder, make_embedder
from recall_cli.errors import EmbedderError

TEXTS = ["How do I reset my password?", "naïve café 日本語 👍", "", "word " * 600, "a\ud800b"]


@pytest.fixture(scope="module")
def model():
    return make_embedder("minilm")


def test_ids_shift_by_the_control_tokens_that_the_bundled_vocabulary_left_out():
    vocabulary = json.loads((bundled_folder() / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    # BERT's own list: [PAD] 0, [UNK] 100, "!" 999, "the" 1996.
    assert vocabulary["[UNK]"] == minilm.BUNDLED_UNKNOWN
    assert vocabulary["!"] + minilm.SHIFT == 999
    assert vocabulary["the"] + minilm.SHIFT == 1996


def test_vectors_are_of_unit_length_and_do_not_depend_on_company(model):
    vectors = model.embed_many(TEXTS)
    assert vectors.shape == (len(TEXTS), model.dim)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_array_equal(model.embed(text), vector)
    assert model.embed_many([]).shape == (0, model.dim)


def test_it_reads_the_order_of_words(model):
    bites, bitten, strange = model.embed_many(["dog bites man", "man bites dog", "renew a passport"])
    assert bites @ bitten < 0.999
    assert bites @ bitten > bites @ strange + 0.3


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(minilm, "PACKAGE", "no_such_package")
    with pytest.raises(EmbedderError, match="not installed") as error:
        make_embedder("minilm")
    assert "verify" in error.value.hint
