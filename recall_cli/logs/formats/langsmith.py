"""LangSmith's runs: exported whole, or as the batches its SDKs send, where a run is posted first and patched later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from recall_cli.logs.bodies import completion, from_messages
from recall_cli.logs.formats.base import NO_TEXT, Adapter, Found, Pair
from recall_cli.logs.json_path import decoded, dig, first, mapping, money, text
from recall_cli.logs.record import dialect
from recall_cli.types import Json

KEYS = ("run_type", "dotted_order", "inputs", "outputs", "trace_id", "session_name", "parent_run_id", "extra")
TRANSPORT = ("extra_headers", "extra_query", "extra_body", "timeout", "messages")
"""Arguments of the SDK's method that are no part of the body."""
ROLES = {"human": "user", "ai": "assistant", "chat": "user"}


class LangSmith(Adapter):
    """Runs of type "llm". `usage_metadata.input_tokens` include the cached ones."""

    name = "langsmith"

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, dict[str, Any]]] = {}

    def score(self, row: Json) -> int:
        """Count its own keys."""
        if "run_type" not in row and "dotted_order" not in row:
            return 0
        found = sum(name in row for name in KEYS)
        return found if found > 1 else 0

    def read(self, row: Json, source: str) -> Sequence[Found]:
        """Return the call of a run once it has both its start and its outputs."""
        id = _run_id(row)
        opened = self._open.pop(id, None)
        begun, known = opened if opened is not None else (source, {})
        run = {**known, **{k: v for k, v in row.items() if v is not None and v != {} and v != ""}}
        done = bool(run.get("outputs")) or run.get("error") is not None
        if id and not (done and "start_time" in run and "run_type" in run):
            self._open[id] = (begun, run)
            # A part of a run that already waits: still one call.
            return ()
        return (_pair(run, begun),)

    def end(self) -> Iterator[Found]:
        """Return the runs that were never patched."""
        for source, run in self._open.values():
            yield _pair(run, source)
        self._open.clear()


def _run_id(row: Json) -> str:
    """Return a run's id; the last step of its dotted order ends in it, and some patches have that alone."""
    return text(row.get("id")) or text(row.get("dotted_order")).rpartition(".")[2].partition("Z")[2]


def _pair(run: Json, source: str) -> Found:
    if run.get("run_type", "llm") != "llm":
        return "not_a_generation"
    inputs, outputs = mapping(run.get("inputs")), mapping(run.get("outputs"))
    extra = mapping(run.get("extra"))
    metadata = mapping(extra.get("metadata"))
    invocation = mapping(extra.get("invocation_params"))
    body = {k: v for k, v in {**invocation, **inputs}.items() if k not in TRANSPORT and v is not None}
    if "temperature" not in body and metadata.get("ls_temperature") is not None:
        body["temperature"] = metadata["ls_temperature"]
    asked = text(first(body, ("model", "model_name"))) or text(metadata.get("ls_model_name"))
    request = from_messages(_messages(inputs), **{**body, "model": asked})
    answered = _response(outputs)
    model = text(dig(answered, "model")) or asked
    return Pair(
        source,
        request,
        answered,
        {
            "start_time": run.get("start_time"),
            "end_time": run.get("end_time"),
            "user_id": first(metadata, ("user_id", "user")),
        },
        provider=dialect(model) if text(metadata.get("ls_provider")) != "openai" else "openai",
        model=model,
        usage=first(outputs, ("usage_metadata", "usage")) or _generation_usage(outputs),
        status=500 if run.get("error") else None,
        cost=money(run.get("total_cost")),
        session=text(first(metadata, ("session_id", "thread_id", "conversation_id"))),
        flaw="" if request else NO_TEXT,
    )


def _messages(inputs: Json) -> Any:
    messages = inputs.get("messages")
    if isinstance(messages, list) and len(messages) == 1 and isinstance(messages[0], list):
        # LangChain batches: one list of messages a prompt.
        messages = messages[0]
    if isinstance(messages, list):
        return [_message(message) for message in messages]
    prompts = inputs.get("prompts")
    if isinstance(prompts, list) and len(prompts) == 1:
        return prompts[0]
    return first(inputs, ("prompt", "input", "text"))


def _message(message: Any) -> Any:
    """Return a message out of LangChain's serialised object; others as they are."""
    held = dig(message, "kwargs") or dig(message, "data")
    if not isinstance(held, dict) or "content" not in held:
        return message
    kind = text(held.get("type")) or text(dig(message, "type"))
    return {"role": ROLES.get(kind, kind or "user"), "content": held["content"]}


def _response(outputs: Json) -> Any:
    if "choices" in outputs or outputs.get("type") == "message" or isinstance(outputs.get("output"), list):
        return {k: v for k, v in outputs.items() if k != "usage_metadata"}
    generation = dig(outputs, "generations", 0)
    generation = generation[0] if isinstance(generation, list) and generation else generation
    if isinstance(generation, dict):
        message = mapping(dig(generation, "message", "kwargs"))
        finish = dig(generation, "generation_info", "finish_reason")
        content = message.get("content", generation.get("text"))
        return completion(content, finish=finish, tools=message.get("tool_calls"))
    message = decoded(first(outputs, ("message", "output")))
    if isinstance(message, dict) and "content" in message:
        return completion(message["content"], tools=message.get("tool_calls"))
    content = outputs.get("content", message)
    return completion(content, tools=outputs.get("tool_calls")) if isinstance(content, (str, list)) else None


def _generation_usage(outputs: Json) -> Any:
    return dig(outputs, "llm_output", "token_usage") or dig(
        outputs, "generations", 0, 0, "message", "kwargs", "usage_metadata"
    )
