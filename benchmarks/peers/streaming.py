"""Whether a stored answer comes back as the official SDKs take it: streamed or whole, with its tool calls and usage.

A case asks twice, in the mode of storing and in the mode of replaying, with the SDK of each API. `replayed` says that
the second came without asking the provider; `faults` what the SDK's user did not get as the provider gave it.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.peers import upstream
from benchmarks.peers.bench import Bench, Row
from benchmarks.peers.proxies import KEY, Proxy, Up, all_up
from benchmarks.serve import sentences

SETTLE_S = 0.5
"""What a proxy may take to store an answer after it was sent."""
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
MODES = ("stream", "whole")
KINDS = {"openai": ("text", "text with usage", "tool call"), "anthropic": ("text", "tool call")}
"""OpenAI's streams tell the usage where they are asked to, Anthropic's always."""

Ask = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Got:
    """What a program gets out of an answer."""

    text: str
    tools: tuple[tuple[str, str], ...]
    usage: tuple[int, int] | None
    ended: str | None


def run(bench: Bench) -> list[Row]:
    """Return a row for each proxy, API, kind of answer and pair of modes."""
    rows: list[Row] = []
    with all_up(bench) as (up, absent):
        rows += [bench.not_run("streaming", proxy, why) for proxy, why in absent.items()]
        for proxy, running in up.items():
            # Far apart, or a semantic cache answers one case with another's.
            prompts = iter(sentences(20, seed=8))
            for api, kind in [(api, kind) for api, kinds in KINDS.items() for kind in kinds]:
                for first, then in itertools.product(MODES, MODES):
                    prompt = f"{next(prompts)}{' tool' if kind == 'tool call' else ''}"
                    told = case(proxy, running, api, kind, (first, then), prompt)
                    rows.append({"workload": "streaming", "arm": proxy.name, "ran": True, **told})
    return rows


def case(proxy: Proxy, up: Up, api: str, kind: str, modes: tuple[str, str], prompt: str) -> Row:
    """Ask twice; return what came of it."""
    told: Row = {"provider": api, "kind": f"{kind}, {modes[0]} then {modes[1]}"}
    if api not in proxy.apis:
        return told | {"replayed": False, "faults": ["it does not speak this API"]}
    expected = answer_of(api, prompt, modes[1], usage=kind == "text with usage")
    before = up.calls()
    try:
        ask(api, up.url, prompt, modes[0], usage=kind == "text with usage")
        time.sleep(SETTLE_S)
        between = up.calls()
        got = ask(api, up.url, prompt, modes[1], usage=kind == "text with usage")
    except Exception as error:
        return told | {"replayed": False, "faults": [f"{type(error).__name__}: {error}"[:200]]}
    replayed = up.calls() == between and between == before + 1
    return told | {"replayed": replayed, "faults": faults(got, expected)}


def faults(got: Got, expected: Got) -> list[str]:
    """Return the names of what is not as the provider gave it."""
    return [name for name in ("text", "tools", "usage", "ended") if getattr(got, name) != getattr(expected, name)]


def answer_of(api: str, prompt: str, mode: str, *, usage: bool = False) -> Got:
    """Return what the provider answers."""
    told = (upstream.INPUT, upstream.OUTPUT) if usage or api == "anthropic" or mode == "whole" else None
    tools = ((upstream.TOOL, json.dumps(upstream.ARGUMENTS)),) if "tool" in prompt else ()
    ends = {"openai": ("stop", "tool_calls"), "anthropic": ("end_turn", "tool_use")}[api]
    text = "" if tools else upstream.answer_to(prompt)
    return Got(text, tools, told, ends[bool(tools)])


def ask(api: str, url: str, prompt: str, mode: str, *, usage: bool = False) -> Got:
    """Ask with the official SDK of the API.

    :param usage: ask OpenAI's stream for the tokens that it took.
    """
    messages = [{"role": "user", "content": prompt}]
    tool = "tool" in prompt
    if api == "openai":
        return ask_openai(url, messages, mode, tool=tool, usage=usage)
    return ask_anthropic(url, messages, mode, tool=tool)


def ask_openai(url: str, messages: Any, mode: str, *, tool: bool, usage: bool) -> Got:
    """Ask with the package `openai`."""
    from openai import OpenAI

    asked: dict[str, Any] = {"model": "gpt-4o", "temperature": 0, "messages": messages}
    if tool:
        function = {"name": upstream.TOOL, "parameters": PARAMETERS}
        asked["tools"] = [{"type": "function", "function": function}]
    with OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, timeout=60) as client:
        if mode == "whole":
            body = client.chat.completions.create(**asked)
        else:
            if usage:
                asked["stream_options"] = {"include_usage": True}
            with client.chat.completions.stream(**asked) as stream:
                body = stream.get_final_completion()
    (choice,) = body.choices
    calls = tuple((one.function.name, canonical(one.function.arguments)) for one in choice.message.tool_calls or ())
    took = None if body.usage is None else (body.usage.prompt_tokens, body.usage.completion_tokens)
    return Got(choice.message.content or "", calls, took, choice.finish_reason)


def ask_anthropic(url: str, messages: Any, mode: str, *, tool: bool) -> Got:
    """Ask with the package `anthropic`."""
    from anthropic import Anthropic

    asked: dict[str, Any] = {"model": "claude-bench", "max_tokens": 200, "messages": messages}
    if tool:
        asked["tools"] = [{"name": upstream.TOOL, "input_schema": PARAMETERS}]
    # Its typed client no longer has the parameter; the API does.
    asked["extra_body"] = {"temperature": 0}
    with Anthropic(base_url=url, api_key=KEY, max_retries=0, timeout=60) as client:
        if mode == "whole":
            body = client.messages.create(**asked)
        else:
            with client.messages.stream(**asked) as stream:
                body = stream.get_final_message()
    text = "".join(block.text for block in body.content if block.type == "text")
    calls = tuple((block.name, json.dumps(block.input)) for block in body.content if block.type == "tool_use")
    return Got(text, calls, (body.usage.input_tokens, body.usage.output_tokens), body.stop_reason)


def canonical(arguments: str) -> str:
    """Return a call's arguments as we would write them."""
    return json.dumps(json.loads(arguments))
