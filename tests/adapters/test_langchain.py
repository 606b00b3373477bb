"""The cache as LangChain's, before the real package's own fake models."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel, FakeListLLM, GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from recall_cli import open_cache
from recall_cli.adapters.langchain import RecallCache
from recall_cli.cache.cache import Cache
from recall_cli.errors import StoreError
from tests.proxy.fake import EMBEDDER

PROMPT, NEAR = "How do I reset my password?", "How can I reset my password?"


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with closing(open_cache(tmp_path / "cache.db", embedder=EMBEDDER)) as opened:
        yield opened


def model(cache: Cache, *answers: str, tenant: str = "", **options: Any) -> FakeListChatModel:
    return FakeListChatModel(responses=list(answers), cache=RecallCache(cache, tenant=tenant), **options)


def said(message: AIMessage, cache: Cache, **options: Any) -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter([message] * 4), cache=RecallCache(cache), **options)


def test_equal_and_near_prompts_are_answered(cache: Cache) -> None:
    chat = model(cache, "Use the link.", "Another answer.")
    first = chat.invoke(PROMPT)
    assert chat.invoke(PROMPT).content == chat.invoke(NEAR).content == first.content == "Use the link."
    assert isinstance(chat.invoke(NEAR), AIMessage)
    assert len(cache) == 1


def test_asynchronous_calls(cache: Cache) -> None:
    chat = model(cache, "Use the link.", "Another answer.")

    async def twice() -> list[Any]:
        return [(await chat.ainvoke(prompt)).content for prompt in (PROMPT, NEAR)]

    assert asyncio.run(twice()) == ["Use the link."] * 2


def test_what_walls(cache: Cache) -> None:
    chat = model(cache, *(f"Answer {n}." for n in range(9)))
    first = chat.invoke(PROMPT).content
    others = [
        chat.invoke([SystemMessage("Be brief."), HumanMessage(NEAR)]).content,
        chat.invoke([HumanMessage("I am Ada."), AIMessage("Hello."), HumanMessage(NEAR)]).content,
        chat.invoke(NEAR, stop=["."]).content,
        model(cache, "Of a tenant.", tenant="b").invoke(NEAR).content,
        model(cache, "Of another model.", sleep=0.0).invoke(NEAR).content,
    ]
    assert first not in others
    assert len(set(others)) == len(others)


def test_ids_and_counts_of_earlier_turns_are_no_wall(cache: Cache) -> None:
    chat = model(cache, "One.", "Two.")
    told = {"id": "run-1", "response_metadata": {"x": 1}}
    turns = [[HumanMessage("I am Ada."), AIMessage("Hello.", **more), HumanMessage(PROMPT)] for more in (told, {})]
    assert chat.invoke(turns[0]).content == chat.invoke(turns[1]).content


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "1"}]),
        AIMessage("Half an ans", response_metadata={"finish_reason": "length"}),
        AIMessage(""),
        *[AIMessage("Half", response_metadata={"finish_reason": reason}) for reason in ("error", "SAFETY", "", None)],
        AIMessage("Half", response_metadata={"stopReason": "max_tokens"}),
        AIMessage("Half", response_metadata={"done_reason": "length"}),
    ],
    ids=["tool call", "cut off", "empty", "error", "unsafe", "nothing said", "null", "Bedrock", "Ollama"],
)
def test_what_is_not_stored(message: AIMessage, cache: Cache) -> None:
    said(message, cache).invoke(PROMPT)
    assert not len(cache)


def test_what_an_answer_carries_comes_back(cache: Cache) -> None:
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    message = AIMessage("Use the link.", usage_metadata=usage, response_metadata={"finish_reason": "stop"})
    chat = said(message, cache)
    chat.invoke(PROMPT)
    hit = chat.invoke(PROMPT)
    assert hit.usage_metadata is not None
    assert hit.usage_metadata["total_tokens"] == 5
    assert hit.response_metadata["finish_reason"] == "stop"


def test_plain_language_models(cache: Cache) -> None:
    llm = FakeListLLM(responses=["Use the link.", "Another."], cache=RecallCache(cache))
    assert llm.invoke(PROMPT) == llm.invoke(NEAR) == "Use the link."


def test_a_prompt_that_looks_like_json_is_a_prompt(cache: Cache) -> None:
    llm = FakeListLLM(responses=["One.", "Two."], cache=RecallCache(cache))
    assert llm.invoke("[1, 2]") == llm.invoke("[1, 2]") == "One."
    assert llm.invoke("12") == "Two."


def test_an_answer_that_no_store_can_hold_is_let_go(cache: Cache) -> None:
    message = AIMessage("Use the link.", additional_kwargs={"made": object()})
    assert said(message, cache).invoke(PROMPT).content == "Use the link."
    assert not len(cache)


def test_a_fault_of_the_cache_fails_no_call(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(cache, "get", fail)
    monkeypatch.setattr(cache, "put", fail)
    assert model(cache, "Use the link.").invoke(PROMPT).content == "Use the link."


def test_clear(cache: Cache) -> None:
    chat = model(cache, "One.", "Two.")
    chat.invoke(PROMPT)
    RecallCache(cache).clear()
    assert chat.invoke(PROMPT).content == "Two."
