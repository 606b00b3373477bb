"""Request bodies of the older and newer APIs, as the chat body that asks the same.

Whatever else a body holds stays in it: a parameter that got lost would let two different requests share a key.
"""

from __future__ import annotations

from typing import Any

from recall_cli.types import Json

TEXT_PARTS = ("input_text", "output_text")
"""How the Responses API calls what the chat API calls "text"."""


def chat_body(request: Json, *, uri: str = "", response: Any = None) -> Json | None:
    """Return a body with messages, or None when the request is no question to a language model.

    `input` alone does not make it one: an embedding request has it too. Neither does `prompt`: images are made of
    one. There the address or the answer decides.
    """
    messages = request.get("messages")
    if isinstance(messages, list) and messages:
        return request
    path = uri.partition("?")[0].rstrip("/")
    answer = response if isinstance(response, dict) else {}
    if "input" in request and (
        path.endswith("/responses")
        or isinstance(answer.get("output"), list)
        or request.keys() & {"instructions", "max_output_tokens", "previous_response_id", "reasoning"}
    ):
        return _of_responses(request)
    prompt = request.get("prompt")
    if isinstance(prompt, str) and (path.endswith("/completions") or _has_choices(answer)):
        rest = {k: v for k, v in request.items() if k != "prompt"}
        return {**rest, "messages": [{"role": "user", "content": prompt}]}
    return None


def _has_choices(answer: Json) -> bool:
    return isinstance(answer.get("choices"), list)


def _of_responses(request: Json) -> Json | None:
    given = request["input"]
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        return None
    messages = [item_message(item) for item in given if isinstance(item, dict)]
    if isinstance(request.get("instructions"), str):
        messages.insert(0, {"role": "system", "content": request["instructions"]})
    rest = {k: v for k, v in request.items() if k not in ("input", "instructions")}
    return {**rest, "messages": messages} if messages else None


def item_message(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item of the Responses API as a message of the chat API."""
    if item.get("type", "message") != "message":
        # A tool's call or its result, or reasoning: part of the history, never a question.
        role = "tool" if str(item.get("type", "")).endswith("_output") else "assistant"
        return {**item, "role": role}
    kept = {k: v for k, v in item.items() if k not in ("type", "id", "status")}
    content = kept.get("content")
    if isinstance(content, list):
        kept["content"] = [_part(part) for part in content]
    return kept


def _part(part: Any) -> Any:
    if isinstance(part, dict) and part.get("type") in TEXT_PARTS:
        return {"type": "text", "text": part.get("text")}
    return part


def from_messages(messages: Any, /, *, system: Any = None, **rest: Any) -> dict[str, Any]:
    """Return a chat body of messages in any of the spellings of traces, {} when there is no question in them.

    A string is one user turn. Parameters that are None are left out.
    """
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}] if messages else []
    if isinstance(messages, dict):
        messages = [messages]
    if not isinstance(messages, list):
        return {}
    turns = [
        m if isinstance(m, dict) else {"role": "user", "content": m} for m in messages if isinstance(m, (dict, str))
    ]
    if not turns:
        return {}
    if isinstance(system, (str, list)) and system:
        turns = [{"role": "system", "content": system}, *turns]
    return {**{k: v for k, v in rest.items() if v is not None}, "messages": turns}


def completion(
    content: Any, *, finish: Any = None, model: str = "", tools: Any = None, usage: Any = None
) -> dict[str, Any] | None:
    """Return an answer that was logged as bare text, as the chat body around it; None when there is none."""
    if content is None and not tools:
        return None
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if tools:
        message["tool_calls"] = tools
    body: dict[str, Any] = {"choices": [{"message": message, "finish_reason": finish or None}]}
    if model:
        body["model"] = model
    if usage is not None:
        body["usage"] = usage
    return body
