"""A cache over a store that other replicas write to as well.

Memory holds the partitions in use, whole and within a size, and the answers in use; the store holds everything. A
lookup that needs what is not in memory raises NotInMemory before anything is decided, so that neither an event loop nor
the lock that all lookups share ever waits for the database. `get` waits, and searches the other partitions in the
database.
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from recall_cli.cache.cache import Cache
from recall_cli.cache.entries import ByteLRU, EntryHistory
from recall_cli.cache.evidence.floor import UNREAD
from recall_cli.cache.index.auto import AutoIndex
from recall_cli.cache.policy.static import cosines
from recall_cli.cache.stores.memory import NotInMemory
from recall_cli.errors import StoreError
from recall_cli.postgres import lookup
from recall_cli.postgres.replication import Changes, Label, Pooled
from recall_cli.postgres.store import PostgresStore
from recall_cli.types import (
    Completion,
    Decision,
    Embedder,
    Entry,
    Evidence,
    Ids,
    Index,
    Lookup,
    Outcome,
    Policy,
    Request,
    Vector,
)

ENTRY_BYTES = 1_150
"""Memory of one entry beside its vector: its record, the maps that find it and the index's book (results/postgres.json:
2,100 to 2,200 bytes with a vector of 1,024)."""


class Held:
    """The partitions in memory, least recently used first. Not locked: its owner serialises calls."""

    def __init__(self, most: int, row_bytes: int) -> None:
        self.most_rows = max(1, most // row_bytes)
        self.rows = 0
        self._whole: OrderedDict[bytes, set[int]] = OrderedDict()
        self._coming: dict[bytes, set[int]] = {}
        """Partitions of which a part is here: they are kept up to date, but nothing is concluded from them."""

    def __len__(self) -> int:
        return len(self._whole)

    def use(self, partition: bytes) -> bool:
        """Return whether all of a partition is here; then it is the one used last."""
        if partition not in self._whole:
            return False
        self._whole.move_to_end(partition)
        return True

    def admits(self, partition: bytes) -> bool:
        """Return whether entries of this partition are to be kept."""
        return partition in self._whole or partition in self._coming

    def begin(self, partition: bytes) -> None:
        """Say that a partition is coming, part by part."""
        self._coming.setdefault(partition, set())

    def complete(self, partition: bytes) -> None:
        """Say that all of it is here."""
        self._whole[partition] = self._coming.pop(partition)

    def add(self, partition: bytes, id: int) -> None:
        """Count an entry."""
        ids = self._ids(partition)
        self.rows += id not in ids
        ids.add(id)

    def discard(self, partition: bytes, id: int) -> None:
        """Count an entry no more."""
        ids = self._ids(partition)
        self.rows -= id in ids
        ids.discard(id)

    def surplus(self) -> bytes | None:
        """Return the partition to give up next, None while all have room. The one used last stays."""
        return next(iter(self._whole)) if self.rows > self.most_rows and len(self._whole) > 1 else None

    def give_up(self, partition: bytes) -> list[int]:
        """Hold a partition no more; return its entries, which the caller is to forget."""
        ids = self._whole.pop(partition, None)
        if ids is None:
            ids = self._coming.pop(partition, set())
        self.rows -= len(ids)
        return list(ids)

    def all(self) -> list[bytes]:
        """Return every partition of which something is here."""
        return [*self._whole, *self._coming]

    def _ids(self, partition: bytes) -> set[int]:
        ids = self._whole.get(partition)
        return self._coming.get(partition, set()) if ids is None else ids


HELD_BYTES = 1 << 30
"""Bytes of partitions in memory unless told otherwise: some 490,000 entries of 256 dimensions."""
ANSWER_BYTES = 64 << 20
"""Bytes of answers and prompts kept in memory."""
STALE_S = 5.0
"""Seconds without news of the other replicas after which nothing is served from memory: what was deleted there must
not live on here."""
TRIES = 4
"""How often a lookup is tried again because an answer had to be brought first."""
LABELS = 10_000
"""Labels that wait for the database; of more the oldest are lost."""
SLICE = 500
"""Entries taken in while lookups wait: a millisecond's worth or so."""


