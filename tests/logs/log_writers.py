"""Logs with known answers: the same calls, written in every format that recall reads.

A writer takes the calls and a folder, and returns what a reader must find: the files, and which facts of a call the
format carries.
"""

from __future__ import annotations

import base64
import csv
import gzip
import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

T = 1_790_000_000.0


@dataclass(frozen=True)
class Known:
    """One call, as it was."""

    text: str
    answer: str
    at: int
    """Seconds after T."""
    took: float = 1.5
    model: str = "gpt-4o"
    system: str = "Be brief."
    input: int = 100
    output: int = 20
    cached: int = 0
    written: int = 0
    tenant: str = "red"
    session: str = "s-1"
    cost: str = "0.00125"
    temperature: float = 0.0

    @property
    def start(self) -> float:
        return T + self.at

    @property
    def end(self) -> float:
        return T + self.at + self.took


CALLS = (
    Known("How do I reset my password?", "Use the link.", 0),
    Known("How do I reset my password?", "Use the link.", 60, tenant="blue", session="s-2", input=101),
    Known('Say "yes", then\na new line; ünïcode 日本 \u2028 end', 'Yes:\n"é" 🙂, done', 120, output=33),
    Known("What is 2 + 2?", "4", 180, cached=30, cost="0.5", temperature=0.7),
    Known("Why, though?", "Because {it} is so [1].", 240, cached=90, written=10, tenant="blue", session="s-3"),
)
CLAUDE = "claude-sonnet-4-5"


@dataclass
class Written:
    """A log on disk, and what it can tell."""

    paths: list[Path]
    facts: set[str]
    flaw: str = ""
    others: int = 0
    """Rows that are no calls, counted under a reason."""
    model: Callable[[Known], str] = field(default=lambda call: call.model)
    tier: str = ""


ALL = {"text", "system", "answer", "usage", "start", "end", "tenant", "session", "cost", "temperature"}


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def naive(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def lines(path: Path, rows: Sequence[Any]) -> list[Path]:
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", encoding="utf-8")
    return [path]


def table(path: Path, rows: Sequence[dict[str, Any]]) -> list[Path]:
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, list(rows[0]))
        out.writeheader()
        out.writerows(rows)
    return [path]


def messages(call: Known) -> list[dict[str, Any]]:
    return [{"role": "system", "content": call.system}, {"role": "user", "content": call.text}]


def chat(call: Known) -> dict[str, Any]:
    return {"model": call.model, "temperature": call.temperature, "messages": messages(call)}


def chat_usage(call: Known) -> dict[str, Any]:
    details = {"cached_tokens": call.cached, "cache_write_tokens": call.written}
    return {"prompt_tokens": call.input, "completion_tokens": call.output, "total_tokens": call.input + call.output,
            "prompt_tokens_details": details}  # fmt: skip


