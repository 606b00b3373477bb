"""Anthropic's Message Batches: the requests that were sent and the results, joined on `custom_id`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recall_cli.logs.formats.base import Adapter, Found, Pair
from recall_cli.logs.join import Joiner
from recall_cli.logs.json_path import dig, text
from recall_cli.types import Json


class AnthropicBatch(Adapter):
    """Half the list price, which `tier="batch"` says. Results carry no time at all."""

    name = "anthropic-batch"
    by_keys = True

    def __init__(self) -> None:
        self._calls = Joiner()

    def score(self, row: Json) -> int:
        """Count what stands beside a custom id."""
        return 4 * ("custom_id" in row and ("params" in row or "result" in row))

    def read(self, row: Json, source: str) -> Sequence[Found]:
        """Return the call that a row completes."""
        id = text(row.get("custom_id"))
        if not id:
            return ("no_custom_id",)
        if "params" in row:
            return self._calls.ask(id, Pair(source, row["params"], provider="anthropic", tier="batch"))
        result = row.get("result")
        # "errored", "canceled", "expired": nothing was answered, and nothing is billed.
        status = 200 if dig(result, "type") == "succeeded" else 500
        answer = Pair(source, response=dig(result, "message"), provider="anthropic", status=status, tier="batch")
        return self._calls.answer(id, answer)

    def end(self) -> Iterable[Found]:
        """Return the halves that stayed alone."""
        return self._calls.end()