class SharedCache(Cache):
    """One replica's cache. `follower.Follower` tells it what the others do.

    :param held_bytes: memory for partitions; one that does not fit is searched in the database.
    """

    def __init__(
        self,
        *,
        embedder: Embedder,
        policy: Policy,
        store: PostgresStore,
        make_index: Callable[[int], Index] = AutoIndex,
        ttl: float | None = None,
        vetoes: frozenset[str] | None = None,
        later: Callable[[Callable[[], None]], object] | None = None,
        held_bytes: int = HELD_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.shared = store
        self.replica = uuid.uuid4().hex
        self.held = Held(held_bytes, 4 * embedder.dim + ENTRY_BYTES)
        self.labels: deque[Label] = deque(maxlen=LABELS)
        """Labels that the other replicas have not been told of."""
        self.heard = time.monotonic()
        """When the other replicas' changes were last taken in."""
        self.want: Callable[[bytes], None] = lambda partition: None
        """Called with a partition that a lookup found not to be in memory."""
        self.leave: Callable[[], None] = lambda: None
        """Ends the following, once the last write is made."""
        self._answers: ByteLRU[tuple[bytes, Completion, str]] = ByteLRU(ANSWER_BYTES, _answer_size)
        """(identity, completion, prompt) of the entries in use."""
        super().__init__(
            embedder=embedder, policy=policy, store=store, make_index=make_index, ttl=ttl, vetoes=vetoes, later=later,
            clock=clock,
        )  # fmt: skip

    def get(self, request: Request) -> Lookup:
        """Return the stored answer of an equal or close enough request, or a miss with its vector; may wait."""
        for _ in range(TRIES):
            try:
                return super().get(request)
            except NotInMemory as absent:
                if absent.id is None:
                    return self._elsewhere(request)
                self._bring(absent.id)
        return Lookup(Decision(Outcome.MISS, reason="cache_fault"))

    def exact(self, request: Request) -> Lookup | None:
        """Return the hit on the request's identity, or None. Raises NotInMemory when memory cannot tell."""
        if time.monotonic() - self.heard > STALE_S:
            raise StoreError(
                f"nothing was heard of the other replicas for {STALE_S:g} s", hint="check the database and the network"
            )
        found = super().exact(request)
        if found is None:
            self._need(request.partition)
        return found

    def match(self, request: Request, vector: Vector) -> Lookup:
        """Search the request's partition and decide. Raises NotInMemory when it or the nearest answer is elsewhere."""
        self._need(request.partition)
        return super().match(request, vector)

    def weigh(self, text: str, ids: Ids, similarities: Vector) -> Evidence:
        """Return the evidence of the nearest. Raises NotInMemory before a policy counts a decision it cannot take."""
        if self.checks.weighs_texts and int(ids[0]) not in self._answers:
            raise NotInMemory(int(ids[0]))
        return super().weigh(text, ids, similarities)

    def stored(self, request: Request) -> Lookup | None:
        """Return the hit on the request's identity as the database has it, ahead of memory by a moment; may wait."""
        now = self._clock()
        known = lookup.find(self.shared, request.identity, now)
        if known is None:
            return None
        self._note_use(known[0], now)
        return Lookup(Decision(Outcome.EXACT, 1.0, None, known[0]), known[1])

    def observe(self, request: Request, found: Lookup, *, same: bool | None) -> bool:
        """Take in what a fresh answer says of the nearest candidate's, and let the other replicas know."""
        entry, evidence = found.decision.entry, found.evidence
        if same is not None and entry is not None and evidence is not None:
            served, propensity = found.decision.outcome is Outcome.SEMANTIC, 1.0
            if self.policy.learns:
                served, propensity = cast(Pooled, self.policy).drawn(evidence.ticket)
            self.labels.append(Label(self.replica, entry, request.namespace, evidence, same, served, propensity))
        return super().observe(request, found, same=same)

    def delete(self, ids: list[int]) -> int:
        """Forget entries by id, here and on all replicas; return how many there were."""
        with self._writing:
            gone = self.shared.remove(ids)
            with self._lock:
                for id in ids:
                    self._forget(id)
        return gone

    def close(self) -> None:
        """Flush, stop following and release the store."""
        try:
            self.flush()
        finally:
            self.leave()
            self.store.close()

    def take_in(self, changes: Changes) -> None:
        """Follow what the other replicas did. Called by one thread."""
        if changes.broken:
            self.let_go()
        with self._lock:
            fresh = [
                entry for entry in changes.entries if self.held.admits(entry.partition) and entry.id not in self._shelf
            ]
        if fresh:
            self.hold(lookup.with_vectors(self.shared, fresh))
        with self._lock:
            for id in changes.gone:
                self._forget(id)
        for label in changes.labels:
            if label.replica != self.replica:
                self._adopt(label, counts=not changes.broken)
        self.heard = time.monotonic()

    def hold(self, rows: Sequence[tuple[Entry, Vector | None]]) -> None:
        """Take entries into memory whose partitions are held."""
        for at in range(0, len(rows), SLICE):
            with self._lock:
                self._publish([row for row in rows[at : at + SLICE] if row[0].id not in self._shelf])

    def complete(self, partition: bytes) -> None:
        """Say that all of a partition is here; give up those that were not used for longest, until the rest fits."""
        with self._lock:
            self.held.complete(partition)
        while (surplus := self.held.surplus()) is not None:
            self.abandon(surplus)

    def abandon(self, partition: bytes) -> None:
        """Hold a partition no more."""
        with self._lock:
            ids = self.held.give_up(partition)
            self._indexes.pop(partition, None)
        for at in range(0, len(ids), SLICE):
            with self._lock:
                for id in ids[at : at + SLICE]:
                    self._forget(id)

    def let_go(self) -> None:
        """Hold nothing any more."""
        for partition in self.held.all():
            self.abandon(partition)

    def _need(self, partition: bytes) -> None:
        with self._lock:
            if not self.held.use(partition):
                raise NotInMemory

    def _elsewhere(self, request: Request) -> Lookup:
        """Look a request up in the database, and ask for its partition to be held from now on."""
        self.want(request.partition)
        stored = self.stored(request)
        if stored is not None:
            return stored
        if request.exact_only or not self.checks.by_meaning:
            return Lookup(Decision(Outcome.MISS, reason="exact_only"))
        if not self._reads(request.text):
            return Lookup(Decision(Outcome.MISS, reason=UNREAD))
        vector = self.embedder.embed(request.text)
        if not vector.any():
            return Lookup(Decision(Outcome.MISS, reason="no_known_token"), vector=vector)
        near = lookup.nearest(self.shared, request.partition, vector, self._candidates, self._clock())
        if not near:
            return Lookup(Decision(Outcome.MISS, reason="empty_partition"), vector=vector)
        witness = EntryHistory({one.entry.id: one.text for one in near}.get)
        for one in near:
            entry = one.entry
            witness.join(entry.id, entry.id if entry.group is None else entry.group, entry.labels, entry.wrong)
        evidence = self._weigh_near(request.text, near, witness)
        found = self._decide(request, vector, near[0].entry.id, evidence, witness, self._fetch)
        return found or Lookup(Decision(Outcome.MISS, reason="empty_partition"), vector=vector)

    def _weigh_near(self, text: str, near: Sequence[lookup.Near], witness: EntryHistory) -> Evidence:
        """Return the evidence of the first of the neighbours that the database found."""
        ids, similarities = [one.entry.id for one in near], [one.similarity for one in near]
        if not self.checks.weighs_texts:
            return super().weigh(text, np.array(ids), np.array(similarities, np.float32))
        return witness.evidence(text, ids, cosines(similarities))

    def _bring(self, id: int) -> None:
        row = lookup.bring(self.shared, id)
        with self._lock:
            if row is None:
                self._forget(id)
            else:
                self._answers.keep(id, row)

    def _adopt(self, label: Label, *, counts: bool) -> None:
        if self.policy.learns:
            cast(Pooled, self.policy).adopt(
                label.namespace, label.evidence, same=label.same, served=label.served, propensity=label.propensity
            )
        with self._lock:
            if counts and label.entry in self._shelf:
                self._witness.judge(label.entry, same=label.same)

    def _persist_labels(self, records: Mapping[int, tuple[int, int, int]]) -> None:
        """Do nothing: labels go by the follower, and are rows that no replica overwrites."""

    def _note_use(self, id: int, now: float) -> None:
        with self._lock:
            self._used[id] = now

    def _fetch(self, id: int) -> Completion | None:
        """Return the answer of an entry that a search of the database found, and mark it used."""
        row = lookup.bring(self.shared, id)
        if row is None:
            return None
        self._note_use(id, self._clock())
        return row[1]

    def _read(self, id: int, identity: bytes) -> Completion | None:
        kept = self._answers.get(id)
        if kept is None:
            raise NotInMemory(id)
        return kept[1] if kept[0] == identity else None

    def _text(self, id: int) -> str | None:
        kept = self._answers.get(id)
        if kept is None:
            raise NotInMemory(id)
        return kept[2]

    def _publish(self, made: Sequence[tuple[Entry, Vector | None]]) -> None:
        mine = [row for row in made if self.held.admits(row[0].partition)]
        super()._publish(mine)
        for entry, _ in mine:
            self.held.add(entry.partition, entry.id)

    def _forget(self, id: int) -> None:
        entry = self._shelf.get(id)
        if entry is not None:
            self.held.discard(entry.partition, id)
        self._answers.forget(id)
        super()._forget(id)

    def _shrink(self, now: float) -> None:
        """Forget what has expired; the store's own upkeep deletes it, once for all replicas."""
        with self._lock:
            while (id := self._shelf.surplus(now)) is not None:
                self._forget(id)

    def _rehydrate(self) -> None:
        """Start with nothing in memory: partitions come as they are asked for, and labels by the feed."""
        # Of a store that was kept in a file before; no replica writes it, so none overwrites another's.
        state = self.store.saved("policy") if self.policy.learns else None
        if state is not None:
            self.policy.load(state)


def _answer_size(row: tuple[bytes, Completion, str]) -> int:
    _, completion, text = row
    return len(completion.body) + len(text)