def chat_answer(call: Known) -> dict[str, Any]:
    message = {"role": "assistant", "content": call.answer}
    return {"id": "x", "object": "chat.completion", "created": int(call.start), "model": call.model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": chat_usage(call)}  # fmt: skip


def claude(call: Known) -> dict[str, Any]:
    return {"model": CLAUDE, "max_tokens": 9, "temperature": call.temperature, "system": call.system,
            "messages": [{"role": "user", "content": call.text}]}  # fmt: skip


def claude_usage(call: Known) -> dict[str, Any]:
    return {"input_tokens": call.input - call.cached - call.written, "output_tokens": call.output,
            "cache_read_input_tokens": call.cached, "cache_creation_input_tokens": call.written}  # fmt: skip


def claude_answer(call: Known) -> dict[str, Any]:
    return {"id": "m", "type": "message", "role": "assistant", "model": CLAUDE, "stop_reason": "end_turn",
            "content": [{"type": "text", "text": call.answer}], "usage": claude_usage(call)}  # fmt: skip


def is_claude(call: Known) -> str:
    return CLAUDE


def pairs(calls: Sequence[Known], folder: Path) -> Written:
    rows = [
        {"timestamp": iso(c.start), "end_time": c.end, "request": chat(c), "response": chat_answer(c),
         "tenant": c.tenant, "session_id": c.session, "cost_usd": float(c.cost)}
        for c in calls
    ]  # fmt: skip
    return Written(lines(folder / "pairs.jsonl", rows), ALL)


def anthropic_pairs(calls: Sequence[Known], folder: Path) -> Written:
    rows = [
        {"ts": c.start, "latency_ms": c.took * 1e3, "request_body": json.dumps(claude(c)), "tenant": c.tenant,
         "response_body": json.dumps(claude_answer(c))}
        for c in calls
    ]  # fmt: skip
    return Written(lines(folder / "claude.jsonl", rows), ALL - {"session", "cost"}, model=is_claude)


def responses_pairs(calls: Sequence[Known], folder: Path) -> Written:
    """OpenAI's Responses API."""
    rows = [
        {
            "ts": c.start,
            "url": "https://api.openai.com/v1/responses",
            "request": {"model": c.model, "instructions": c.system, "temperature": c.temperature,
                        "input": [{"role": "user", "content": [{"type": "input_text", "text": c.text}]}]},
            "response": {
                "object": "response", "status": "completed", "model": c.model,
                "output": [{"type": "reasoning", "summary": []},
                           {"type": "message", "role": "assistant",
                            "content": [{"type": "output_text", "text": c.answer}]}],
                "usage": {"input_tokens": c.input, "output_tokens": c.output,
                          "input_tokens_details": {"cached_tokens": c.cached, "cache_write_tokens": c.written}},
            },
        }
        for c in calls
    ]  # fmt: skip
    return Written(
        lines(folder / "responses.jsonl", rows), {"text", "system", "answer", "usage", "start", "temperature"}
    )


def openai_batch(calls: Sequence[Known], folder: Path) -> Written:
    asked = [
        {"custom_id": f"c-{i}", "method": "POST", "url": "/v1/chat/completions", "body": chat(c)}
        for i, c in enumerate(calls)
    ]
    answered = [
        {"id": f"b-{i}", "custom_id": f"c-{i}", "response": {"status_code": 200, "body": chat_answer(c)}, "error": None}
        for i, c in enumerate(calls)
    ]
    # Answers come in any order, and here before what they answer.
    paths = [*lines(folder / "a-output.jsonl", answered[::-1]), *lines(folder / "b-input.jsonl", asked)]
    return Written(paths, {"text", "system", "answer", "usage", "start", "temperature"}, tier="batch")


def anthropic_batch(calls: Sequence[Known], folder: Path) -> Written:
    asked = [{"custom_id": f"c-{i}", "params": claude(c)} for i, c in enumerate(calls)]
    answered = [
        {"custom_id": f"c-{i}", "result": {"type": "succeeded", "message": claude_answer(c)}}
        for i, c in enumerate(calls)
    ]
    sent = folder / "sent.json"
    sent.write_text(json.dumps({"requests": asked}, indent=1))
    paths = [sent, *lines(folder / "results.jsonl", answered[::-1])]
    return Written(paths, {"text", "system", "answer", "usage", "temperature"}, tier="batch", model=is_claude)


def litellm(calls: Sequence[Known], folder: Path) -> Written:
    rows = [
        {"id": f"l-{c.at}", "call_type": "acompletion", "status": "success", "custom_llm_provider": "openai",
         "startTime": naive(c.start), "endTime": naive(c.end), "model": c.model, "messages": messages(c),
         "response": chat_answer(c), "model_parameters": {"temperature": c.temperature}, "hidden_params": {},
         "metadata": {"user_api_key_team_id": c.tenant}, "response_cost": float(c.cost), "session_id": c.session,
         "cache_hit": None, "prompt_tokens": c.input, "completion_tokens": c.output}
        for c in calls
    ]  # fmt: skip
    other = {**rows[0], "call_type": "aembedding"}
    return Written(lines(folder / "litellm.jsonl", [*rows, other]), ALL, others=1)


def _spend_rows(calls: Sequence[Known]) -> list[dict[str, Any]]:
    return [
        {"request_id": f"l-{c.at}", "call_type": "acompletion", "cache_hit": "None", "startTime": naive(c.start),
         "endTime": naive(c.end), "model": c.model, "custom_llm_provider": "openai", "team_id": c.tenant, "user": "",
         "session_id": c.session, "spend": float(c.cost), "prompt_tokens": c.input, "completion_tokens": c.output,
         "metadata": json.dumps({"usage_object": chat_usage(c), "status": None}), "status": "success",
         "messages": "{}", "response": json.dumps(chat_answer(c)), "proxy_server_request": json.dumps(chat(c))}
        for c in calls
    ]  # fmt: skip


def litellm_spend(calls: Sequence[Known], folder: Path) -> Written:
    return Written(lines(folder / "spend.jsonl", _spend_rows(calls)), ALL)


def litellm_spend_csv(calls: Sequence[Known], folder: Path) -> Written:
    """A dump without prompts, as it is by default."""
    rows = [{**row, "proxy_server_request": "{}", "response": "{}"} for row in _spend_rows(calls)]
    facts = {"usage", "start", "end", "tenant", "session", "cost"}
    return Written(table(folder / "spend.csv", rows), facts, flaw="no_text")


def langfuse(calls: Sequence[Known], folder: Path) -> Written:
    """Exported observations: objects as strings, cached tokens beside the input."""
    rows = [
        {"id": f"o-{c.at}", "trace_id": "t", "type": "GENERATION", "start_time": naive(c.start),
         "end_time": naive(c.end), "provided_model_name": c.model, "input": json.dumps(messages(c)),
         "output": json.dumps({"role": "assistant", "content": c.answer}),
         "model_parameters": json.dumps({"temperature": c.temperature}),
         "usage_details": json.dumps({"input": c.input - c.cached - c.written, "output": c.output,
                                      "input_cached_tokens": c.cached, "cache_creation_input_tokens": c.written}),
         "total_cost": c.cost, "user_id": c.tenant, "session_id": c.session, "level": "DEFAULT"}
        for c in calls
    ]  # fmt: skip
    return Written(lines(folder / "langfuse.jsonl", [{**rows[0], "type": "SPAN"}, *rows]), ALL, others=1)


def langfuse_events(calls: Sequence[Known], folder: Path) -> Written:
    """What an SDK sends: a trace, a generation begun, the same generation ended. Cached tokens inside the input."""
    events: list[dict[str, Any]] = []
    for c in calls:
        trace = {"id": f"t-{c.at}", "userId": c.tenant, "sessionId": c.session}
        begun = {"id": f"g-{c.at}", "traceId": f"t-{c.at}", "startTime": iso(c.start), "model": c.model,
                 "modelParameters": {"temperature": c.temperature}, "input": {"messages": messages(c)}}  # fmt: skip
        ended = {"id": f"g-{c.at}", "endTime": iso(c.end), "output": c.answer,
                 "usageDetails": {"input": c.input, "output": c.output, "cache_read_input_tokens": c.cached,
                                  "cache_creation_input_tokens": c.written, "total": c.input + c.output},
                 "costDetails": {"total": c.cost}}  # fmt: skip
        events += [
            {"id": "1", "type": "trace-create", "body": trace},
            {"id": "2", "type": "generation-create", "body": begun},
            {"id": "3", "type": "generation-update", "body": ended},
        ]
    path = folder / "events.json"
    path.write_text(json.dumps({"batch": events, "metadata": {}}, indent=1))
    return Written([path], ALL, others=len(calls))


def helicone(calls: Sequence[Known], folder: Path) -> Written:
    rows = [
        {"response_id": "r", "request_created_at": iso(c.start), "response_created_at": iso(c.end), "model": c.model,
         "response_status": 200, "request_body": chat(c), "response_body": chat_answer(c), "cost": c.cost,
         "request_user_id": c.tenant, "request_properties": {"Helicone-Session-Id": c.session}}
        for c in calls
    ]  # fmt: skip
    return Written(lines(folder / "helicone.jsonl", rows), ALL)


def helicone_csv(calls: Sequence[Known], folder: Path) -> Written:
    """The CSV has no column for the answer, and so none for cached tokens."""
    rows = [
        {"response_id": "r", "response_created_at": iso(c.end), "response_status": "200",
         "request_created_at": iso(c.start), "request_body": json.dumps(chat(c)), "request_properties": "{}",
         "request_user_id": c.tenant, "model": c.model, "prompt_tokens": c.input, "completion_tokens": c.output,
         "latency": "1500", "cost": c.cost}
        for c in calls
    ]  # fmt: skip
    facts = {"text", "system", "tokens", "start", "end", "tenant", "cost", "temperature"}
    return Written(table(folder / "helicone.csv", rows), facts, flaw="no_answer")


def langsmith(calls: Sequence[Known], folder: Path) -> Written:
    """What an SDK sends: runs posted, then patched; the later patches have no id but in their order."""
    post = [
        {"id": f"00-{c.at}", "run_type": "llm", "start_time": iso(c.start), "dotted_order": f"2026Z00-{c.at}",
         "inputs": {**chat(c), "extra_headers": None}, "outputs": {}, "trace_id": "t",
         "extra": {"metadata": {"ls_provider": "openai", "ls_model_name": c.model, "user_id": c.tenant,
                                "session_id": c.session}}}
        for c in calls
    ]  # fmt: skip
    patch = [
        {"dotted_order": f"2026Z00-{c.at}", "trace_id": "t", "end_time": c.end * 1e3, "total_cost": c.cost,
         "outputs": {**{k: v for k, v in chat_answer(c).items() if k != "usage"},
                     "usage_metadata": {"input_tokens": c.input, "output_tokens": c.output,
                                        "input_token_details": {"cache_read": c.cached, "cache_creation": c.written}}}}
        for c in calls
    ]  # fmt: skip
    chain = {**post[0], "id": "chain", "run_type": "chain", "outputs": {"x": 1}}
    path = folder / "runs.json"
    path.write_text(json.dumps({"post": [*post, chain], "patch": patch}))
    return Written([path], ALL, others=1)


def _pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    """Attributes as OTLP's JSON has them."""

    def value(v: Any) -> dict[str, Any]:
        if isinstance(v, list):
            return {"arrayValue": {"values": [value(x) for x in v]}}
        return (
            {"intValue": str(v)}
            if isinstance(v, int)
            else {"doubleValue" if isinstance(v, float) else "stringValue": v}
        )

    return [{"key": k, "value": value(v)} for k, v in attributes.items()]


def _otlp(path: Path, spans: Sequence[dict[str, Any]]) -> list[Path]:
    written = [{**span, "attributes": _pairs(span["attributes"])} for span in spans]
    service = _pairs({"service.name": "shop"})
    # One export a line, as a collector's file exporter writes them.
    return lines(
        path,
        [{"resourceSpans": [{"resource": {"attributes": service}, "scopeSpans": [{"spans": [s]}]}]} for s in written],
    )


def _span(call: Known, name: str, attributes: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "startTimeUnixNano": str(int(call.start * 1000) * 1_000_000),
            "endTimeUnixNano": str(int(call.end * 1000) * 1_000_000), "attributes": attributes}  # fmt: skip


def otel(calls: Sequence[Known], folder: Path) -> Written:
    spans = []
    for c in calls:
        usage = {"gen_ai.usage.input_tokens": c.input, "gen_ai.usage.output_tokens": c.output}
        inner = {
            "gen_ai.operation.name": "chat", "gen_ai.request.model": c.model, "gen_ai.response.model": c.model, **usage,
            "gen_ai.request.temperature": c.temperature, "gen_ai.usage.cache_read.input_tokens": c.cached,
            "gen_ai.usage.cache_creation.input_tokens": c.written, "gen_ai.conversation.id": c.session,
            "user.id": c.tenant, "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": c.system}]),
            "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": c.text}]}]),
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "finish_reason": "stop",
                                                   "parts": [{"type": "text", "content": c.answer}]}]),
        }  # fmt: skip
        outer = {"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": c.model, **usage}
        spans += [_span(c, "invoke_agent x", outer), _span(c, f"chat {c.model}", inner)]
    return Written(_otlp(folder / "otlp.jsonl", spans), ALL - {"cost"}, others=len(calls))


