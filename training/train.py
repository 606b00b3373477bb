"""Fit a table of token vectors, twice: first to what a teacher says of sentences, then to what decides an answer.

Row i = exp(scale_i + raw_i . lean) * (raw_i @ turn + shift_i). `raw` are the teacher's own vectors of single tokens,
to unit length, and stay. `turn` and `lean` act on all tokens, also on those that no sentence holds; `scale` and
`shift` on one token each.
1. Distil: the sum of a sentence's rows points where the teacher's vector does, and two sentences are as near, above
   all those that the teacher puts beside each other (`model_neighbours`).
2. Weigh: scale, lean and shift, on groups of the text world. A paraphrase comes nearer than a trap, while the
   teacher's sentences hold everything else in place. So "not" and names gain weight, and "before" turns from "after".
   `tempered` then gives back what tokens lost, and lets numbers weigh more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.types import Progress
from training.teacher import LEAF, leaves
from training.torch_extra import optional

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

Ids = Sequence[Sequence[int]]

SMOOTHING = 5e5
"""Tokens of a text by Zipf's law that the corpus counts are mixed with: what it never holds is still rare."""
SIF = 1e-3
SEEN = 20_000
"""Sentences that the directions and the first turn are taken from: enough for 384 x 384 numbers."""
BATCH = 16
"""Leaves of neighbours a step."""
GROUPS = 128
HELD_OUT = 600
"""Sentences that no step sees: their mean cosine to the teacher says how far a fit has come."""
NEAR = 4.0
"""Weight of the error in the sentences' cosines to each other beside that of their own direction."""
NEIGHBOURS = 16.0
"""Weight of that error within the leaves, where no two sentences are strangers."""
PULL, HOLD = 3e-3, 0.3
"""Pull of the tokens' own shifts to 0 while distilling, for a token of few sentences keeps to the turn of all; and to
what was distilled while weighing."""
NUMBERS = 0.6
"""Added to the log of a number's weight: no sentence of a teacher turns on one, and few of the text world's own do."""
TEMPERATURE, MARGIN = 0.05, 0.05
"""Cosines within about the first count as a tie; a paraphrase should lead by the second."""


@dataclass(frozen=True, slots=True)
class Steps:
    """How long and how fast a stage learns; the rates fall to 0 in a straight line."""

    epochs: int = 3
    rate: float = 5e-4
    """Of what acts on all tokens."""
    token_rate: float = 1.5e-3
    weigh_steps: int = 500
    weigh_rate: float = 1e-3
    weigh_token_rate: float = 2e-3
    weigh_shift_rate: float = 5e-4


class TokenTable:
    """The rows while they are learned."""

    def __init__(self, raw: Floats, scale: Floats, turn: Floats) -> None:
        torch = self.torch = optional("torch")
        self.raw = torch.tensor(raw)
        self.scale = torch.tensor(scale[:, np.newaxis], requires_grad=True)
        self.shift = torch.zeros((len(raw), turn.shape[1]), requires_grad=True)
        self.turn = torch.tensor(turn, requires_grad=True)
        self.lean = torch.zeros(raw.shape[1], requires_grad=True)
        self.rest = torch.zeros_like(self.shift)
        """Where the shifts are pulled to."""

    def rows(self, tokens: Any) -> tuple[Any, Any]:
        """Return the rows of these tokens, and how far their shifts are from rest."""
        embedding = self.torch.nn.functional.embedding
        raw = self.raw[tokens]
        shift = embedding(tokens, self.shift, sparse=True)
        scale = embedding(tokens, self.scale, sparse=True) + (raw @ self.lean)[:, None]
        return self.torch.exp(scale) * (raw @ self.turn + shift), shift - self.rest[tokens]

    def pool(self, texts: Ids) -> tuple[Any, Any]:
        """Return the texts' unit vectors, and the mean squared departure of their tokens' shifts from rest."""
        torch = self.torch
        lengths = torch.tensor([len(ids) for ids in texts])
        tokens, place = torch.unique(torch.tensor([id for ids in texts for id in ids]), return_inverse=True)
        rows, shift = self.rows(tokens)
        owner = torch.repeat_interleave(torch.arange(len(texts)), lengths)
        sums = torch.zeros((len(texts), rows.shape[1])).index_add(0, owner, rows[place])
        return torch.nn.functional.normalize(sums, dim=1), (shift**2).sum() / len(tokens)

    def table(self) -> Floats:
        """Return all rows, shape (vocabulary, dims)."""
        with self.torch.no_grad():
            found: Floats = self.rows(self.torch.arange(len(self.raw)))[0].numpy()
        return found


