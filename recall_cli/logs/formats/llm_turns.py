"""The tables of `llm`'s log in newer versions (as 0.36 writes them): turns that point into trees of messages.

A message is stored once, whatever conversations share it; text that came from a fragment is stored as a reference.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from recall_cli.logs.json_path import decoded, mapping

TABLES = {"turns", "messages", "parts"}
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
