"""One contract, every embedder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cache.embed.registry import (
    HashEmbedder,
    bundled_folder,
    load_static_model,
    make_embedder,
    read_vectors,
    reads,
)
from recall_cli.cache.embed.static import SELF_CHECK
from recall_cli.cache.embed.word_pieces import Pieces
from recall_cli.errors import EmbedderError, UsageError
from recall_cli.types import Embedder
from tests.never_the_same import QUESTIONS

WAYS = ("plain", "words", "nanotoken")
TEXTS = st.text(st.characters(), max_size=120) | st.lists(
    st.sampled_from(
        ["reset", "Password", "naïve", "日本", "👍🏽", "[UNK]", "12.5%", "\x00", "\x1c", "\u0301", "it's", ""]
    ),
    max_size=40,
).map(" ".join)


def make(name: str) -> Embedder:
    if name.startswith("static:"):
        try:
            return make_embedder("static", tokens=name.partition(":")[2])
        except UsageError:
            pytest.skip("the extra fast is not installed")
    if name == "model2vec":
        return make_embedder(f"model2vec:{bundled_folder()}")
    return make_embedder(name)


@pytest.fixture(scope="module", params=["hash-v1", *(f"static:{way}" for way in WAYS), "model2vec"])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return make(request.param)


@pytest.fixture(scope="module")
def stock() -> object:
    return load_static_model(bundled_folder())


@given(text=TEXTS)
def test_vectors_are_float32_and_unit_or_zero(embedder: Embedder, text: str) -> None:
    vector = embedder.embed(text)
    assert vector.shape == (embedder.dim,)
    assert vector.dtype == np.float32
    norm = float(np.linalg.norm(vector))
    assert norm == pytest.approx(1, abs=1e-5) or norm == 0


@given(texts=st.lists(TEXTS, max_size=8))
def test_batch_equals_single(embedder: Embedder, texts: list[str]) -> None:
    rows = embedder.embed_many(texts)
    assert rows.shape == (len(texts), embedder.dim)
    assert rows.dtype == np.float32
    for row, text in zip(rows, texts, strict=True):
        np.testing.assert_allclose(row, embedder.embed(text), atol=1e-6)


def test_same_text_same_vector_and_callers_may_write_to_it(embedder: Embedder) -> None:
    first = embedder.embed("How do I reset my password?")
    kept = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(embedder.embed("How do I reset my password?"), kept)


def test_fingerprint_is_stable_and_tells_embedders_apart(embedder: Embedder) -> None:
    assert len(embedder.fingerprint) == 64
    assert make_embedder("static").fingerprint == make_embedder("static", tokens="plain").fingerprint
    assert make_embedder("hash-v1").fingerprint != make_embedder("static").fingerprint


@given(text=TEXTS)
def test_static_equals_model2vec(stock: object, embedder: Embedder, text: str) -> None:
    if embedder.name == "hash-v1":
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        return  # model2vec raises on lone surrogates; ours replaces them
    np.testing.assert_allclose(embedder.embed(text), stock.encode(text), atol=1e-6)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [*SELF_CHECK, "x" * 20_000, "word " * 4_000, "a, " * 7_000, "日" * 20_000, "é" * 20_000, "[UNK] " * 600 + "end"],
    ids=lambda text: f"{text[:12]!r}x{len(text)}",
)
def test_static_equals_model2vec_on_long_and_odd_texts(stock: object, embedder: Embedder, text: str) -> None:
    if embedder.name == "hash-v1":
        return
    np.testing.assert_allclose(embedder.embed(text), stock.encode(text), atol=1e-6)  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["", " ", "[UNK]", "\x00"])
def test_text_without_a_known_token_is_zero(text: str) -> None:
    assert not make_embedder("static").embed(text).any()


def test_lone_surrogates_have_a_vector(embedder: Embedder) -> None:
    assert np.isfinite(embedder.embed("reset \ud800 password")).all()


@pytest.mark.parametrize("name", ["", "statik", "model2vec:", "static ", "model2vec", "openai:x"])
def test_an_unknown_name_is_a_sentence_and_a_next_step(name: str) -> None:
    with pytest.raises(EmbedderError, match="no embedder named") as raised:
        make_embedder(name)
    assert raised.value.exit_code == 4
    assert "static" in raised.value.hint


def test_a_missing_folder_names_the_folder() -> None:
    with pytest.raises(EmbedderError, match="no model2vec folder"):
        make_embedder("model2vec:./nowhere")


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match="does not load") as raised:
        make_embedder(f"model2vec:{tmp_path}")
    assert "config.json" in raised.value.hint


def test_a_hub_name_without_a_network_points_to_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(EmbedderError, match="does not load") as raised:
        make_embedder("model2vec:minishlab/no-such-model")
    assert "model2vec:PATH" in raised.value.hint


@pytest.mark.parametrize(
    "text",
    ["How do I reset my password?", "Where is a good café for naïve résumé writers?", "git log -n 5", ""],
)
def test_everyday_text_is_read(embedder: Embedder, text: str) -> None:
    assert reads(embedder)(text)


@pytest.mark.parametrize(
    "text",
    [
        *(questions[0] for name, questions in QUESTIONS.items() if name not in ("german", "french", "spanish")),
        "What does 😀 mean?",
        "Decode SGVsbG8gd29ybGQhIQ== please",
        "Who is 550e8400-e29b-41d4-a716-446655440000 in the table?",
        "r e s e t m y p a s s w o r d",
        "xqzvkw jjkqpw zzxcvq",
    ],
)
def test_what_is_spelled_or_unknown_is_not_read(embedder: Embedder, text: str) -> None:
    # A digest of the whole text tells all texts apart.
    assert reads(embedder)(text) is isinstance(embedder, HashEmbedder)


@given(text=TEXTS)
def test_reading_does_not_depend_on_what_was_read_before(embedder: Embedder, text: str) -> None:
    first = reads(embedder)(text)
    assert reads(embedder)(text) is first
    assert reads(embedder)(f"  {text}\n") is first


def test_an_unread_text_has_no_row_of_its_own(embedder: Embedder) -> None:
    rows = read_vectors(embedder, ["How do I reset my password?", QUESTIONS["thai"][0]])
    assert rows[0].any()
    assert rows[1].any() == isinstance(embedder, HashEmbedder)


def test_a_vocabulary_that_holds_a_script_reads_it() -> None:
    words = ["как", "сменить", "пароль", "где", "моя", "посылка", "сегодня", "погода"]
    held = {word: place for place, word in enumerate(words)}
    many = [f"{a}{b}" for a in "абвгдежзик" for b in "лмнопрстуф"]
    pieces = Pieces(lambda text: [held[w] for w in text.split() if w in held], (), lambda: [*words, *many])
    assert pieces.reads("как сменить пароль")
    assert not Pieces(lambda text: [held[w] for w in text.split() if w in held], (), list).reads("как сменить пароль")
