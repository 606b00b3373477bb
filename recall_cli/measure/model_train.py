"""Fit a table of token vectors, twice: first to what a teacher says of sentences, then to what decides an answer.

Row i = exp(scale_i + raw_i . lean) * (raw_i @ turn + shift_i). `raw` are the teacher's own vectors of single tokens,
to unit length, and stay. `turn` and `lean` act on all tokens, also on those that no sentence holds; `scale` and
`shift` on one token each.
1. Distil: the sum of a sentence's rows points where the teacher's vector does, and two sentences are as near.
2. Weigh: scale and lean alone, on groups of the text world. A paraphrase comes nearer than a trap, while the
   teacher's sentences hold everything else in place. So "not", digits and names gain weight; no direction moves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from recall_cli.measure.model_extra import optional
from recall_cli.types import Progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

Ids = Sequence[Sequence[int]]

SMOOTHING = 5e5
"""Tokens of a text by Zipf's law that the corpus counts are mixed with: what it never holds is still rare."""
SIF = 1e-3
SEEN = 20_000
"""Sentences that the directions and the first turn are taken from: enough for 384 x 384 numbers."""
BATCH = 256
GROUPS = 128
HELD_OUT = 600
"""Sentences that no step sees: their mean cosine to the teacher says how far a fit has come."""
NEAR = 4.0
"""Weight of the error in the sentences' cosines to each other beside that of their own direction."""
PULL = 3e-3
"""Pull of the tokens' own shifts to 0: a token of few sentences keeps to the turn of all."""
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


class TokenTable:
    """The rows while they are learned."""

    def __init__(self, raw: Floats, scale: Floats, turn: Floats) -> None:
        torch = self.torch = optional("torch")
        self.raw = torch.tensor(raw)
        self.scale = torch.tensor(scale[:, np.newaxis], requires_grad=True)
        self.shift = torch.zeros((len(raw), turn.shape[1]), requires_grad=True)
        self.turn = torch.tensor(turn, requires_grad=True)
        self.lean = torch.zeros(raw.shape[1], requires_grad=True)

    def rows(self, tokens: Any) -> tuple[Any, Any]:
        """Return the rows of these tokens, and their shifts."""
        embedding = self.torch.nn.functional.embedding
        raw = self.raw[tokens]
        shift = embedding(tokens, self.shift, sparse=True)
        scale = embedding(tokens, self.scale, sparse=True) + (raw @ self.lean)[:, None]
        return self.torch.exp(scale) * (raw @ self.turn + shift), shift

    def pool(self, texts: Ids) -> tuple[Any, Any]:
        """Return the texts' unit vectors, and the mean squared shift of the tokens in them."""
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
    """Both stages over one table."""

    def __init__(self, table: TokenTable, directions: Floats, lessons: Lessons, seed: int = 0) -> None:
        self.table, self.directions, self.lessons = table, directions, lessons
        self.torch = table.torch
        self.rng = np.random.default_rng([seed, 51])

    def distil(self, plan: Steps, step: Progress) -> None:
        """Learn what the teacher says of the sentences: scale, shift, turn and lean."""
        table, n = self.table, self.lessons.taught
        optimisers = self._optimisers([table.turn, table.lean], [table.scale, table.shift], plan.rate, plan.token_rate)
        total = plan.epochs * max(1, n // BATCH)
        order = np.concatenate([self.rng.permutation(n)[: max(1, n // BATCH) * BATCH] for _ in range(plan.epochs)])
        for done, batch in enumerate(np.array_split(order, total)):
            step(done, total, "sentences")
            self._step(optimisers, self._taught(batch), 1 - done / total)

    def weigh(self, groups: Sequence[Ids], plan: Steps, step: Progress) -> None:
        """Learn from groups of five (see `textworld_contrast`) how much each token weighs: scale and lean."""
        torch, table = self.torch, self.table
        table.turn.requires_grad_(False)
        table.shift.requires_grad_(False)
        optimisers = self._optimisers([table.lean], [table.scale], plan.weigh_rate, plan.weigh_token_rate)
        for done in range(plan.weigh_steps):
            step(done, plan.weigh_steps, "paraphrases and traps")
            loss = self._taught(self.rng.integers(0, self.lessons.taught, BATCH))
            drawn = [groups[i] for i in self.rng.integers(0, len(groups), GROUPS).tolist()]
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

    def _taught(self, batch: NDArray[np.int64]) -> Any:
        vectors, shift = self.table.pool([self.lessons.ids[i] for i in batch.tolist()])
        whole, wanted = self._wanted(batch)
        apart = ((vectors @ vectors.T - whole @ whole.T) ** 2).mean()
        return (1 - (vectors * wanted).sum(1)).mean() + NEAR * apart + PULL * shift

    def _wanted(self, batch: NDArray[np.int64]) -> tuple[Any, Any]:
        """Return the teacher's vectors, whole and reduced to the table's dimensions."""
        whole = self.lessons.vectors[batch].astype(np.float32)
        torch = self.torch
        return torch.tensor(whole), torch.nn.functional.normalize(torch.tensor(whole @ self.directions), dim=1)

    def _optimisers(
        self, dense: list[Any], sparse: list[Any], rate: float, token_rate: float
    ) -> list[tuple[Any, float]]:
        optim = self.torch.optim
        return [(optim.Adam(dense, lr=rate), rate), (optim.SparseAdam(sparse, lr=token_rate), token_rate)]

    def _step(self, optimisers: list[tuple[Any, float]], loss: Any, left: float) -> None:
        for optimiser, rate in optimisers:
            optimiser.zero_grad()
            optimiser.param_groups[0]["lr"] = rate * left
        loss.backward()
        for optimiser, _ in optimisers:
            optimiser.step()
