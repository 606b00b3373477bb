"""What a watch leaves in its hub's folder each time it has looked, for whoever asks how fresh the hub is."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

FILE = "watch.json"


@dataclass(frozen=True, slots=True)
class Pulse:
    """A sign of life. Times are seconds since the epoch."""

    source: str
    """The watched folder."""
    looked: float
    refreshed: float | None = None
    """When something last changed in the hub."""
    lag_s: float | None = None
    """From an edit to its being searchable, at most: of the last refresh."""
    slowest_lag_s: float | None = None


def write_pulse(hub: Path, pulse: Pulse) -> None:
    """Leave a sign of life in a folder that is there; one that cannot be left is no reason to stop watching."""
    place = hub / FILE
    try:
        aside = place.with_suffix(f".{os.getpid()}")
        aside.write_bytes(orjson.dumps(asdict(pulse)))
        aside.replace(place)
    except OSError:
        pass


def read_pulse(hub: Path, *, now: float) -> dict[str, Any] | None:
    """Return the last sign of life with its age, JSON-ready; None when the hub was never watched."""
    try:
        pulse = Pulse(**orjson.loads((hub / FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    return {**asdict(pulse), "looked_ago_s": max(0.0, now - pulse.looked)}
