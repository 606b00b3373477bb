"""Claude Code's transcripts (`~/.claude/projects/**/*.jsonl`): a line a block, a call in several lines.

The prompt of a call is the chain of its parents. The system prompt and the tools are in no line, so no two calls can
be shown to be equal: they are priced, and marked as hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from recall_cli.logs.formats.base import HIDDEN, NO_TEXT, Adapter, Found, Pair
from recall_cli.logs.json_path import dig, money, text, truth
from recall_cli.logs.usage import normalise
from recall_cli.types import Json

SYNTHETIC = "<synthetic>"
"""The model of lines that Claude Code writes itself, without a call."""


class ClaudeCode(Adapter):
    """One record a (message id, request id), whose lines may lie apart; a resumed session repeats old ones."""

    name = "claude-code"

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()
        self._turns: dict[str, tuple[str, Any, str]] = {}
        self._calls: dict[tuple[str, str], _Call] = {}
        self._asking: dict[str, str] = {}

    def score(self, row: Json) -> int:
        """Count its own keys."""
        if "sessionId" not in row and not ("uuid" in row and isinstance(row.get("message"), dict)):
            return 0
        return sum(name in row for name in ("sessionId", "uuid", "parentUuid", "isSidechain", "requestId", "message"))

    def read(self, row: Json, source: str) -> Sequence[Found]:
        """Keep a line as a turn; a call is whole when its file is over."""
        message = row.get("message")
        uuid = text(row.get("uuid"))
        when = text(row.get("timestamp"))
        if not isinstance(message, dict):
            if uuid:
                # No turn, but a link in the chain.
                self._turns[uuid] = (text(row.get("parentUuid")), None, when)
            return ("not_a_turn",)
        parent = text(row.get("parentUuid"))
        if uuid:
            self._turns[uuid] = (parent, message, when)
        session = text(row.get("sessionId"))
        if message.get("role") != "assistant":
            self._asking[session] = uuid
            return ()
        if message.get("model") == SYNTHETIC or truth(row.get("isApiErrorMessage")):
            return ("not_a_call",)
        id = (text(message.get("id")) or uuid or source, text(row.get("requestId")))
        if id in self._seen:
            return ("duplicate",)
        call = self._calls.get(id)
        if call is None:
            # No answer is a root: where the chain is not logged, it follows the turn before it.
            self._calls[id] = _Call(source, row, parent or self._asking.get(session, ""))
        else:
            call.add(row)
        return ()

    def end_file(self) -> Iterator[Found]:
        """Return the calls of the file."""
        for id, call in self._calls.items():
            self._seen.add(id)
            yield call.pair(self._chain(call.parent), self._asked_at(call.parent))
        self._calls.clear()
        self._turns.clear()
        self._asking.clear()

    def _asked_at(self, parent: str) -> str:
        found = self._turns.get(parent)
        return found[2] if found else ""

    def _chain(self, uuid: str) -> list[Any]:
        """Return the turns up to one, oldest first; lines of one call as one turn."""
        found: list[Any] = []
        seen: set[str] = set()
        while uuid and uuid in self._turns and uuid not in seen:
            seen.add(uuid)
            uuid, message, _ = self._turns[uuid]
            if message is None:
                continue
            if found and message.get("id") and found[-1].get("id") == message["id"]:
                found[-1] = {**message, "content": [*_blocks(message), *_blocks(found[-1])]}
            else:
                found.append(message)
        return [{"role": turn.get("role"), "content": turn.get("content")} for turn in reversed(found)]


class _Call:
    """The lines of one API call."""

    def __init__(self, source: str, row: Json, parent: str) -> None:
        self.source = source
        self.parent = parent
        self.row: Json = row
        self.message: dict[str, Any] = {**row["message"], "content": _blocks(row["message"])}

    def add(self, row: Json) -> None:
        """Take another line: its blocks come after, its counts and its ending replace those so far."""
        message = row["message"]
        content = [*self.message["content"], *(b for b in _blocks(message) if b not in self.message["content"])]
        later = {k: v for k, v in message.items() if v is not None}
        if (dig(later, "usage", "output_tokens") or 0) < (dig(self.message, "usage", "output_tokens") or 0):
            later["usage"] = self.message["usage"]
        self.message = {**self.message, **later, "content": content}
        self.row = {**self.row, "timestamp": row.get("timestamp") or self.row.get("timestamp")}

    def pair(self, turns: list[Any], asked: str) -> Pair:
        """Return the call, asked when the turn before it was written."""
        message = self.message
        times = {"start_time": asked, "end_time": self.row.get("timestamp")} if asked else {}
        return Pair(
            self.source,
            {"model": message.get("model"), "messages": turns} if turns else {},
            {**message, "type": "message"} if message["content"] else None,
            times or {"start_time": self.row.get("timestamp")},
            provider="anthropic",
            model=text(message.get("model")),
            counted=normalise(message.get("usage")),
            cost=money(self.row.get("costUSD")),
            session=text(self.row.get("sessionId")),
            flaw=HIDDEN if turns else NO_TEXT,
        )


def _blocks(message: Json) -> list[Any]:
    content = message.get("content")
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if isinstance(content, str) else []