def otel_old(calls: Sequence[Known], folder: Path) -> Written:
    """The names of the years before the conventions: indexed prompts and completions, cached tokens left out."""
    spans = [
        _span(c, "openai.chat", {
            "llm.request.type": "chat", "gen_ai.request.model": c.model, "gen_ai.response.model": c.model,
            "gen_ai.request.temperature": c.temperature, "gen_ai.usage.prompt_tokens": c.input,
            "gen_ai.usage.completion_tokens": c.output, "gen_ai.usage.cache_read_input_tokens": c.cached,
            "gen_ai.usage.cache_creation_input_tokens": c.written,
            "gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": c.system,
            "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": c.text,
            "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": c.answer,
            "gen_ai.completion.0.finish_reason": "stop",
        })
        for c in calls
    ]  # fmt: skip
    return Written(_otlp(folder / "old.jsonl", spans), ALL - {"cost", "tenant", "session"})


def _openinference(c: Known) -> dict[str, Any]:
    return {
        "openinference.span.kind": "LLM", "llm.model_name": c.model, "user.id": c.tenant, "session.id": c.session,
        "llm.invocation_parameters": json.dumps({"temperature": c.temperature}),
        "llm.input_messages.0.message.role": "system", "llm.input_messages.0.message.content": c.system,
        "llm.input_messages.1.message.role": "user", "llm.input_messages.1.message.content": c.text,
        "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": c.answer,
        "llm.token_count.prompt": c.input, "llm.token_count.completion": c.output,
        "llm.token_count.prompt_details.cache_read": c.cached, "llm.token_count.prompt_details.cache_write": c.written,
        "llm.cost.total": float(c.cost),
    }  # fmt: skip


