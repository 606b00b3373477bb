"""From log records to priced rows: which calls a cache could serve, which not and why, what each cost.

One pass, and nothing of it grows with the log: rows become columns, texts go to disk, each about once. Prompts that
differ in nothing anybody means (spaces, case, closing marks, the order of JSON keys) have one normal form. The sizes of
rows without token counts are held until all rows are read; then their counts are estimated and priced.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import orjson
from blake3 import blake3

from recall_cli.cache.request import parse_body, text_request
from recall_cli.logs.times import EPOCH_MIN, dated
from recall_cli.measure.columns import Columns, Names, Spool, Workspace, key64
from recall_cli.measure.pricing.book import STANDARD_TIERS, PriceBook
from recall_cli.measure.pricing.tokens import Estimator, input_text
from recall_cli.measure.savings.costs import Reconciliation
from recall_cli.types import Bypass, LogRecord, Request

if TYPE_CHECKING:
    from recall_cli.logs.report import ReadReport

OPENING = "\"'`“”‘’«»„‚¿¡"
CLOSING = ".,;:!?…。，；：！？、" + OPENING
"""What stands around a text. No brackets, signs or units: `c++`, `5 %` and `f(x)` end in what they say."""

_SPACES = b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f"
_FOLD = bytes.maketrans(_SPACES, b" " * len(_SPACES)).lower()


def folded(text: str) -> str:
    """Return the text in one case, with single spaces between its words and none around it."""
    if not text.isascii():
        return " ".join(text.casefold().split())
    # The same for ASCII at a fifth of the time: no list of words is made.
    raw = text.encode("ascii").translate(_FOLD)
    while b"  " in raw:
        raw = raw.replace(b"  ", b" ")
    return raw.decode("ascii").strip(" ")


def normal_text(text: str) -> str:
    """Return the text as its normalised key sees it; a text of marks alone stays as it is."""
    if text.startswith(("{", "[")):
        try:
            return orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS).decode()
        except ValueError:
            pass
    plain = folded(text)
    bare = plain.lstrip(OPENING + " ").rstrip(CLOSING + " ")
    if bare[-1:].isdigit() and "!" in plain[len(plain.rstrip(CLOSING + " ")) :]:
        # 5! is no 5.
        return plain
    return bare or plain


NAMES = ("counted", "input", "output", "priced", "cost_input", "cost_output", "cost_naive")
"""The columns of a row that its counts decide."""


class Uncounted:
    """Learns from rows with counts and holds rows without: some 30 bytes each."""

    def __init__(self, estimator: Estimator, reconciliation: Reconciliation) -> None:
        self.estimator = estimator
        self.reconciliation = reconciliation
        self._row, self._of = array("q"), array("l")
        self._input, self._output = array("d"), array("d")
        self._kinds: dict[tuple[str, str, str], int] = {}

    def see(self, record: LogRecord, row: int) -> None:
        """Look at a record that has an answer, and is the row-th of the log."""
        if record.usage is not None:
            if self.estimator.wants(record.model):
                self.estimator.learn(record.model, self._sizes(record), record.usage)
            return
        kind = (record.provider, record.model, record.tier)
        size_in, size_out = self._sizes(record)
        self._row.append(row)
        self._of.append(self._kinds.setdefault(kind, len(self._kinds)))
        self._input.append(size_in)
        self._output.append(size_out)

    def fill(self, columns: Columns, prices: PriceBook, *, now: float, pico: Decimal) -> None:
        """Give the rows their estimated counts and what those cost. All rows must have been seen."""
        if not self._row:
            return
        rows, start = np.array(self._row, dtype=np.int64), columns.read("start")
        kinds = list(self._kinds)
        values = {name: columns.read(name)[rows] for name in NAMES}
        for at, (row, of) in enumerate(zip(self._row, self._of, strict=True)):
            provider, model, tier = kinds[of]
            usage = self.estimator.fill(model, (self._input[at], self._output[at]))
            if usage is None:
                continue
            values["counted"][at], values["input"][at], values["output"][at] = True, usage.input, usage.output
            when = float(start[row]) if dated(start[row]) else now
            cost = prices.cost(provider, model, usage, when=when, tier=tier)
            if cost is not None:
                values["priced"][at] = True
                for name, amount in zip(NAMES[4:], (cost.input, cost.output, cost.naive), strict=True):
                    values[name][at] = int((amount * pico).to_integral_value())
        columns.amend(rows, values)

    def _sizes(self, record: LogRecord) -> tuple[float, float]:
        return self.estimator.count(input_text(record.request)), self.estimator.count(record.answer or "")


SAMPLED = "sampled"
"""Why a call is left out whose temperature is unset or above 0."""
FIRST_FLAWS = ("already_cached", "error", "no_answer", "answer_unreadable")
"""Flaws that come before what the request says: there was no answer of the model's to speak of."""
NO_TEXT = "no_text"
"""Why a call is left out whose prompt is not in the log, unless an opaque key of it is."""
OUT, IN, IF_SAMPLED = 0, 1, 2
"""Kinds of rows: no cache may serve it; one may; one might, were sampled calls admitted."""

