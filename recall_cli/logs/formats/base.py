"""What an adapter is: it knows its rows, and turns them into pairs of a request and a response."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

from recall_cli.types import Json, Usage

NO_TEXT = "no_text"
"""The flaw of a call whose log tells tokens or dollars, but not what was asked."""
HIDDEN = "hidden_prompt"
"""The flaw of a call whose log leaves out its system prompt and tools: nobody can tell whether two were equal."""


@dataclass(slots=True)
class Pair:
    """One call as an adapter found it, in its provider's words; `record.to_record` normalises it."""

    source: str
    request: Any = None
    response: Any = None
    """A body, the chunks or the text of a stream; None when the log has none."""
    row: Json = field(default_factory=dict)
    """Where times and tenants stand under their usual names (`spans.START`, `walls.TENANT`)."""
    uri: str = ""
    provider: str = ""
    """"openai" or "anthropic" when the adapter knows; else the bodies tell."""
    model: str = ""
    """Who answered, as the log names it; else the bodies tell."""
    usage: Any = None
    """Counts logged beside the response, in the words of any API."""
    counted: tuple[Usage, str] | None = None
    """Counts that the adapter normalised itself, and how it read them."""
    status: int | None = None
    cost: Decimal | None = None
    session: str = ""
    cached: bool = False
    """Whether a cache had already served it."""
    tier: str = ""
    finish: str = ""
    flaw: str = ""
    """What is wrong with it by the log's own word; one that the response shows comes first."""
    key: bytes = b""
    start: float | None = None
    """Seconds, when the row's usual names do not hold them."""


Found = Pair | str
"""A pair, or the reason why a row is none."""


class Adapter(ABC):
    """Reader of one format. A new one fills in `name`, `score` and `read`; the rest is for formats with a memory.

    One object reads one run: rows of several files may belong together.
    """

    name: ClassVar[str] = ""
    by_keys: ClassVar[bool] = False
    """Whether the score depends on a row's keys alone: then rows of equal keys need to be scored once."""

    @abstractmethod
    def score(self, row: Json) -> int:
        """Return how many keys of this format's own a row has, 0 when it cannot be one of its rows."""

    @abstractmethod
    def read(self, row: Json, source: str) -> Sequence[Found]:
        """Return what a row of any shape holds; nothing when it was kept, as a part of a call yet to come."""

    def end_file(self) -> Iterable[Found]:
        """Return what was kept and can only be complete now that its file is over."""
        return ()

    def end(self) -> Iterable[Found]:
        """Return what was kept and never completed."""
        return ()