def otel_events(calls: Sequence[Known], folder: Path) -> Written:
    """Text kept off the span: an event in today's names for some calls, an event a message for the others."""
    spans = []
    for i, c in enumerate(calls):
        span = _span(c, "chat", {
            "gen_ai.operation.name": "chat", "gen_ai.request.model": c.model, "gen_ai.usage.input_tokens": c.input,
            "gen_ai.usage.output_tokens": c.output, "gen_ai.usage.cache_read_tokens": c.cached,
            "gen_ai.usage.cache_write_tokens": c.written, "gen_ai.request.temperature": c.temperature,
        })  # fmt: skip
        asked = [{"role": m["role"], "parts": [{"type": "text", "content": m["content"]}]} for m in messages(c)]
        said = [{"role": "assistant", "parts": [{"type": "text", "content": c.answer}], "finish_reason": "stop"}]
        texts = {"gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": json.dumps(said)}
        if i % 2:
            span["events"] = [{"name": "gen_ai.client.inference.operation.details", "attributes": _pairs(texts)}]
        else:
            span["events"] = [
                {"name": f"gen_ai.{m['role']}.message", "attributes": _pairs({"content": m["content"]})}
                for m in messages(c)
            ]
            message = {"message": json.dumps({"content": c.answer}), "finish_reason": "stop"}
            span["events"].append({"name": "gen_ai.choice", "attributes": _pairs(message)})
        spans.append(span)
    return Written(_otlp(folder / "events.jsonl", spans), ALL - {"cost", "tenant", "session"})