PICO = Decimal(10) ** 12
"""Costs are whole trillionths of a dollar: at list prices a token costs thousands of them, and sums stay exact."""
MOST = 10**6 * 10**12
"""A million dollars. No call costs as much: counts that say so are wrong, and the call is one without a price."""

TURN = 16
"""Records read before they are taken up; few, for they may hold images. Code and data of both sides do not fit into a
processor's caches at once, and taking turns row by row costs a tenth of the time."""

SCHEMA = {
    "kind": "u1", "reason": "u2", "provider": "u4", "model": "u4", "tenant": "u4", "space": "u4", "source": "u4",
    "line": "u4", "group": "u8", "start": "f8", "end": "f8",
    "counted": "?", "input": "i8", "output": "i8", "cache_read": "i8",
    "priced": "?", "cost_input": "i8", "cost_output": "i8", "cost_naive": "i8",
    "exact": "u8", "normal": "u8", "partition": "u8", "text": "u8", "plain": "u8", "answer": "u8",
    "text_at": "i8", "answer_at": "i8", "size": "u4",
}  # fmt: skip
"""Columns of a row. `exact` and `normal` are keys within the walls, `text` and `plain` the same without any.

`partition` is 0 for a call that only an equal request may serve, `answer` is 0 where the log has none; `size` counts
the bytes of prompt and answer; `group` orders the namespaces by chance where only some of them are measured.
"""
NO_KEYS = (0, 0, 0, 0, 0, 0, -1, -1, 0)


@dataclass(slots=True)
class Rows:
    """The rows of a log, in its order."""

    columns: Columns
    texts: Spool
    answers: Spool
    tally: ReadReport
    reasons: Names = field(default_factory=Names)
    providers: Names = field(default_factory=Names)
    models: Names = field(default_factory=Names)
    tenants: Names = field(default_factory=Names)
    spaces: Names = field(default_factory=Names)
    """Number 0 of these, of tenants and of reasons is "": none."""
    sources: Names = field(default_factory=Names)
    odd_tiers: int = 0
    undated: int = 0
    """Priced rows without a day: they are priced as of today."""
    keyed: int = 0
    """Rows without text that a key tells apart: only an equal one can answer them."""
    relative: int = 0
    """Rows whose time counts from the start of a trace."""
    sampled_admitted: int = 0
    """Cacheable rows that `allow_sampled` let in."""
    absurd_costs: int = 0
    """Rows whose counts would cost more than any call does."""
    left_out: int = 0
    """Records outside the sample."""

    def __len__(self) -> int:
        return len(self.columns)


def collect(
    records: Iterator[LogRecord],
    tally: ReadReport,
    *,
    folder: Workspace,
    prices: PriceBook,
    allow_sampled: bool,
    uncounted: Uncounted | None = None,
    texts: bool = True,
    sample: float = 1.0,
) -> Rows:
    """Return every record as a row.

    :param uncounted: gets the rows without token counts, to estimate them, and the costs that the log says.
    :param texts: also keep prompts and answers, for tiers that look into them.
    :param sample: share of the namespaces (tenant, model, system prompt) to keep, with all of their rows.
    """
    found = Rows(Columns(SCHEMA, folder.path), folder.spool("texts"), folder.spool("answers"), tally)
    for names in (found.reasons, found.tenants, found.spaces):
        names.number("")
    now = datetime.now(UTC).timestamp()
    group, below = 0, int(sample * 2**64)
    for record in _in_turns(records):
        if sample < 1:
            group = _group(record)
            if group >= below:
                found.left_out += 1
                continue
        request = _request(record)
        excluded = exclusion(record, request, allow_sampled=allow_sampled)
        kind = OUT
        if isinstance(request, Request) and excluded in ("", SAMPLED):
            kind = IF_SAMPLED if excluded else IN
            found.sampled_admitted += kind == IN and request.sampled
        keys: tuple[int, ...] = NO_KEYS
        if kind != OUT and isinstance(request, Request):
            keys = _keys(record, request, found, texts and kind == IN)
        if uncounted is not None and record.answer is not None and excluded not in FIRST_FLAWS:
            uncounted.see(record, len(found))
        cost = _cost(record, found, prices, now)
        if uncounted is not None and record.cost is not None:
            uncounted.reconciliation.add(Decimal(cost[1] + cost[2]) / PICO if cost[0] else None, record.cost)
        start = _time(record.start)
        found.relative += start < EPOCH_MIN
        found.keyed += bool(record.key)
        source, _, line = record.source.rpartition(":")
        found.columns.append(
            (
                kind,
                found.reasons.number(excluded),
                found.providers.number(record.provider),
                found.models.number(record.model),
                found.tenants.number(record.tenant),
                found.spaces.number(request.namespace if isinstance(request, Request) else ""),
                found.sources.number(source),
                int(line),
                group,
                start,
                _time(record.end),
                *_usage(record),
                *cost,
                *keys,
            )
        )
    if uncounted is not None:
        uncounted.fill(found.columns, prices, now=now, pico=PICO)
    return found


