"""Vector worlds to evaluate on: their density is a dial, and their answers are known.

A world's answers are known by construction, so that a promise can be checked on hundreds of streams.
Named presets: `workloads/eval-presets.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.errors import UsageError
from recall_cli.measure.evaluate.replay import Stream
from recall_cli.measure.workload import toml
from recall_cli.types import Vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

PRESETS = "eval-presets.toml"


@dataclass(frozen=True, slots=True)
class World:
    """How dense a world is, how it repeats itself and how it changes. Lists are taken in turn by namespaces."""

    name: str = "world"
    namespaces: int = 8
    queries: int = 7_000
    dims: int = 64
    intents: int = 60
    """Questions that recur, in each namespace."""
    zipf: float = 1.0
    """The r-th intent is asked in proportion to r ** -zipf."""
    one_offs: float = 0.15
    """Share of questions that nobody asks again."""
    repeats: float = 0.03
    """Share of questions that repeat an earlier text to the letter."""
    inter: tuple[float, ...] = (0.3,)
    """Cosine of two intents of a namespace."""
    intra: tuple[float, ...] = (0.85,)
    """Cosine of two wordings of an intent."""
    spread: float = 0.3
    """How much the wordings differ in their noise (sigma of its logarithm)."""
    twins: float = 0.15
    """Share of the intents with a near miss: another answer, asked as often."""
    twin_cosine: float = 0.8
    """Cosine of an intent and its near miss, before the noise of the wordings."""
    drift_at: float | None = None
    """Share of the stream after which every second namespace changes."""
    drift_noise: float = 1.25
    """Factor on the noise of wordings after the change."""
    drift_twins: float = 0.3
    """Share of the intents that gain a near miss by the change."""
    drift_stale: float = 1.0
    """Share of the intents whose answer changes: what is stored is wrong from then on."""
    false_alarm: float = 0.0
    """How often the comparator calls equal answers different."""
    missed: float = 0.0
    """How often it calls different answers equal."""

    def __post_init__(self) -> None:
        """Refuse worlds that cannot be."""
        for name in ("inter", "intra"):
            if not all(0 <= value < 1 for value in getattr(self, name)) or not getattr(self, name):
                raise UsageError(f"{name} must hold cosines from 0 to below 1", hint='for example "inter = [0.3, 0.6]"')
        if self.namespaces < 1 or self.queries < self.namespaces or self.dims < 2 or self.intents < 1:
            raise UsageError(
                "a world needs at least one namespace, a question for each, two dimensions and one intent",
                hint="leave them out for 8, 7000, 64 and 60",
            )
        for name in ("one_offs", "repeats", "twins", "drift_twins", "drift_stale", "false_alarm", "missed"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} must be a share from 0 to 1", hint="0.15 is 15 %")

    def stream(self, seed: int) -> Stream:
        """Return one stream of this world; the same seed gives the same one."""
        rng = np.random.default_rng(seed)
        namespace = rng.integers(self.namespaces, size=self.queries)
        vectors = np.empty((self.queries, self.dims), dtype=np.float32)
        answer = np.empty(self.queries, dtype=np.int64)
        first = 0
        for space in range(self.namespaces):
            members = np.flatnonzero(namespace == space)
            changed = np.zeros(len(members), dtype=bool)
            if self.drift_at is not None and space % 2 == 0:
                changed = members >= self.drift_at * self.queries
            vectors[members], answers = self._space(space, changed, rng)
            answer[members] = first + answers
            first += int(answers.max(initial=0)) + 1
        text = np.arange(self.queries)
        self._repeat(rng, namespace, vectors, answer, text)
        return Stream(
            self.name,
            tuple(f"ns{space}" for space in range(self.namespaces)),
            namespace,
            vectors,
            answer,
            text,
            self.false_alarm,
            self.missed,
        )

    def _space(self, space: int, changed: NDArray[np.bool_], rng: np.random.Generator) -> tuple[Vector, Ints]:
        """Return one namespace's questions and the numbers of their answers."""
        n = len(changed)
        inter, intra = self.inter[space % len(self.inter)], self.intra[space % len(self.intra)]
        middle = _unit(rng, 1, self.dims)
        centres = _near(rng, np.repeat(middle, self.intents, axis=0), np.sqrt(inter))
        twins = _near(rng, centres, self.twin_cosine)
        popularity = np.arange(1, self.intents + 1) ** -self.zipf
        intent = rng.choice(self.intents, size=n, p=popularity / popularity.sum())
        ranks = rng.permutation(self.intents)
        has_twin = ranks[intent] < self.twins * self.intents
        gains_twin = changed & (ranks[intent] < (self.twins + self.drift_twins) * self.intents)
        is_twin = (has_twin | gains_twin) & (rng.random(n) < 0.5)
        answer = 2 * intent + is_twin
        stale = changed & (rng.permutation(self.intents)[intent] < self.drift_stale * self.intents)
        answer = answer + stale * 2 * self.intents
        centre = np.where(is_twin[:, None], twins[intent], centres[intent])
        alone = rng.random(n) < self.one_offs
        answer[alone] = 4 * self.intents + np.arange(n)[alone]
        centre[alone] = _near(rng, np.repeat(middle, int(alone.sum()), axis=0), np.sqrt(inter))
        noise = (1 - intra) * np.exp(self.spread * rng.standard_normal(n)) * np.where(changed, self.drift_noise, 1.0)
        return _near(rng, centre, np.sqrt(np.clip(1 - noise, 0, 1))[:, None]).astype(np.float32), answer

    def _repeat(self, rng: np.random.Generator, namespace: Ints, vectors: Vector, answer: Ints, text: Ints) -> None:
        """Let some questions be an earlier one of their namespace again, to the letter."""
        again = rng.random(len(text)) < self.repeats
        pick = rng.random(len(text))
        for space in range(self.namespaces):
            members = np.flatnonzero(namespace == space)
            for i in np.flatnonzero(again[members]):
                if i:
                    row, source = members[i], members[int(pick[members[i]] * i)]
                    # Only a question whose answer still stands: a stale exact hit is no policy's doing.
                    if self.drift_at is None or source >= self.drift_at * self.queries:
                        vectors[row], answer[row], text[row] = vectors[source], answer[source], text[source]