@dataclass(frozen=True, slots=True)
class Lessons:
    """Sentences as token ids, none empty, and the teacher's vectors of them as float16."""

    ids: Ids
    vectors: NDArray[np.float16]

    @property
    def taught(self) -> int:
        """How many of them are learned from; the rest is held out."""
        return len(self.ids) - min(HELD_OUT, len(self.ids) // 10)


def start(raw: Floats, lessons: Lessons, dims: int) -> tuple[TokenTable, Floats]:
    """Return a table before the first step, and the directions that the teacher's vectors are reduced to."""
    seen = lessons.vectors[:SEEN].astype(np.float32)
    # Not centred: the sum of rows has no constant to put a mean into.
    directions: Floats = np.linalg.svd(seen.T @ seen)[0][:, :dims].astype(np.float32)
    unit = raw / np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1e-9)
    counts = np.bincount(np.concatenate([np.asarray(ids) for ids in lessons.ids]), minlength=len(raw))
    ranks = np.arange(10, len(raw) + 10)
    share = (counts + SMOOTHING / ranks / math.log(len(raw))) / (counts.sum() + SMOOTHING)
    scale = np.log(SIF / (SIF + share)).astype(np.float32)
    weighted = np.exp(scale)[:, np.newaxis] * unit
    sums = np.stack([weighted[np.asarray(ids)].sum(axis=0) for ids in lessons.ids[:SEEN]])
    sums /= np.linalg.norm(sums, axis=1, keepdims=True) + 1e-9
    square = sums.T @ sums + 1e-2 * np.eye(sums.shape[1], dtype=np.float32)
    turn: Floats = np.linalg.solve(square, sums.T @ (seen @ directions)).astype(np.float32)
    return TokenTable(unit.astype(np.float32), scale, turn), directions