def _in_turns(records: Iterator[LogRecord]) -> Iterator[LogRecord]:
    while turn := list(islice(records, TURN)):
        yield from turn


def _request(record: LogRecord) -> Request | Bypass:
    """Return the call's keys. A log without text may still tell equal prompts apart: those match exactly, or not."""
    if not record.key:
        return parse_body(record.provider, record.request, tenant=record.tenant)
    request = text_request(record.key.hex(), f"{record.provider}/{record.model}", tenant=record.tenant)
    request.exact_only = True
    return request


def _time(seconds: float | None) -> float:
    return float("nan") if seconds is None else seconds


def _usage(record: LogRecord) -> tuple[bool, int, int, int]:
    usage = record.usage
    return (False, 0, 0, 0) if usage is None else (True, usage.input, usage.output, usage.cache_read)


def _cost(record: LogRecord, found: Rows, prices: PriceBook, now: float) -> tuple[bool, int, int, int]:
    # A call that a cache already answered cost nothing: it is neither spent nor to be saved.
    if record.usage is None or record.flaw == "already_cached":
        return False, 0, 0, 0
    start = _time(record.start)
    when = start if dated(start) else now
    found.undated += when != start
    found.odd_tiers += record.tier not in STANDARD_TIERS
    cost = prices.cost(record.provider, record.model, record.usage, when=when, tier=record.tier)
    if cost is None:
        return False, 0, 0, 0
    # Decimals round half to even, here as everywhere.
    into, out, naive = round(cost.input * PICO), round(cost.output * PICO), round(cost.naive * PICO)
    if into + out > MOST or naive > MOST:
        found.absurd_costs += 1
        return False, 0, 0, 0
    return True, into, out, naive


def _keys(record: LogRecord, request: Request, found: Rows, texts: bool) -> tuple[int, ...]:
    """Return a cacheable row's keys, where its texts are, and the bytes of both."""
    identity, text = int.from_bytes(request.identity[:8], "little"), request.text
    answer, answer_at, size = 0, -1, _bytes(text)
    if record.answer is not None:
        answer = key64(folded(record.answer)) or 1
        size += _bytes(record.answer)
        if texts:
            answer_at = found.answers.add(record.answer)
    size = min(size, 2**32 - 1)
    if request.exact_only:
        # Nothing but an equal request may be served: all keys are the exact one.
        return identity, identity, 0, identity, identity, answer, -1, answer_at, size
    partition, plain = int.from_bytes(request.partition[:8], "little") or 1, key64(normal_text(text))
    at = found.texts.add(text) if texts else -1
    # Both halves are digests of their own: their XOR is as good as a digest of the two.
    return identity, partition ^ plain, partition, key64(text), plain, answer, at, answer_at, size


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def exclusion(record: LogRecord, request: Request | Bypass, *, allow_sampled: bool) -> str:
    """Return why a call stays outside the cache. SAMPLED comes last: it counts what a flag would admit."""
    if record.flaw in FIRST_FLAWS:
        return record.flaw
    if isinstance(request, Bypass):
        return record.flaw if record.flaw == NO_TEXT else request.reason
    if record.flaw and not (record.flaw == NO_TEXT and request.exact_only):
        return record.flaw
    return SAMPLED if request.sampled and not allow_sampled else ""


def _group(record: LogRecord) -> int:
    """Return where in 0..2**64 the row's tenant, model and system prompt fall: those that could ever meet, together."""
    body = record.request
    messages = body.get("messages")
    head = messages[0] if isinstance(messages, list) and messages else None
    system = head.get("content") if isinstance(head, dict) and head.get("role") in ("system", "developer") else None
    try:
        key = orjson.dumps([record.tenant, record.provider, body.get("model"), body.get("system"), system])
    except TypeError:
        key = repr((record.tenant, body.get("model"))).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake3(key).digest(length=8), "little")
