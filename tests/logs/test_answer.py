"""What a response says, and why it could not be stored."""

from __future__ import annotations

from typing import Any

import pytest

from recall_cli.cache import finish_reasons
from recall_cli.logs.answer import read


def openai(finish: str = "stop", **message: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": "Hi", **message}, "finish_reason": finish}]}


def anthropic(stop: str = "end_turn", *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "content": [{"type": "text", "text": "Hi"}, *blocks], "stop_reason": stop}


BARE = {"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}


@pytest.mark.parametrize("body", [openai(), anthropic(), BARE, openai(content=[{"type": "text", "text": "Hi"}])])
def test_a_good_answer(body: dict[str, Any]) -> None:
    found = read(body, status=200)
    assert (found.text, found.flaw) == ("Hi", "")


@pytest.mark.parametrize(
    ("body", "flaw"),
    [
        (openai("length"), "truncated"),
        (anthropic("max_tokens"), "truncated"),
        (anthropic("pause_turn"), "truncated"),
        (openai("content_filter"), "refusal"),
        (openai(refusal="I will not."), "refusal"),
        (anthropic("refusal"), "refusal"),
        (openai("tool_calls"), "tool_calls"),
        (openai(tool_calls=[{"id": "1"}]), "tool_calls"),
        (openai(function_call={"name": "f"}), "tool_calls"),
        (anthropic("end_turn", {"type": "tool_use", "id": "1"}), "tool_calls"),
        (anthropic("end_turn", {"type": "server_tool_use", "id": "1"}), "tool_calls"),
        (openai("MAX_TOKENS"), "truncated"),
        (openai("model_length"), "truncated"),
        (openai("SAFETY"), "refusal"),
        (openai("error"), "unknown_ending"),
        (openai("abort"), "unknown_ending"),
        (openai("insufficient_system_resource"), "unknown_ending"),
        (openai("malformed_function_call"), "unknown_ending"),
        (openai("Stop"), "unknown_ending"),
        (anthropic("whatever"), "unknown_ending"),
        ({"output": [{"type": "message", "content": [{"text": "Hi"}]}], "status": "failed"}, "unknown_ending"),
        (openai(content=None), "empty_answer"),
        (openai(content=" \n"), "empty_answer"),
        ({"type": "message", "content": []}, "empty_answer"),
        ({"error": {"message": "quota"}}, "error"),
        ({"choices": []}, "answer_unreadable"),
        ({"choices": None}, "answer_unreadable"),
        ({"hello": 1}, "answer_unreadable"),
        ('{"choices": [{"mess', "answer_unreadable"),
        (12, "answer_unreadable"),
        (None, "no_answer"),
        ("", "no_answer"),
        ([], "no_answer"),
    ],
)
def test_flaws(body: Any, flaw: str) -> None:
    assert read(body).flaw == flaw


@pytest.mark.parametrize("status", [302, 400, 429, 500])
def test_a_failed_status_is_an_error_whatever_the_body(status: int) -> None:
    assert read(openai(), status=status).flaw == "error"
    assert read(None, status=status).flaw == "error"


def test_the_worst_of_several_choices_decides() -> None:
    body = openai()
    body["choices"].append(openai("length")["choices"][0])
    assert read(body).flaw == "truncated"
    body["choices"][1]["finish_reason"] = "abort"
    assert read(body).flaw == "unknown_ending"


@pytest.mark.parametrize("reason", [*finish_reasons.GOOD, None, ""])
def test_a_good_ending_of_any_api_and_one_that_a_log_does_not_tell(reason: Any) -> None:
    assert read(openai(reason)).flaw == ""
    assert finish_reasons.is_good(reason) == bool(reason)


@pytest.mark.parametrize("reason", [None, "", "Stop", "STOP", "completed", ["stop"], {"stop": 1}, True, 0])
def test_on_the_cached_routes_an_ending_is_said_in_their_own_words(reason: Any) -> None:
    assert not finish_reasons.is_whole(openai(reason))
    assert not finish_reasons.is_whole(anthropic(reason))
    assert not finish_reasons.is_whole({"choices": [*openai()["choices"], *openai(reason)["choices"]]})
    assert finish_reasons.is_whole(openai())
    assert finish_reasons.is_whole(anthropic())
    assert not finish_reasons.is_whole({"choices": []})


def test_the_service_tier_of_either_provider() -> None:
    assert read({**openai(), "service_tier": "flex"}).tier == "flex"
    assert read({**anthropic(), "usage": {"service_tier": "batch"}}).tier == "batch"
    assert read(openai()).tier == ""
