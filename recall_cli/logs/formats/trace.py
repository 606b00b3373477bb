"""Published traces without text: Mooncake's JSON Lines and Azure's CSV. They tell times and sizes.

Mooncake's `hash_ids` name blocks of 512 tokens by their content and all before them: where they and the length are
equal, the prompts were equal up to the last block, which makes it an upper bound on exact repeats.
"""

from __future__ import annotations

from typing import Any

import orjson
from blake3 import blake3

from recall_cli.logs.formats.base import NO_TEXT, Adapter, Found, Pair
from recall_cli.logs.json_path import number, whole
from recall_cli.logs.usage import inclusive
from recall_cli.types import Json, Usage

KEY_BYTES = 16


class Mooncake(Adapter):
    """`{"timestamp": ms, "input_length", "output_length", "hash_ids"}`; times count from the trace's start."""

    name = "mooncake"
    by_keys = True

    def score(self, row: Json) -> int:
        """Count its keys."""
        return 4 if "input_length" in row and "output_length" in row else 0

    def read(self, row: Json, source: str) -> tuple[Found]:
        """Return the request of a line."""
        counted = _counts(row.get("input_length"), row.get("output_length"))
        if counted is None:
            return ("no_tokens",)
        blocks = row.get("hash_ids")
        key = b""
        if isinstance(blocks, list):
            key = blake3(orjson.dumps([blocks, counted[0].input])).digest(length=KEY_BYTES)
        ms = number(row.get("timestamp"))
        start = None if ms is None or ms < 0 else ms / 1e3
        return (Pair(source, provider="openai", counted=counted, start=start, key=key, flaw=NO_TEXT),)


class Azure(Adapter):
    """`TIMESTAMP,ContextTokens,GeneratedTokens`."""

    name = "azure-trace"
    by_keys = True

    def score(self, row: Json) -> int:
        """Count its columns."""
        return 4 if "ContextTokens" in row and "GeneratedTokens" in row else 0

    def read(self, row: Json, source: str) -> tuple[Found]:
        """Return the request of a row."""
        counted = _counts(row.get("ContextTokens"), row.get("GeneratedTokens"))
        if counted is None:
            return ("no_tokens",)
        times = {"timestamp": row.get("TIMESTAMP")}
        return (Pair(source, row=times, provider="openai", counted=counted, flaw=NO_TEXT),)


def _counts(input: Any, output: Any) -> tuple[Usage, str] | None:
    tokens = whole(input)
    return None if tokens is None else inclusive(tokens, whole(output) or 0)
