"""From log records to priced rows: which calls a cache could serve, which not and why, what each cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from blake3 import blake3

from recall_cli.core.request import DIGEST_BYTES, parse_body
from recall_cli.measure.prices import STANDARD_TIERS, Cost, PriceBook
from recall_cli.measure.replay import NO_TEXT, Call
from recall_cli.types import Bypass, Embedder, LogRecord, Request, Usage, Vector

if TYPE_CHECKING:
    from recall_cli.logs.pairs import Tally

EMBED_BATCH = 2048
"""Texts embedded at a time: enough to keep the embedder busy, few enough to hold no prompt for long."""

SAMPLED = "sampled"
"""Why a call is left out whose temperature is unset or above 0."""
FIRST_FLAWS = ("already_cached", "error", "no_answer", "answer_unreadable")
"""Flaws that come before what the request says: there was no answer of the model's to speak of."""


@dataclass(slots=True)
class Row:
    """One call of the log: what it cost, and either its cache keys or why it has none."""

    model: str
    provider: str
    start: float | None
    usage: Usage | None
    cost: Cost | None
    excluded: str
    """The reason no cache may serve or store it; "" for a cacheable call."""
    call: Call | None = None
    sampled: Call | None = None
    """What `call` would be if sampled calls were admitted; None unless that is all that keeps it out."""

    @property
    def unpriced(self) -> bool:
        """True when tokens were counted but the price table does not know the model."""
        return self.usage is not None and self.cost is None and self.excluded != "already_cached"


@dataclass(slots=True)
class Rows:
    """The rows of a log, in its order, with the vectors their calls point to."""

    rows: list[Row]
    vectors: Vector
    tally: Tally
    odd_tiers: int = 0
    undated: int = 0
    """Priced rows without a time: they are priced as of today."""
    sampled_admitted: int = 0
    """Cacheable rows that `allow_sampled` let in."""
    tenants: set[str] = field(default_factory=set)


def collect(
    records: Iterator[LogRecord], tally: Tally, *, embedder: Embedder, prices: PriceBook, allow_sampled: bool
) -> Rows:
    """Return every record as a row. Prompts are embedded on the way and not kept."""
    texts = _Texts(embedder)
    now = datetime.now(UTC).timestamp()
    found = Rows([], texts.vectors(), tally)
    models: dict[str, str] = {}
    for record in records:
        request = parse_body(record.provider, record.request, tenant=record.tenant)
        excluded = exclusion(record, request, allow_sampled=allow_sampled)
        cost = None
        # A call that a cache already answered cost nothing: it is neither spent nor to be saved.
        if record.usage is not None and record.flaw != "already_cached":
            when = now if record.start is None else record.start
            cost = prices.cost(record.provider, record.model, record.usage, when=when, tier=record.tier)
            found.undated += record.start is None
            found.odd_tiers += record.tier not in STANDARD_TIERS
        if record.tenant:
            found.tenants.add(record.tenant)
        # One string object a model, not one a row.
        model = models.setdefault(record.model, record.model)
        row = Row(model, record.provider, record.start, record.usage, cost, excluded)
        if isinstance(request, Request) and excluded in ("", SAMPLED):
            # What would have been sampled is only counted with exact keys: it needs no vector.
            text = NO_TEXT if request.exact_only or excluded else texts.add(request.text)
            digest = b"" if record.answer is None else _answer_digest(record.answer)
            line = int(record.source.rpartition(":")[2])
            call = Call(request.identity, request.partition, text, record.start, record.end, digest, line)
            if excluded:
                row.sampled = call
            else:
                row.call = call
                found.sampled_admitted += request.sampled
        found.rows.append(row)
    found.vectors = texts.vectors()
    return found


def exclusion(record: LogRecord, request: Request | Bypass, *, allow_sampled: bool) -> str:
    """Return why a call stays outside the cache. SAMPLED comes last: it counts what a flag would admit."""
    if record.flaw in FIRST_FLAWS:
        return record.flaw
    if isinstance(request, Bypass):
        return request.reason
    if record.flaw:
        return record.flaw
    return SAMPLED if request.sampled and not allow_sampled else ""


def _answer_digest(text: str) -> bytes:
    """Return a digest under which answers equal but for case and white space are one."""
    plain = " ".join(text.casefold().split())
    return blake3(plain.encode("utf-8", "surrogatepass")).digest(length=DIGEST_BYTES)


class _Texts:
    """Distinct texts, embedded batch by batch; afterwards only digests and vectors are held."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._row_of: dict[bytes, int] = {}
        self._waiting: list[str] = []
        self._done: list[Vector] = []

    def add(self, text: str) -> int:
        key = blake3(text.encode("utf-8", "surrogatepass")).digest(length=DIGEST_BYTES)
        row = self._row_of.get(key)
        if row is None:
            row = self._row_of[key] = len(self._row_of)
            self._waiting.append(text)
            if len(self._waiting) == EMBED_BATCH:
                self._flush()
        return row

    def vectors(self) -> Vector:
        import numpy as np

        if self._waiting:
            self._flush()
        return np.concatenate(self._done) if self._done else np.empty((0, self._embedder.dim), dtype=np.float32)

    def _flush(self) -> None:
        self._done.append(self._embedder.embed_many(self._waiting))
        self._waiting = []