class Trainer:
    """Both stages over one table. Each draws from a stream of its own: a build that goes on after one is the same."""

    def __init__(self, table: TokenTable, directions: Floats, lessons: Lessons, seed: int = 0) -> None:
        self.table, self.directions, self.lessons, self.seed = table, directions, lessons, seed
        self.torch = table.torch

    def distil(self, plan: Steps, step: Progress) -> None:
        """Learn what the teacher says of the sentences: scale, shift, turn and lean."""
        table, rng = self.table, np.random.default_rng([self.seed, 51])
        optimisers = self._optimisers(
            [([table.turn, table.lean], plan.rate)], [([table.scale, table.shift], plan.token_rate)]
        )
        each = max(1, self.lessons.taught // LEAF // BATCH)
        total = plan.epochs * each
        for epoch in range(plan.epochs):
            for done, batch in enumerate(np.array_split(self._leaves(rng), each), epoch * each):
                step(done, total, "sentences")
                self._step(optimisers, self._taught(batch, PULL), 1 - done / total)

    def weigh(self, groups: Sequence[Ids], plan: Steps, step: Progress) -> None:
        """Learn from groups of five (see `textworld_contrast`) what decides an answer: scale, lean and shift."""
        torch, table = self.torch, self.table
        rng = np.random.default_rng([self.seed, 52])
        table.turn.requires_grad_(False)
        table.rest = table.shift.detach().clone()
        optimisers = self._optimisers(
            [([table.lean], plan.weigh_rate)],
            [([table.scale], plan.weigh_token_rate), ([table.shift], plan.weigh_shift_rate)],
        )
        beside = self._leaves(rng)
        for done in range(plan.weigh_steps):
            step(done, plan.weigh_steps, "paraphrases and traps")
            loss = self._taught(beside[rng.integers(0, len(beside), BATCH)], HOLD)
            drawn = [groups[i] for i in rng.integers(0, len(groups), GROUPS).tolist()]
            vectors, _ = table.pool([group[side] for side in range(5) for group in drawn])
            asked, reworded, varied, trap, reworded_trap = vectors.view(5, len(drawn), -1)
            near = (asked * reworded).sum(1)
            gaps = (
                (asked * trap).sum(1) - near,
                (reworded * trap).sum(1) - near,
                (asked * trap).sum(1) - (asked * varied).sum(1),
                (asked * reworded_trap).sum(1) - near,
            )
            lead = sum(torch.nn.functional.softplus((gap + MARGIN) / TEMPERATURE).mean() for gap in gaps)
            # Strangers apart too, so that weight is not bought with the distance between topics.
            other = torch.nn.functional.cross_entropy(asked @ reworded.T / TEMPERATURE, torch.arange(len(drawn)))
            loss = loss + TEMPERATURE * (lead + 0.1 * other)
            self._step(optimisers, loss, 1 - done / plan.weigh_steps)

    def held_out_cosine(self) -> float:
        """Return the mean cosine to the teacher of the sentences that no step saw."""
        held = np.arange(self.lessons.taught, len(self.lessons.ids))
        with self.torch.no_grad():
            vectors, _ = self.table.pool([self.lessons.ids[i] for i in held.tolist()])
            return float((vectors * self._wanted(held)[1]).sum(1).mean())

    def _leaves(self, rng: np.random.Generator) -> NDArray[np.int64]:
        return leaves(self.lessons.vectors[: self.lessons.taught], rng)

    def _taught(self, beside: NDArray[np.int64], pull: float) -> Any:
        """Return the loss against the teacher over leaves of neighbours, shape (BATCH, LEAF)."""
        batch = beside.reshape(-1)
        vectors, moved = self.table.pool([self.lessons.ids[i] for i in batch.tolist()])
        whole, wanted = self._wanted(batch)
        apart = ((vectors @ vectors.T - whole @ whole.T) ** 2).mean()
        ours, theirs = (side.view(*beside.shape, -1) for side in (vectors, whole))
        within = ((ours @ ours.transpose(1, 2) - theirs @ theirs.transpose(1, 2)) ** 2).mean()
        return (1 - (vectors * wanted).sum(1)).mean() + NEAR * apart + NEIGHBOURS * within + pull * moved

    def _wanted(self, batch: NDArray[np.int64]) -> tuple[Any, Any]:
        """Return the teacher's vectors, whole and reduced to the table's dimensions."""
        whole = self.lessons.vectors[batch].astype(np.float32)
        torch = self.torch
        return torch.tensor(whole), torch.nn.functional.normalize(torch.tensor(whole @ self.directions), dim=1)

    def _optimisers(
        self, dense: list[tuple[list[Any], float]], sparse: list[tuple[list[Any], float]]
    ) -> list[tuple[Any, float]]:
        optim = self.torch.optim
        return [
            *((optim.Adam(parts, lr=rate), rate) for parts, rate in dense),
            *((optim.SparseAdam(parts, lr=rate), rate) for parts, rate in sparse),
        ]

    def _step(self, optimisers: list[tuple[Any, float]], loss: Any, left: float) -> None:
        for optimiser, rate in optimisers:
            optimiser.zero_grad()
            optimiser.param_groups[0]["lr"] = rate * left
        loss.backward()
        for optimiser, _ in optimisers:
            optimiser.step()


def tempered(before: Floats, after: Floats, numbers: NDArray[np.bool_]) -> Floats:
    """Return the weighed rows with what they gained in length, without what they lost; numbers gain `NUMBERS` as well.

    What decides an answer in the text world decides elsewhere too. What does not ("I", "how", "my" differ between the
    wordings of one question there) tells intents apart in other texts, so it keeps its weight.

    :param before: the distilled rows, and `after` the weighed ones, shape (vocabulary, dims).
    :param numbers: which tokens hold a digit, shape (vocabulary,).
    """
    old, new = (np.linalg.norm(rows, axis=1) for rows in (before, after))
    # A row of zeros stays one: the unknown token has no direction to weigh.
    lost = np.where(new > 0, old / np.maximum(new, 1e-9), 1.0)
    factor = np.maximum(lost, 1.0) * np.where(numbers, math.exp(NUMBERS), 1.0)
    found: Floats = (after * factor[:, np.newaxis]).astype(np.float32)
    return found
