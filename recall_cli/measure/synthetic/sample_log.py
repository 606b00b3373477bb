"""Request logs of our own making, to try recall on before one's own: synthetic, so a verdict on them is an example.

`help-desk` repeats itself as such traffic does: popular questions in many wordings, questions again to the letter,
look-alikes that need another answer, follow-ups whose last words alone say nothing, and calls that no cache may
answer. `summaries` never does: every call carries another conversation. Who asks what: `workloads/sample-log.toml`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal

import numpy as np
import orjson

from recall_cli.measure.pricing.tokens import CHARS_PER_TOKEN
from recall_cli.measure.synthetic.conversations import follow_up, has_answer, said
from recall_cli.measure.synthetic.grammar import pick
from recall_cli.measure.synthetic.text import TextItem, traffic
from recall_cli.measure.workload import toml

DEFINITION = "sample-log.toml"
Kind = Literal["help-desk", "summaries"]
Turns = list[dict[str, str]]

START = datetime(2026, 11, 2, tzinfo=UTC).timestamp()
"""A Monday."""
DAY_S = 86_400.0
OPENINGS = ("", "", "Sure. ", "Of course. ")
CLOSINGS = ("", "", " Let me know if you need anything else.")
"""A model words one answer in more than one way, by how it was asked."""
TOOL, TAKES = "find_order", {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class MadeCall:
    """One request and its answer, before they are written in an API's words."""

    model: str
    tenant: str
    system: str
    turns: Turns
    answer: str
    temperature: float = 0.0
    tools: bool = False


def log_lines(kind: Kind, n: int, seed: int) -> Iterator[bytes]:
    """Yield n lines of a log in time order, request and response in each; equal arguments give equal bytes."""
    definition = toml(DEFINITION)
    rng = np.random.default_rng([seed, 21])
    calls = _CALLS[kind](definition, n, rng)
    times = _times(definition, n, rng)
    for at, call in zip(times, calls, strict=True):
        # What a model of some eighty tokens a second would take.
        took_ms = int(300 + 12 * _tokens(call.answer) + rng.integers(0, 400))
        row = {
            "timestamp": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
            "latency_ms": took_ms,
            "tenant": call.tenant,
            **(_messages(call) if call.model.startswith("claude") else _chat(call)),
        }
        yield orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def _times(definition: Mapping[str, Any], n: int, rng: np.random.Generator) -> list[float]:
    """Return n times in order, in seconds of the Unix epoch, most of them in office hours."""
    weights = np.asarray(definition["hours"], dtype=float)
    days = rng.integers(0, definition["days"], n)
    hours = rng.choice(len(weights), n, p=weights / weights.sum()) + rng.random(n)
    times: list[float] = np.sort(START + DAY_S * days + 3600 * hours).tolist()
    return times


def _help_desk(definition: Mapping[str, Any], n: int, rng: np.random.Generator) -> Iterator[MadeCall]:
    desk = definition["help-desk"]
    assistants: Sequence[Mapping[str, Any]] = desk["assistant"]
    shares = np.asarray([assistant["share"] for assistant in assistants])
    asked = [
        _answerable(rng, only=(assistant["domain"],), classes=desk["classes"], zipf=desk["zipf"])
        for assistant in assistants
    ]
    earlier: list[list[TextItem]] = [[] for _ in assistants]
    kinds = ("repeat", "follow_up", "sampled", "tools")
    bounds = np.cumsum([desk[kind] for kind in kinds])
    for who in rng.choice(len(assistants), n, p=shares / shares.sum()).tolist():
        assistant, past = assistants[who], earlier[who]
        kind = (*kinds, "question")[int(np.searchsorted(bounds, rng.random(), side="right"))]
        item = pick(rng, past) if kind == "repeat" and past else next(asked[who])
        past.append(item)
        turns, answer = _turns(item.text), _worded(said(item.asked), item.text)
        if kind == "follow_up":
            turns += [{"role": "assistant", "content": answer}]
            name, text = follow_up(item.asked, rng)
            turns += _turns(text)
            answer = _worded(f"{definition['follow'][name]} {said(item.asked)}", text)
        yield MadeCall(
            assistant["model"],
            pick(rng, assistant["tenants"]),
            assistant["system"],
            turns,
            answer,
            temperature=0.7 if kind == "sampled" else 0.0,
            tools=kind == "tools",
        )


def _answerable(rng: np.random.Generator, **how: Any) -> Iterator[TextItem]:
    """Yield traffic of the text world, as far as the world has an answer to it.

    In held-out wordings: to those that the bundled embedder was fitted to, it gives half as many wrong answers.
    """
    asked = traffic(int(rng.integers(1 << 32)), split="held-out", **how)
    return (item for item in asked if has_answer(item.asked))


def _summaries(definition: Mapping[str, Any], n: int, rng: np.random.Generator) -> Iterator[MadeCall]:
    desk = definition["summaries"]
    least, most = desk["exchanges"]
    items = _answerable(rng, one_offs=1.0)
    for _ in range(n):
        talk = list(islice(items, int(rng.integers(least, most + 1))))
        lines = [f"Customer: {item.text}\nAgent: {said(item.asked)}" for item in talk]
        first, last = said(talk[0].asked), said(talk[-1].asked)
        yield MadeCall(
            desk["model"],
            pick(rng, desk["tenants"]),
            desk["system"],
            _turns("\n".join([desk["prompt"], *lines])),
            f"{len(talk)} questions, all answered. First: {first} Last: {last}",
        )


_CALLS: Mapping[str, Callable[[Mapping[str, Any], int, np.random.Generator], Iterator[MadeCall]]] = {
    "help-desk": _help_desk,
    "summaries": _summaries,
}


def _turns(text: str) -> Turns:
    return [{"role": "user", "content": text}]


def _worded(answer: str, text: str) -> str:
    """Return the answer as it is worded for this text: asked again to the letter, it is the same to the letter."""
    luck = zlib.crc32(text.encode())
    return OPENINGS[luck % len(OPENINGS)] + answer + CLOSINGS[luck // len(OPENINGS) % len(CLOSINGS)]


def _tokens(*texts: str) -> int:
    # An estimate, as everything in these logs is made up.
    return sum(map(len, texts)) // CHARS_PER_TOKEN + 1


def _asked_tokens(call: MadeCall) -> int:
    return _tokens(call.system, *(turn["content"] for turn in call.turns))


def _chat(call: MadeCall) -> dict[str, Any]:
    """Return the bodies of OpenAI's chat completions."""
    request = {
        "model": call.model,
        "temperature": call.temperature,
        "messages": [{"role": "system", "content": call.system}, *call.turns],
        **({"tools": [{"type": "function", "function": {"name": TOOL, "parameters": TAKES}}]} if call.tools else {}),
    }
    message = {"role": "assistant", "content": call.answer}
    usage = {"prompt_tokens": _asked_tokens(call), "completion_tokens": _tokens(call.answer)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    response = {"object": "chat.completion", "model": call.model, "choices": [choice], "usage": usage}
    return {"request": request, "response": response}


def _messages(call: MadeCall) -> dict[str, Any]:
    """Return the bodies of Anthropic's messages."""
    request = {
        "model": call.model,
        "max_tokens": 300,
        "temperature": call.temperature,
        "system": call.system,
        "messages": call.turns,
        **({"tools": [{"name": TOOL, "input_schema": TAKES}]} if call.tools else {}),
    }
    response = {
        "type": "message",
        "role": "assistant",
        "model": call.model,
        "content": [{"type": "text", "text": call.answer}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": _asked_tokens(call), "output_tokens": _tokens(call.answer)},
    }
    return {"request": request, "response": response}
