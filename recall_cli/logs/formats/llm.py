"""The `llm` command's log: `logs.db`, a SQLite file, in older and newer versions.

In older versions a row of `responses` is a call. Its earlier turns are rows of the same conversation; fragments and
attachments stand in tables of their own. In newer versions (as 0.36 writes them) turns point into trees of messages: a
message is stored once, whatever conversations share it, and text from a fragment is stored as a reference. A file that
was in use before and after has calls in both.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from recall_cli.logs.bodies import completion
from recall_cli.logs.formats.base import Adapter, Found, Pair
from recall_cli.logs.json_path import decoded, dig, mapping, text, whole
from recall_cli.logs.record import dialect
from recall_cli.logs.usage import normalise
from recall_cli.types import Json, Usage

TURN_TABLES = {"turns", "messages", "parts"}
MAX_TURNS = 10_000
"""Messages followed back from one: a longer chain is a circle."""

Message = tuple[str | None, dict[str, Any]]
"""The hash of the message before, and the message."""


def turn_rows(db: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    """Yield each turn as a row of the older table, with its messages beside it."""
    load = _loader(db)
    for turn in db.execute("SELECT * FROM turns ORDER BY datetime_utc, id"):
        said = dict(turn)
        asked = _chain(load, said.get("parent_message_hash"), None)
        own = _chain(load, said.get("tip_message_hash"), said.get("parent_message_hash"))
        parts = [part for message in own for part in _parts(message["content"])]
        said["response"] = "".join(part["text"] for part in parts if part.get("type") == "text") if parts else None
        said["conversation_id"] = said.get("thread_id")
        tools = [row[0] for row in db.execute(TOOLS, (said["id"],))]
        calls = [part.get("name") for part in parts if part.get("type") == "tool_call"]
        yield {"llm_response": said, "messages": asked, "tools": tools, "tool_calls": calls}


TOOLS = "SELECT tools.name FROM turn_tools JOIN tools ON tools.id = tool_id WHERE turn_id = ?"


def _loader(db: sqlite3.Connection) -> Callable[[str], Message | None]:
    @lru_cache(maxsize=4096)
    def load(hash: str) -> Message | None:
        row = db.execute("SELECT parent_hash, role FROM messages WHERE hash = ?", (hash,)).fetchone()
        if row is None:
            return None
        found = db.execute("SELECT type, text, payload FROM parts WHERE message_hash = ? ORDER BY position", (hash,))
        parts = [_part(db, *part) for part in found]
        if all(part["type"] == "text" for part in parts):
            return row[0], {"role": row[1], "content": "".join(part["text"] for part in parts)}
        return row[0], {"role": row[1], "content": parts}

    return load


def _chain(load: Callable[[str], Message | None], tip: Any, stop: Any) -> list[dict[str, Any]]:
    """Return the messages from after one up to another, oldest first."""
    found: list[dict[str, Any]] = []
    while isinstance(tip, str) and tip != stop and len(found) < MAX_TURNS:
        message = load(tip)
        if message is None:
            break
        tip = message[0]
        found.append(message[1])
    return found[::-1]


def _part(db: sqlite3.Connection, type: str, text: str | None, payload: str | None) -> dict[str, Any]:
    held = mapping(payload)
    if type != "text":
        return {**held, "type": type}
    if text is None:
        pieces = decoded(held.get("text_ref"))
        text = "".join(_piece(db, piece) for piece in pieces if isinstance(piece, dict)) if pieces else ""
    return {"type": "text", "text": text}


def _piece(db: sqlite3.Connection, piece: dict[str, Any]) -> str:
    if "literal" in piece:
        return str(piece["literal"])
    row = db.execute("SELECT content FROM fragments WHERE id = ?", (piece.get("fragment"),)).fetchone()
    return str(row[0]) if row is not None else ""


def _parts(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


TABLES = {"responses", "conversations"}
PARTS = {
    "fragments": (
        "SELECT fragments.content FROM prompt_fragments JOIN fragments ON fragments.id = fragment_id"
        ' WHERE response_id = ? ORDER BY "order"'
    ),
    "system_fragments": (
        "SELECT fragments.content FROM system_fragments JOIN fragments ON fragments.id = fragment_id"
        ' WHERE response_id = ? ORDER BY "order"'
    ),
    "attachments": "SELECT attachment_id FROM prompt_attachments WHERE response_id = ?",
    "tools": "SELECT tools.name FROM tool_responses JOIN tools ON tools.id = tool_id WHERE response_id = ?",
    "tool_calls": "SELECT name FROM tool_calls WHERE response_id = ?",
    "tool_results": "SELECT name FROM tool_results WHERE response_id = ?",
}


def table_rows(db: sqlite3.Connection) -> Iterator[dict[str, Any] | str]:
    """Yield the responses in their order, with what other tables hold of them; then the turns of newer versions."""
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    parts = {name: query for name, query in PARTS.items() if _works(db, query)}
    for row in db.execute("SELECT * FROM responses ORDER BY datetime_utc, id"):
        found: dict[str, Any] = {"llm_response": dict(row)}
        for name, query in parts.items():
            found[name] = [part[0] for part in db.execute(query, (row["id"],))]
        yield found
    if tables >= TURN_TABLES:
        yield from turn_rows(db)


def _works(db: sqlite3.Connection, query: str) -> bool:
    """Return whether this file has the tables of a query: older ones lack some."""
    try:
        db.execute(query, ("",))
    except sqlite3.OperationalError:
        return False
    return True


class Llm(Adapter):
    """Rows of `responses`. Whether a plugin's `input_tokens` include cached ones shows in the details' names."""

    name = "llm"

    def __init__(self) -> None:
        self._talks: dict[str, list[dict[str, Any]]] = {}

    def score(self, row: Json) -> int:
        """Know what `table_rows` yields."""
        return 9 if "llm_response" in row else 0

    def read(self, row: Json, source: str) -> tuple[Found]:
        """Return the request and answer of a row; the conversation so far is its earlier turns."""
        said = row.get("llm_response")
        if not isinstance(said, dict):
            return ("no_request",)
        model = text(said.get("resolved_model")) or text(said.get("model"))
        request = self._request(row, said)
        answered = mapping(said.get("response_json"))
        talk = text(said.get("conversation_id"))
        if talk and request["messages"]:
            self._talks[talk] = [*request["messages"], {"role": "assistant", "content": said.get("response")}]
        when = text(said.get("datetime_utc"))
        row_times = {
            "start_time": when + "Z" if when and "+" not in when and not when.endswith("Z") else when,
            "duration_ms": said.get("duration_ms"),
        }
        finish = text(dig(answered, "choices", 0, "finish_reason")) or text(answered.get("stop_reason"))
        return (
            Pair(
                source,
                request,
                completion(said.get("response"), finish=finish, tools=row.get("tool_calls")),
                row_times,
                provider=dialect(model),
                model=model,
                counted=_usage(said),
                session=talk,
            ),
        )

    def _request(self, row: Json, said: Json) -> dict[str, Any]:
        options = mapping(said.get("options_json"))
        request: dict[str, Any] = {**options, "model": said.get("model")}
        sent = mapping(said.get("prompt_json"))
        if isinstance(row.get("messages"), list):
            request["messages"] = row["messages"]
        elif isinstance(sent.get("messages"), list) and sent["messages"]:
            request = {**sent, **request, "messages": sent["messages"]}
        else:
            request["messages"] = self._turns(row, said)
        if row.get("tools"):
            request["tools"] = row["tools"]
        if said.get("schema_id"):
            request["response_format"] = said["schema_id"]
        return request

    def _turns(self, row: Json, said: Json) -> list[dict[str, Any]]:
        earlier = self._talks.get(text(said.get("conversation_id")), [])
        system = "\n".join([*_strings(row.get("system_fragments")), text(said.get("system"))]).strip()
        if system and not earlier:
            earlier = [{"role": "system", "content": system}]
        prompt: Any = "\n".join([*_strings(row.get("fragments")), text(said.get("prompt"))]).strip()
        if row.get("attachments"):
            prompt = [{"type": "text", "text": prompt}, *({"type": "file", "id": id} for id in row["attachments"])]
        if row.get("tool_results"):
            prompt = [{"type": "tool_result", "name": name} for name in row["tool_results"]]
        return [*earlier, {"role": "user", "content": prompt}] if prompt else []


def _usage(said: Json) -> tuple[Usage, str] | None:
    fresh, output = whole(said.get("input_tokens")), whole(said.get("output_tokens"))
    if fresh is None:
        return None
    details = mapping(said.get("token_details"))
    if any(name.startswith("cache_") for name in details):
        return normalise({**details, "input_tokens": fresh, "output_tokens": output or 0})
    return normalise({**details, "prompt_tokens": fresh, "completion_tokens": output or 0})


def _strings(values: Any) -> list[str]:
    return [value for value in values or () if isinstance(value, str)]