def openinference(calls: Sequence[Known], folder: Path) -> Written:
    spans = [_span(c, "ChatCompletion", _openinference(c)) for c in calls]
    spans.append(_span(calls[0], "chain", {"openinference.span.kind": "CHAIN", "llm.model_name": "x"}))
    return Written(_otlp(folder / "openinference.jsonl", spans), ALL, others=1)


def openinference_table(calls: Sequence[Known], folder: Path) -> Written:
    """Phoenix's data frame of spans, as Parquet: a column an attribute, messages as lists of objects."""
    import polars as pl

    rows = []
    for c in calls:
        flat = {f"attributes.{k}": v for k, v in _openinference(c).items() if "_messages." not in k}
        asked = [{"message.role": m["role"], "message.content": m["content"]} for m in messages(c)]
        said = [{"message.role": "assistant", "message.content": c.answer}]
        rows.append({"name": "x", "span_kind": "LLM", "start_time": datetime.fromtimestamp(c.start, UTC),
                     "end_time": datetime.fromtimestamp(c.end, UTC), "status_code": "OK", **flat,
                     "attributes.llm.input_messages": asked, "attributes.llm.output_messages": said})  # fmt: skip
    path = folder / "spans.parquet"
    pl.DataFrame(rows).write_parquet(path)
    return Written([path], ALL)


def vercel(calls: Sequence[Known], folder: Path) -> Written:
    spans = []
    for c in calls:
        shared = {"ai.model.id": c.model, "ai.usage.promptTokens": c.input, "ai.usage.completionTokens": c.output}
        inner = {
            **shared, "ai.operationId": "ai.generateText.doGenerate", "ai.prompt.messages": json.dumps(messages(c)),
            "ai.response.text": c.answer, "ai.response.finishReason": "stop", "gen_ai.response.model": c.model,
            "gen_ai.request.temperature": c.temperature, "gen_ai.usage.input_tokens": c.input,
            "gen_ai.usage.output_tokens": c.output, "gen_ai.usage.cache_read.input_tokens": c.cached,
            "gen_ai.usage.cache_creation.input_tokens": c.written, "ai.telemetry.metadata.userId": c.tenant,
            "ai.telemetry.metadata.sessionId": c.session,
        }  # fmt: skip
        outer = {**shared, "ai.operationId": "ai.generateText", "ai.prompt": json.dumps({"messages": messages(c)})}
        spans += [_span(c, "ai.generateText", outer), _span(c, "ai.generateText.doGenerate", inner)]
    return Written(_otlp(folder / "vercel.jsonl", spans), ALL - {"cost"}, others=len(calls))


def claude_code(calls: Sequence[Known], folder: Path) -> Written:
    """A transcript a session: the user's line, then three lines of one call, of which the last has its counts."""
    paths = []
    for i, c in enumerate(calls):
        shared = {"sessionId": c.session, "cwd": "/x", "version": "2", "isSidechain": False}
        user = {**shared, "type": "user", "uuid": f"u{i}", "parentUuid": None, "timestamp": iso(c.start),
                "message": {"role": "user", "content": c.text}}  # fmt: skip
        rows: list[dict[str, Any]] = [user]
        parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": c.answer[:3]},
                 {"type": "text", "text": c.answer[3:]}]  # fmt: skip
        parent = f"u{i}"
        for at, part in enumerate(p for p in parts if p.get("text") != ""):
            message = {**claude_answer(c), "id": f"msg-{i}", "content": [part]}
            message["usage"] = {**claude_usage(c), "output_tokens": 1}
            rows.append({**shared, "type": "assistant", "uuid": f"a{i}{at}", "parentUuid": parent,
                         "timestamp": iso(c.end), "requestId": f"r{i}", "message": message})  # fmt: skip
            parent = f"a{i}{at}"
        rows[-1]["message"]["usage"] = claude_usage(c)
        paths += lines(folder / f"session-{i}.jsonl", rows)
    facts = {"text", "answer", "usage", "start", "end", "session"}
    return Written(paths, facts, flaw="hidden_prompt", model=is_claude)


