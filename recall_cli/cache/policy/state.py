"""The last few thousand decisions: what was seen, what was served, and what turned out right.

Plain byte buffers: a scalar is written in tens of nanoseconds, numpy reads them all without a copy,
and the saved state is the buffers themselves.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.cache.policy.prior import FIELDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

RIGHT, WRONG, UNKNOWN, UNSURE = 0, 1, 2, 3
WIDTH = len(FIELDS)
_COLUMNS = {"features": 4 * WIDTH, "spaces": 4, "propensities": 4, "labels": 1, "served": 1, "bins": 1}
"""Bytes a decision, column by column."""


class Ring:
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
    def load(cls, state: Mapping[str, Any], size: int) -> Ring:
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
