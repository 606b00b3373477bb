"""OpenAI's Batch API: the file that was sent and the files that came back (output, errors), joined on `custom_id`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from recall_cli.logs.formats.base import Adapter, Found, Pair
from recall_cli.logs.join import Joiner
from recall_cli.logs.json_path import decoded, dig, text
from recall_cli.logs.record import status_of
from recall_cli.types import Json


class OpenAIBatch(Adapter):
    """Half the list price, which `tier="batch"` says. Neither file has a time but the answer's own."""

    name = "openai-batch"
    by_keys = True

    def __init__(self) -> None:
        self._calls = Joiner()

    def score(self, row: Json) -> int:
        """Count what stands beside a custom id."""
        if "custom_id" not in row:
            return 0
        return 3 * any(name in row for name in ("body", "response", "error")) + ("url" in row or "error" in row)

    def read(self, row: Json, source: str) -> Sequence[Found]:
        """Return the call that a row completes."""
        id = text(row.get("custom_id"))
        if not id:
            return ("no_custom_id",)
        if "body" in row:
            return self._calls.ask(id, Pair(source, decoded(row["body"]), uri=text(row.get("url")), tier="batch"))
        response: Any = decoded(row.get("response"))
        status = status_of(dig(response, "status_code"), None if row.get("error") is None else 500)
        body = decoded(dig(response, "body"))
        return self._calls.answer(id, Pair(source, response=body, status=status, tier="batch"))

    def end(self) -> Iterable[Found]:
        """Return the halves that stayed alone."""
        return self._calls.end()
