"""The formats that recall reads, and which of them a file is in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from recall_cli.errors import UsageError
from recall_cli.logs.formats.anthropic_batch import AnthropicBatch
from recall_cli.logs.formats.base import Adapter
from recall_cli.logs.formats.claude_code import ClaudeCode
from recall_cli.logs.formats.codex import Codex
from recall_cli.logs.formats.har import Har
from recall_cli.logs.formats.helicone import Helicone
from recall_cli.logs.formats.langfuse import Langfuse
from recall_cli.logs.formats.langsmith import LangSmith
from recall_cli.logs.formats.litellm import LiteLLM
from recall_cli.logs.formats.litellm_spend import LiteLLMSpend
from recall_cli.logs.formats.llm import Llm
from recall_cli.logs.formats.openai_batch import OpenAIBatch
from recall_cli.logs.formats.openinference import OpenInference
from recall_cli.logs.formats.openrouter import OpenRouter
from recall_cli.logs.formats.otel import OTel
from recall_cli.logs.formats.pairs import Pairs
from recall_cli.logs.formats.plain import FIELDS, Plain
from recall_cli.logs.formats.serve import Serve
from recall_cli.logs.formats.store import Store
from recall_cli.logs.formats.trace import Azure, Mooncake
from recall_cli.logs.formats.vercel import Vercel
from recall_cli.logs.formats.vllm import Vllm
from recall_cli.logs.report import Sniffed

ADAPTERS: tuple[type[Adapter], ...] = (
    Pairs,
    OpenAIBatch,
    AnthropicBatch,
    LiteLLM,
    LiteLLMSpend,
    Langfuse,
    Helicone,
    LangSmith,
    OTel,
    OpenInference,
    Vercel,
    ClaudeCode,
    Codex,
    Har,
    Llm,
    OpenRouter,
    Vllm,
    Store,
    Serve,
    Mooncake,
    Azure,
    Plain,
)
"""One line a format. The order settles ties: the first of two equal scores is chosen."""
MAX_SHAPES = 1_024
"""Sets of keys remembered: a log has a handful, unless its keys are data."""
CALL_FIELDS = frozenset(("messages", *FIELDS["answer"]))
"""Of a plain row, what tells a call from a prompt."""
NAMES = tuple(adapter.name for adapter in ADAPTERS)


class Formats:
    """The adapters of one reading, and the choice between them."""

    def __init__(self, format: str = "", fields: Mapping[str, str] | None = None) -> None:
        """Make the adapters.

        :param format: the name of the only format to read; "" sniffs file by file and row by row.
        """
        if format and format not in NAMES:
            close = get_close_matches(format, NAMES, n=1)
            raise UsageError(
                f"there is no log format {format!r}" + (f"; did you mean {close[0]}?" if close else ""),
                hint=f"the formats are: {', '.join(NAMES)}",
            )
        self._plain = Plain(fields)
        self.adapters: list[Adapter] = [self._plain if kind is Plain else kind() for kind in ADAPTERS]
        self._forced = next((a for a in self.adapters if a.name == format), None)
        self._shapes: dict[tuple[str, ...], Adapter] = {}

    def unseen(self) -> list[str]:
        """Return a sentence for each column that was named and that no row had."""
        return [f"no row has a column {column!r} (named as {what})" for column, what in self._plain.unseen.items()]

    def knows(self, row: dict[str, Any]) -> bool:
        """Return whether any format knows a row by its keys."""
        return any(adapter.score(row) for adapter in self.adapters)

    def is_call(self, row: dict[str, Any]) -> bool:
        """Return whether a row is a logged call, and not a mere prompt in a file of prompts."""
        return any(
            adapter.score(row) and (adapter is not self._plain or not CALL_FIELDS.isdisjoint(row))
            for adapter in self.adapters
        )

    def sniff(self, file: str, rows: Iterable[Any]) -> tuple[Adapter, Sniffed]:
        """Return the adapter that knows most keys of a file's first rows, and what was decided.

        Rows that no format knows are left to the pairs adapter, which says what they lack.
        """
        scores = dict.fromkeys(self.adapters, 0)
        for row in rows:
            if isinstance(row, dict):
                for adapter in self.adapters:
                    scores[adapter] += adapter.score(row)
        ranked = sorted(self.adapters, key=lambda adapter: -scores[adapter])
        if self._forced is not None:
            ranked = [self._forced, *(a for a in ranked if a is not self._forced)]
        chosen, second = ranked[0], ranked[1]
        known = scores[second] > 0
        return chosen, Sniffed(
            file, chosen.name, scores[chosen], second.name if known else "", scores[second] if known else 0
        )

    def adapter_of(self, row: dict[str, Any], chosen: Adapter) -> Adapter:
        """Return who reads a row: the adapter that knows most of its keys, its file's when none knows any."""
        if self._forced is not None:
            return self._forced
        shape = tuple(row)
        known = self._shapes.get(shape)
        if known is not None:
            return known
        best, score = chosen, 0
        for adapter in self.adapters:
            if (found := adapter.score(row)) > score:
                best, score = adapter, found
        if score and best.by_keys and len(self._shapes) < MAX_SHAPES:
            self._shapes[shape] = best
        return best
