"""The cache as LiteLLM's, before the real package answering from its own mock."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # without it the import asks the network
litellm: Any = pytest.importorskip("litellm", reason="the extra test-litellm is not installed", exc_type=ImportError)

from recall_cli import open_cache  # noqa: E402  behind the skip
from recall_cli.adapters.litellm import RecallCache  # noqa: E402
from recall_cli.cache.cache import Cache  # noqa: E402
from recall_cli.errors import StoreError  # noqa: E402

PROMPT, NEAR = "How do I reset my password?", "How can I reset my password?"

# Its own modules and those it stands on warn at import and in use.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with closing(open_cache(tmp_path / "cache.db")) as opened:
        litellm.cache = RecallCache(opened)
        yield opened
        litellm.cache = None


def arguments(prompt: str, answer: str, **more: Any) -> dict[str, Any]:
    turns = [{"role": "user", "content": prompt}]
    asked = {"model": "openai/gpt-4o", "messages": turns, "temperature": 0, "caching": True, "mock_response": answer}
    return {**asked, **more}


def ask(prompt: str, answer: str, **more: Any) -> str:
    return str(litellm.completion(**arguments(prompt, answer, **more)).choices[0].message.content)


def test_equal_and_near_calls_are_answered(cache: Cache) -> None:
    assert ask(PROMPT, "One.") == "One."
    assert len(cache) == 1
    assert ask(PROMPT, "Two.") == ask(NEAR, "Three.") == "One."


def test_a_stream_is_replayed(cache: Cache) -> None:
    ask(PROMPT, "One.")
    parts = litellm.completion(**arguments(NEAR, "Two.", stream=True))
    assert "".join(part.choices[0].delta.content or "" for part in parts) == "One."


def test_asynchronous_calls(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    async def twice() -> list[str]:
        stored, add = asyncio.Event(), litellm.cache.async_add_cache

        async def adding(*given: Any, **more: Any) -> None:
            await add(*given, **more)
            stored.set()

        monkeypatch.setattr(litellm.cache, "async_add_cache", adding)
        first = await litellm.acompletion(**arguments(PROMPT, "One."))
        await asyncio.wait_for(stored.wait(), 20)
        second = await litellm.acompletion(**arguments(NEAR, "Two."))
        return [first.choices[0].message.content, second.choices[0].message.content]

    assert asyncio.run(twice()) == ["One.", "One."]


def test_what_walls(cache: Cache) -> None:
    ask(PROMPT, "First.")
    system = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": NEAR}]
    others: list[dict[str, Any]] = [
        {"messages": system},
        {"max_tokens": 7},
        {"model": "openai/gpt-4o-mini"},
        {"metadata": {"user_api_key": "another"}},
        {"extra_body": {"top_k": 3}},
    ]
    for number, more in enumerate(others):
        assert ask(NEAR, f"Other {number}.", **more) == f"Other {number}."


def test_sampled_calls_and_tools_pass(cache: Cache) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    for more in ({"temperature": 1}, {"tools": [tool]}):
        assert ask(PROMPT, "One.", **more) == "One."
        assert ask(PROMPT, "Two.", **more) == "Two."
    assert not len(cache)


def test_the_callers_own_controls(cache: Cache) -> None:
    ask(PROMPT, "One.")
    assert ask(PROMPT, "Two.", cache={"no-cache": True}) == "Two."
    assert ask(PROMPT, "Three.", cache={"s-maxage": 0.000001}) == "Three."


def test_a_fault_of_the_cache_fails_no_call(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(cache, "get", fail)
    monkeypatch.setattr(cache, "put", fail)
    assert ask(PROMPT, "One.") == "One."