def codex(calls: Sequence[Known], folder: Path) -> Written:
    paths = []
    total = 0
    for i, c in enumerate(calls):
        total += c.input
        usage = {"input_tokens": c.input, "cached_input_tokens": c.cached, "output_tokens": c.output}
        count = {"type": "event_msg", "timestamp": iso(c.end), "payload": {"type": "token_count", "info": {
            "last_token_usage": usage, "total_token_usage": {"input_tokens": total}}}}  # fmt: skip
        rows = [
            {"timestamp": iso(c.start), "type": "session_meta", "payload": {"id": c.session, "cwd": "/x"}},
            {"timestamp": iso(c.start), "type": "turn_context", "payload": {"model": c.model}},
            {"timestamp": iso(c.start), "type": "response_item", "payload": {
                "type": "message", "role": "user", "content": [{"type": "input_text", "text": c.text}]}},
            {"timestamp": iso(c.end), "type": "response_item", "payload": {
                "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": c.answer}]}},
            count,
            # Sent again with the news of the rate limits: no second call.
            count,
        ]  # fmt: skip
        paths += lines(folder / f"rollout-{i}.jsonl", rows)
    facts = {"text", "answer", "usage_read", "start", "end", "session"}
    return Written(paths, facts, flaw="hidden_prompt")


