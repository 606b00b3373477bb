"""The memory of words gives the tokenizer's own ids, stays bounded, and is shared by threads."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from recall_cli.cache.embed import static
from recall_cli.cache.embed.registry import bundled_folder
from recall_cli.cache.embed.static import Tokens
from recall_cli.errors import UsageError


def load() -> Tokenizer:
    return Tokenizer.from_file(str(bundled_folder() / "tokenizer.json"))


PLAIN = Tokens(load(), 512, "plain")
WORDS = Tokens(load(), 512, "words")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_words_equal_plain(text: str) -> None:
    assert WORDS.ids(text) == PLAIN.ids(text)
    assert WORDS.ids(text) == PLAIN.ids(text)  # and again, from memory


def test_white_space_that_the_tokenizer_removes_joins_words() -> None:
    # str.split() would part these; BERT drops \x1c as a control character.
    assert WORDS.ids("re\x1cset") == PLAIN.ids("reset")


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static, "WORDS_KEPT", 50)
    small = Tokens(load(), 512, "words")
    for i in range(300):
        text = f"word{i} other{i} reset"
        assert small.ids(text) == PLAIN.ids(text)
        assert len(small._known) <= 50


def test_long_words_are_not_remembered() -> None:
    fresh = Tokens(load(), 512, "words")
    fresh.forget()
    text = "a" * 200 + " reset"
    assert fresh.ids(text) == PLAIN.ids(text)
    assert set(fresh._known) == {"reset"}


def test_a_tokenizer_that_looks_across_spaces_is_left_alone() -> None:
    from tokenizers import AddedToken

    tokenizer = load()
    tokenizer.add_tokens([AddedToken("reset password", normalized=False)])
    assert Tokens(tokenizer, 512).way in ("plain", "nanotoken")
    with pytest.raises(UsageError, match="words"):
        Tokens(tokenizer, 512, "words")


def test_a_faster_way_that_differs_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokens, "_by_word", lambda self, text: [1, 2, 3])
    monkeypatch.setattr(Tokens, "_nanotoken", lambda self, tokenizer: None)
    assert Tokens(load(), 512).way == "plain"


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(UsageError, match="no tokenizer"):
        Tokens(load(), 512, "fastest")


def test_words_that_another_thread_has_learned_meanwhile_are_not_new() -> None:
    shared = Tokens(load(), 512, "words")
    text = "how do I reset it"
    ids = shared.ids(text)
    assert shared._learn(text) == ids == PLAIN.ids(text)


def test_threads_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static, "WORDS_KEPT", 30)
    shared = Tokens(load(), 512, "words")
    texts = [f"word{i % 40} reset{i % 7} the{i % 11}" for i in range(400)]
    right = [PLAIN.ids(text) for text in texts]
    wrong: list[str] = []

    def work() -> None:
        wrong.extend(text for text, ids in zip(texts, right, strict=True) if shared.ids(text) != ids)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
