"""The state of the adaptive policy: the log of its last few thousand decisions, and one record a namespace.

The log is plain byte buffers: a scalar is written in tens of nanoseconds, numpy reads them all without a copy,
and the saved state is the buffers themselves. A namespace has its own deviations and alarms. The shared model is
refitted every hundred labels or so; when a namespace changes in between (answers go stale, a new topic of
look-alikes), its alarms ask for more audits, then raise its doubts at once.
"""

from __future__ import annotations

import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.cache.policy.risk_model import FIELDS, probability
from recall_cli.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

MAX_TARGET = 0.3
"""The alarm tests the target against three times it, which must stay below 1."""
ALARM_FACTOR = 3.0
WATCHFUL, WATCH_FROM = 5.0, 0.4
"""How many times as many hits are audited once a namespace's alarm, or its doubt, is this full.

Doubt costs nothing to raise and little to follow: audits settle it. Seeds 0-9, drift at 1 %: false hits of the
second half 1.16 % -> 0.96 % for 18 more audits in 7,000 questions.
"""
RETREAT = 2.0
"""By how much a namespace raises its logits when an alarm goes off."""
DOUBT_GOAL, DOUBT_REACH = 1.6, 2.0
"""How strongly misses must speak for odds three times the model's before the namespace retreats, and how far
above the cutoff (in logits) a miss still tells something of what is served below it.

Misses speak first when answers go stale: what lies just above the cutoff is labelled every time, what is
served once in twenty. Seeds 0-9, drift at 1 %: false hits of the second half 1.41 % without, 1.16 % with; a
lower goal or a wider reach costs real texts a tenth of their hits.
"""
MARGIN_DECAY = 0.5
"""What is left of a namespace's retreat after a refit, which has seen why it retreated."""

MOST_UNSURE = 0.5
"""Share of the answers to compare, of what would be served, that may stay unjudged."""
LEAST_COMPARED = 10
"""Comparisons from which that share is one. Until then a namespace with an unsure one is audited more often."""


@dataclass(frozen=True, slots=True)
class Promise:
    """At most `target` of the served semantic hits are wrong, at this confidence."""

    target: float
    confidence: float
    verify_sample: float
    """Share of hits that are audited."""

    def __post_init__(self) -> None:
        """Refuse a promise that cannot be made."""
        if not 0 < self.target <= MAX_TARGET:
            raise UsageError(
                f"the target false-hit rate must be above 0 and at most {MAX_TARGET}, not {self.target!r}",
                hint="0.01 means: at most 1 % of the served semantic hits may be wrong",
            )
        if not 0.5 <= self.confidence < 1:
            raise UsageError(
                f"the confidence must be at least 0.5 and below 1, not {self.confidence!r}", hint="0.9 is the default"
            )
        if not 0 < self.verify_sample <= 1:
            raise UsageError(
                f"the share of hits to verify must be above 0 and at most 1, not {self.verify_sample!r}",
                hint="without any verified hit nobody notices when the world changes: 0.05 is the default",
            )

    @property
    def goal(self) -> float:
        """The sum of evidence at which audits make a namespace retreat."""
        return math.log(1 / (1 - self.confidence))


@dataclass(slots=True)
class NamespaceState:
    """What is known of one namespace."""

    index: int
    level: float = 0.0
    slope: float = 0.0
    alarm: float = 0.0
    doubt: float = 0.0
    retreat: float = 0.0
    decisions: int = 0
    hits: int = 0
    audits: int = 0
    wrong: int = 0
    """Audited hits that were wrong."""
    told: int = 0
    """Decisions of the window that would be served and were found right or wrong."""
    unsure: int = 0
    """The same whose two answers could not be compared: each may be a wrong one."""

    @property
    def silent(self) -> bool:
        """Whether so much of what would be served cannot be judged that no promise holds: then nothing is served."""
        compared = self.told + self.unsure
        return compared >= LEAST_COMPARED and self.unsure > MOST_UNSURE * compared

    def propensity(self, promise: Promise) -> float:
        """Return the share of hits to audit now."""
        early = self.unsure > 0 and self.told + self.unsure < LEAST_COMPARED
        if early or self.alarm > WATCH_FROM * promise.goal or self.doubt > WATCH_FROM * DOUBT_GOAL:
            return min(1.0, WATCHFUL * promise.verify_sample)
        return promise.verify_sample

    def audited(self, promise: Promise, wrong: int) -> None:
        """Sum the evidence for "three times the target" against "the target", and retreat when it is strong."""
        self.audits += 1
        self.wrong += wrong
        a = promise.target
        step = math.log(ALARM_FACTOR if wrong else (1 - ALARM_FACTOR * a) / (1 - a))
        self.alarm = max(0.0, self.alarm + step)
        if self.alarm > promise.goal:
            self.retreat += RETREAT
            self.alarm = 0.0

    def missed(self, promise: Promise, z: float, limit: float, wrong: int) -> None:
        """Sum the evidence for "odds three times the model's" against "the model's", and retreat when it is strong.

        :param z: the model's logit of P(wrong) of the candidate that was not served.
        :param limit: the logit up to which it would have been served.
        """
        if z > limit + DOUBT_REACH:
            return
        q = max(probability(z), promise.target)
        self.doubt = max(0.0, self.doubt + wrong * math.log(ALARM_FACTOR) - math.log(1 + (ALARM_FACTOR - 1) * q))
        if self.doubt > DOUBT_GOAL:
            self.retreat += RETREAT
            self.doubt = 0.0


