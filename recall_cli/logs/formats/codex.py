"""Codex's rollouts (`~/.codex/sessions/**/rollout-*.jsonl`): items of a session, and token counts after each call.

As with other agents, neither the system prompt nor the tools are in the log: calls are priced, and marked as hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from recall_cli.logs.bodies import item_message
from recall_cli.logs.formats.base import HIDDEN, NO_TEXT, Adapter, Found, Pair
from recall_cli.logs.json_path import dig, text
from recall_cli.logs.usage import count, inclusive
from recall_cli.types import Json

TYPES = ("session_meta", "turn_context", "response_item", "event_msg", "compacted")


class Codex(Adapter):
    """A call ends at its `token_count`, whose last counts are its own; the totals are of the session so far."""

    name = "codex"

    def __init__(self) -> None:
        self._start_over()

    def _start_over(self) -> None:
        self._session = self._model = ""
        self._history: list[dict[str, Any]] = []
        self._outputs: list[dict[str, Any]] = []
        self._asked: Any = None
        self._answered: Any = None
        self._source = ""
        self._totals: Any = None

    def score(self, row: Json) -> int:
        """Know the types of a rollout's lines."""
        return 5 if "payload" in row and row.get("type") in TYPES else 0

    def read(self, row: Json, source: str) -> Sequence[Found]:
        """Keep an item; return the call that a token count ends."""
        kind, payload = row.get("type"), row.get("payload")
        if not isinstance(payload, dict):
            return ("no_payload",)
        if kind == "session_meta":
            self._session = text(payload.get("id")) or text(payload.get("session_id"))
        elif kind == "turn_context":
            self._model = text(payload.get("model")) or self._model
        elif kind == "response_item":
            return self._item(payload, row, source)
        elif kind == "event_msg" and payload.get("type") == "token_count":
            return self._counted(payload, row, source)
        return ()

    def _item(self, item: Json, row: Json, source: str) -> Sequence[Found]:
        message = item_message(dict(item))
        if message.get("role") == "assistant":
            self._outputs.append({"type": "message", **item})
            self._answered = row.get("timestamp")
            self._source = self._source or source
            return ()
        # A new turn before the count of the last call: older versions counted nothing.
        found = (self._call(None, source),) if self._outputs and message.get("role") == "user" else ()
        self._history.append(message)
        self._asked = row.get("timestamp")
        return found

    def _counted(self, payload: Json, row: Json, source: str) -> Sequence[Found]:
        info = payload.get("info")
        totals = dig(info, "total_token_usage")
        usage = dig(info, "last_token_usage")
        if not isinstance(usage, dict) or (totals is not None and totals == self._totals):
            # Sent again, with the rate limits' news.
            return ()
        self._totals = totals
        self._model = text(dig(info, "model")) or self._model
        return (self._call(usage, source),)

    def _call(self, usage: Json | None, source: str) -> Pair:
        counted = None
        if usage is not None and (input := count(usage.get("input_tokens"))) is not None:
            counted = inclusive(
                input, count(usage.get("output_tokens")) or 0, count(usage.get("cached_input_tokens")) or 0
            )
        turns = list(self._history)
        pair = Pair(
            self._source or source,
            {"model": self._model, "messages": turns} if turns else {},
            {"object": "response", "output": self._outputs, "status": "completed"} if self._outputs else None,
            {"start_time": self._asked, "end_time": self._answered},
            provider="openai",
            model=self._model,
            counted=counted,
            session=self._session,
            flaw=HIDDEN if turns else NO_TEXT,
        )
        self._history += [item_message(dict(item)) for item in self._outputs]
        self._outputs = []
        self._source = ""
        return pair

    def end_file(self) -> Iterator[Found]:
        """Return a call that no token count ended: a file is a session."""
        if self._outputs:
            yield self._call(None, self._source)
        self._start_over()