def har(calls: Sequence[Known], folder: Path) -> Written:
    """The answers as base64 of gzip of an event stream, as proxies write them."""
    entries = []
    for c in calls:
        head = {"id": "x", "created": int(c.start), "model": c.model}
        events = [
            {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": c.answer[:2]}}]},
            {**head, "choices": [{"index": 0, "delta": {"content": c.answer[2:]}, "finish_reason": "stop"}]},
            {**head, "choices": [], "usage": chat_usage(c)},
        ]
        stream = "".join(f"data: {json.dumps(e, ensure_ascii=False)}\n\n" for e in events) + "data: [DONE]\n\n"
        packed = base64.b64encode(gzip.compress(stream.encode())).decode()
        entries.append({
            "startedDateTime": iso(c.start), "time": c.took * 1e3,
            "request": {"method": "POST", "url": "https://api.openai.com/v1/chat/completions",
                        "postData": {"mimeType": "application/json", "text": json.dumps(chat(c))}},
            "response": {"status": 200, "content": {"mimeType": "text/event-stream", "encoding": "base64",
                                                    "text": packed}},
        })  # fmt: skip
    page = {"startedDateTime": iso(T), "request": {"method": "GET", "url": "https://x.example/"}, "response": {}}
    path = folder / "traffic.har"
    path.write_text(json.dumps({"log": {"version": "1.2", "entries": [page, *entries]}}, indent=2))
    return Written([path], {"text", "system", "answer", "usage", "start", "end", "temperature"}, others=1)


def llm_db(calls: Sequence[Known], folder: Path) -> Written:
    path = folder / "logs.db"
    db = sqlite3.connect(path)
    db.executescript(
        """CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);
        CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, prompt_json TEXT,
            options_json TEXT, response TEXT, response_json TEXT, conversation_id TEXT, duration_ms INTEGER,
            datetime_utc TEXT, input_tokens INTEGER, output_tokens INTEGER, token_details TEXT, schema_id TEXT,
            resolved_model TEXT);"""
    )
    for i, c in enumerate(calls):
        details = {"prompt_tokens_details": {"cached_tokens": c.cached, "cache_write_tokens": c.written}}
        db.execute(
            f"INSERT INTO responses VALUES ({', '.join('?' * 16)})",
            (f"{i:03}", "alias", c.text, c.system, None, json.dumps({"temperature": c.temperature}), c.answer, None,
             c.session, int(c.took * 1000), iso(c.start).removesuffix("Z"), c.input, c.output, json.dumps(details),
             None, c.model),
        )  # fmt: skip
    db.commit()
    db.close()
    return Written([path], ALL - {"tenant", "cost"})


def llm_turns_db(calls: Sequence[Known], folder: Path) -> Written:
    """The tables of newer versions: messages and their parts, the system prompt's text as a fragment's."""
    path = folder / "turns.db"
    db = sqlite3.connect(path)
    db.executescript(
        """CREATE TABLE conversations (id TEXT); CREATE TABLE responses (id TEXT, datetime_utc TEXT);
        CREATE TABLE messages (hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT, provider_metadata TEXT);
        CREATE TABLE parts (id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT, tool_name TEXT,
            text TEXT, payload TEXT);
        CREATE TABLE fragments (id INTEGER PRIMARY KEY, content TEXT);
        CREATE TABLE tools (id INTEGER, name TEXT); CREATE TABLE turn_tools (turn_id TEXT, tool_id INTEGER);
        CREATE TABLE turns (id TEXT PRIMARY KEY, thread_id TEXT, parent_message_hash TEXT, tip_message_hash TEXT,
            model TEXT, resolved_model TEXT, options_json TEXT, schema_id TEXT, input_tokens INTEGER,
            output_tokens INTEGER, token_details TEXT, duration_ms INTEGER, datetime_utc TEXT, response_json TEXT);
        INSERT INTO fragments VALUES (1, 'Be ');"""
    )
    for system in dict.fromkeys(c.system for c in calls):
        text = {"text_ref": [{"fragment": 1}, {"literal": system.removeprefix("Be ")}]}
        db.execute("INSERT INTO messages VALUES (?, NULL, 'system', NULL)", (system,))
        db.execute("INSERT INTO parts VALUES (NULL, ?, 0, 'text', NULL, NULL, ?)", (system, json.dumps(text)))
    for i, c in enumerate(calls):
        details = {"prompt_tokens_details": {"cached_tokens": c.cached, "cache_write_tokens": c.written}}
        for hash, parent, role, said in (
            (f"q{i}", c.system, "user", c.text),
            (f"a{i}", f"q{i}", "assistant", c.answer),
        ):
            db.execute("INSERT INTO messages VALUES (?, ?, ?, NULL)", (hash, parent, role))
            db.execute("INSERT INTO parts VALUES (NULL, ?, 0, 'text', NULL, ?, NULL)", (hash, said))
        db.execute(
            f"INSERT INTO turns VALUES ({', '.join('?' * 14)})",
            (f"{i:03}", c.session, f"q{i}", f"a{i}", "alias", c.model, json.dumps({"temperature": c.temperature}), None,
             c.input, c.output, json.dumps(details), int(c.took * 1000), iso(c.start), None),
        )  # fmt: skip
    db.commit()
    db.close()
    return Written([path], ALL - {"tenant", "cost"})


def openrouter(calls: Sequence[Known], folder: Path) -> Written:
    rows = [
        {"generation_id": "g", "created_at": naive(c.start), "cost_total": c.cost, "tokens_prompt": c.input,
         "tokens_completion": c.output, "tokens_reasoning": 0, "tokens_cached": c.cached,
         "model_permaslug": f"openai/{c.model}", "cancelled": "false", "user": c.tenant, "finish_reason_raw": "stop",
         "generation_time_ms": int(c.took * 1000)}
        for c in calls
    ]  # fmt: skip
    facts = {"usage_read", "start", "end", "tenant", "cost"}
    return Written(
        table(folder / "activity.csv", rows), facts, flaw="no_text", model=lambda c: f"openrouter/openai/{c.model}"
    )


def vllm(calls: Sequence[Known], folder: Path) -> Written:
    out = []
    for i, c in enumerate(calls):
        out.append(
            f"INFO 10-01 18:43:2{i} [logger.py:36] Received request cmpl-{i}-0: prompt: {c.text!r}, params: "
            f"SamplingParams(n=1, temperature={c.temperature}, top_p=1.0), lora_request: None."
        )
        out.append(
            f"INFO 10-01 18:43:3{i} [logger.py:79] Generated response cmpl-{i}-0: output: {c.answer!r}, "
            "output_token_ids: None, finish_reason: stop"
        )
    path = folder / "vllm.log"
    path.write_text("\n".join(["INFO 10-01 18:43:27 Started server process [1]", *out]), encoding="utf-8")
    return Written([path], {"text", "answer", "temperature"}, others=1, model=lambda c: "")


def recall_store(calls: Sequence[Known], folder: Path) -> Written:
    from recall_cli.cache.embed.registry import make_embedder
    from recall_cli.cache.request import parse_body
    from recall_cli.cache.stores.sqlite import SqliteStore
    from recall_cli.types import Completion, Request, Usage

    path = folder / "answers.db"
    store = SqliteStore(path, embedder=make_embedder("hash-v1"))
    for c in calls:
        request = parse_body("openai", chat(c), tenant=c.tenant)
        assert isinstance(request, Request)
        usage = Usage(c.input, c.output, c.cached, c.written)
        body = json.dumps(chat_answer(c)).encode()
        store.append(request, Completion(body, c.model, usage, c.start), None, created=c.start, expires=None)
    store.close()
    return Written([path], {"text", "answer", "usage", "start", "walls"})


def recall_serve(calls: Sequence[Known], folder: Path) -> Written:
    rows = [
        {"time": c.start, "id": f"req_{i}", "provider": "openai", "path": "/v1/chat/completions", "model": c.model,
         "stream": False, "namespace": "openai/gpt-4o/0", "tenant": c.tenant, "text": c.text, "outcome": "MISS",
         "reason": "", "similarity": 0.4, "cutoff": 0.8, "entry": 7, "status": 200, "ms": c.took * 1e3,
         "input_tokens": c.input, "output_tokens": c.output}
        for i, c in enumerate(calls)
    ]  # fmt: skip
    facts = {"text", "tokens", "start", "end", "tenant"}
    return Written(lines(folder / "access.jsonl", rows), facts, flaw="hidden_prompt")


def mooncake(calls: Sequence[Known], folder: Path) -> Written:
    rows = [
        {"timestamp": c.at * 1000, "input_length": c.input, "output_length": c.output, "hash_ids": [0, len(c.text)]}
        for c in calls
    ]
    return Written(lines(folder / "trace.jsonl", rows), {"tokens", "at"}, flaw="no_text", model=lambda c: "")


def azure(calls: Sequence[Known], folder: Path) -> Written:
    rows = [
        {"TIMESTAMP": naive(c.start) + "0", "ContextTokens": c.input, "GeneratedTokens": c.output} for c in calls
    ]  # fmt: skip
    return Written(table(folder / "azure.csv", rows), {"tokens", "start"}, flaw="no_text", model=lambda c: "")


def _plain_rows(calls: Sequence[Known]) -> list[dict[str, Any]]:
    return [
        {"timestamp": iso(c.start), "question": c.text, "answer": c.answer, "model": c.model, "system_prompt": c.system,
         "latency_ms": c.took * 1e3, "input_tokens": c.input, "output_tokens": c.output, "cached_tokens": c.cached,
         "cache_write_tokens": c.written, "cost_usd": c.cost, "tenant": c.tenant, "session_id": c.session,
         "temperature": c.temperature}
        for c in calls
    ]  # fmt: skip


def plain_csv(calls: Sequence[Known], folder: Path) -> Written:
    return Written(table(folder / "plain.csv", _plain_rows(calls)), ALL)


def plain_jsonl(calls: Sequence[Known], folder: Path) -> Written:
    return Written(lines(folder / "plain.jsonl", _plain_rows(calls)), ALL)


def plain_array(calls: Sequence[Known], folder: Path) -> Written:
    path = folder / "plain.json"
    path.write_text(json.dumps(_plain_rows(calls), indent=2))
    return Written([path], ALL)


def plain_parquet(calls: Sequence[Known], folder: Path) -> Written:
    import polars as pl

    path = folder / "plain.parquet"
    pl.DataFrame(_plain_rows(calls)).write_parquet(path)
    return Written([path], ALL)


WRITERS: dict[str, tuple[Callable[[Sequence[Known], Path], Written], ...]] = {
    "pairs": (pairs, anthropic_pairs, responses_pairs),
    "openai-batch": (openai_batch,),
    "anthropic-batch": (anthropic_batch,),
    "litellm": (litellm,),
    "litellm-spend": (litellm_spend, litellm_spend_csv),
    "langfuse": (langfuse, langfuse_events),
    "helicone": (helicone, helicone_csv),
    "langsmith": (langsmith,),
    "otel": (otel, otel_old, otel_events),
    "openinference": (openinference, openinference_table),
    "vercel-ai": (vercel,),
    "claude-code": (claude_code,),
    "codex": (codex,),
    "har": (har,),
    "llm": (llm_db, llm_turns_db),
    "openrouter": (openrouter,),
    "vllm": (vllm,),
    "recall-store": (recall_store,),
    "recall-serve": (recall_serve,),
    "mooncake": (mooncake,),
    "azure-trace": (azure,),
    "plain": (plain_csv, plain_jsonl, plain_array, plain_parquet),
}
"""One line a format: the contract tests run each."""


def money(call: Known) -> Decimal:
    return Decimal(call.cost)


def openai_call(text: str, at: float | None, answer: str = "Yes.", **more: Any) -> dict[str, Any]:
    """Return a line of a log: one question to gpt-4o, answered in a second."""
    return {
        "timestamp": at,
        "latency_ms": 1000,
        "request": {"model": "gpt-4o", "temperature": 0, "messages": [{"role": "user", "content": text}]},
        "response": {
            "model": "gpt-4o",
            "choices": [{"message": {"content": answer}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1000, "completion_tokens": 100},
        },
        **more,
    }