def _unit(rng: np.random.Generator, n: int, dims: int) -> Floats:
    raw = rng.standard_normal((n, dims))
    units: Floats = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    return units


def _near(rng: np.random.Generator, centres: Floats, cosine: Any) -> Floats:
    """Return one unit vector a row whose cosine to the row's centre is exactly this."""
    aside = _unit(rng, len(centres), centres.shape[1])
    aside -= (aside * centres).sum(axis=1, keepdims=True) * centres
    aside /= np.linalg.norm(aside, axis=1, keepdims=True)
    near: Floats = cosine * centres + np.sqrt(1 - np.square(cosine)) * aside
    return near


def presets() -> dict[str, World]:
    """Return the worlds of `workloads/eval-presets.toml` by name."""
    return dict(_presets())


@cache
def _presets() -> dict[str, World]:
    return {name: world_of(name, table) for name, table in toml(PRESETS)["worlds"].items()}


def preset(name: str) -> World:
    """Return a named world. Raises UsageError when there is none."""
    found = presets()
    if name not in found:
        raise UsageError(
            f"there is no workload named {name!r}", hint=f"choose one of {', '.join(found)}, text-world or all"
        )
    return found[name]


def world_of(name: str, table: Mapping[str, Any]) -> World:
    """Return the world of a TOML table. Raises UsageError for a key it does not know."""
    known = {field.name for field in fields(World)} - {"name"}
    unknown = sorted(set(table) - known)
    if unknown:
        raise UsageError(f"world {name}: there is no setting {unknown[0]!r}", hint=f"known: {', '.join(sorted(known))}")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return World(name=name, **values)
