r"""vLLM's own log lines (`--enable-log-requests`, `--enable-log-outputs`).

They carry no year, no model and no token counts, and newer versions write the prompt only at level DEBUG. What can be
had from them is which prompts repeat, and their answers where those were logged too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from recall_cli.logs.bodies import completion
from recall_cli.logs.formats.base import Adapter, Found, Pair
from recall_cli.types import Json

MARKS = (b"Received request ", b"Generated response ")
_STRING = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_REQUEST = re.compile(rf"Received request (\S+?):(?: prompt: (?P<prompt>{_STRING}))?,? ?(?P<rest>.*)")
_RESPONSE = re.compile(rf"Generated response (\S+?)(?: \(.*?\))?: (?:output: )?(?P<output>{_STRING})(?P<rest>.*)")
_FINISH = re.compile(r"finish_reason: (\w+)")
_PARAMETER = re.compile(
    r"[(\s](n|temperature|top_p|top_k|seed|max_tokens|presence_penalty|frequency_penalty)=([\d.eE+-]+)"
)


def line_row(line: bytes) -> dict[str, Any] | None:
    """Return the row in a line of text, None when it is none of vLLM's about a request."""
    if not any(mark in line for mark in MARKS):
        return None
    return {"vllm_line": line.decode("utf-8", "replace")}


class Vllm(Adapter):
    """Lines of vLLM's logger: a request's, and its answer's if that was logged."""

    name = "vllm"

    def __init__(self) -> None:
        self._asked: dict[str, Pair] = {}

    def score(self, row: Json) -> int:
        """Know what `line_row` returns."""
        return 9 if "vllm_line" in row else 0

    def read(self, row: Json, source: str) -> tuple[Found, ...]:
        """Keep a request until its answer; return both with the answer."""
        line = row.get("vllm_line")
        if not isinstance(line, str):
            return ("no_request",)
        if answered := _RESPONSE.search(line):
            pair = self._asked.pop(_call(answered.group(1)), None)
            if pair is None:
                return ("answer_without_request",)
            finish = _FINISH.search(answered["rest"])
            pair.response = completion(_literal(answered["output"]), finish=finish.group(1) if finish else None)
            return (pair,)
        asked = _REQUEST.search(line)
        if asked is None:
            return ("no_request",)
        if asked["prompt"] is None:
            return ("no_prompt",)
        parameters = {name: _number(value) for name, value in _PARAMETER.findall(asked["rest"])}
        pair = Pair(
            source,
            {**parameters, "messages": [{"role": "user", "content": _literal(asked["prompt"])}]},
            provider="openai",
        )
        call = _call(asked.group(1))
        before = self._asked.pop(call, None)
        self._asked[call] = pair
        return () if before is None else (before,)

    def end_file(self) -> Iterator[Found]:
        """Return the requests whose answers were not logged."""
        yield from self._asked.values()
        self._asked.clear()


def _call(id: str) -> str:
    """Return a request's id without the number of its prompt: completions take several at once."""
    return re.sub(r"-\d+$", "", id) if id.startswith("cmpl-") else id


def _literal(written: str) -> str:
    """Return the text that Python wrote as a literal; as it stands when it is none."""
    try:
        value = ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return written[1:-1]
    return value if isinstance(value, str) else written


def _number(written: str) -> float | int | str:
    try:
        return float(written) if "." in written or "e" in written.lower() else int(written)
    except ValueError:
        return written