RIGHT, WRONG, UNKNOWN, UNSURE = 0, 1, 2, 3
WIDTH = len(FIELDS)
_COLUMNS = {"features": 4 * WIDTH, "spaces": 4, "propensities": 4, "labels": 1, "served": 1, "bins": 1}
"""Bytes a decision, column by column."""


class DecisionLog:
    """A fixed number of decisions; a new one takes the place of the oldest."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.next = 0
        """The ticket of the next decision."""
        self.features = bytearray(4 * WIDTH * size)
        self.spaces = bytearray(4 * size)
        self.propensities = bytearray(4 * size)
        self.labels = bytearray([UNKNOWN]) * size
        self.served = bytearray(size)
        self.bins = bytearray(size)
        # Bound once: looking the methods up costs as much as the writes.
        self.write_features = struct.Struct(f"{WIDTH}f").pack_into
        self.write_space = struct.Struct("i").pack_into
        self.write_propensity = struct.Struct("f").pack_into
        self.read_propensity = struct.Struct("f").unpack_from

    def __len__(self) -> int:
        return min(self.next, self.size)

    def slot(self, ticket: int) -> int | None:
        """Return where a decision is kept, None when the window has moved past it."""
        return ticket % self.size if self.next - self.size <= ticket < self.next and ticket >= 0 else None

    def x(self) -> Floats:
        """Return all features, shape (n, 10), in the order of the slots."""
        return np.frombuffer(self.features, np.float32).reshape(-1, WIDTH)[: len(self)].astype(np.float64)

    def column(self, name: str) -> NDArray[Any]:
        """Return a copy of the column "spaces", "propensities", "labels", "served" or "bins"."""
        kind = {"spaces": np.int32, "propensities": np.float32}.get(name, np.uint8)
        return np.frombuffer(getattr(self, name), kind)[: len(self)].copy()

    def put_column(self, name: str, values: NDArray[Any]) -> None:
        """Write a whole column, as long as the ring is now."""
        buffer = getattr(self, name)
        raw = values.astype({"spaces": np.int32}.get(name, np.uint8)).tobytes()
        buffer[: len(raw)] = raw

    def state(self) -> dict[str, Any]:
        """Return the buffers, JSON-ready."""
        n = len(self)
        return {"size": self.size, "next": self.next} | {
            name: b64encode(getattr(self, name)[: width * n]).decode() for name, width in _COLUMNS.items()
        }

    @classmethod
    def load(cls, state: Mapping[str, Any], size: int) -> DecisionLog:
        """Return a ring of this size with the latest saved decisions. Raises ValueError when it is damaged."""
        saved, ring = int(state["size"]), cls(size)
        held = min(int(state["next"]), saved)
        keep = min(held, size)
        # Oldest first, so that a ring of another size starts at slot 0.
        order = [(int(state["next"]) - keep + i) % saved for i in range(keep)]
        for name, width in _COLUMNS.items():
            raw = b64decode(state[name], validate=True)
            if len(raw) != width * held:
                raise ValueError(f"{name}: {len(raw)} bytes for {held} decisions")
            rows = np.frombuffer(raw, np.uint8).reshape(held, width)[order]
            getattr(ring, name)[: rows.size] = rows.tobytes()
        ring.next = keep
        return ring
