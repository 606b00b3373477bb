"""The cache: exact identity -> embed -> nearest neighbour in the partition -> serve or not.

`Cache.get` is the hot path; `Cache.exact` and `Cache.match` are its two halves, public so that
`recall bench` can time them apart. A miss returns the vector and `put` takes it: a text is embedded once.
Writes to the store are deferred until the lookups' lock is free.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from recall_cli.cache.decision import HitChecks, decide, learn
from recall_cli.cache.embed.registry import reads
from recall_cli.cache.entries import EntryHistory, EntryTable
from recall_cli.cache.evidence.floor import UNREAD
from recall_cli.cache.index.auto import AutoIndex
from recall_cli.cache.index.exact import checked_query, no_answer
from recall_cli.cache.policy.static import cosine, cosines
from recall_cli.cache.stores.memory import MemoryStore, entry_size
from recall_cli.errors import StoreError, UsageError
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
    Put,
    Request,
    Store,
    Vector,
)

_log = logging.getLogger(__name__)


class DeferredWrites:
    """Writes to the store that lookups cause: deletions of expired entries, times of use.

    :param later: called with each write instead of making it here; a server hands them to a thread.
    """

    def __init__(self, later: Callable[[Callable[[], None]], object] | None) -> None:
        self._later = later
        self._changes: deque[Callable[[], None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._changes)

    def add(self, change: Callable[[], None]) -> None:
        """Queue a write. May be called while holding the lookups' lock, which writers take second."""
        self._changes.append(change)

    def settle(self) -> None:
        """Make the queued writes, or hand them on. Call it without holding the lookups' lock."""
        while self._changes:
            try:
                change = self._changes.popleft()
            except IndexError:
                return  # another thread was quicker
            if self._later is None:
                _write(change)
            else:
                self._later(partial(_write, change))


def _write(change: Callable[[], None]) -> None:
    """Write to the store. A failure is logged and not raised, since the lookup already has its answer."""
    try:
        change()
    except StoreError as error:
        _log.warning("the store was read but could not be written: %s", error)


def check_ttl(ttl: float | None) -> float | None:
    """Return the lifetime. Raises UsageError when it is not above 0."""
    if ttl is not None and not ttl > 0:
        raise UsageError(f"ttl must be above 0, not {ttl}", hint="leave ttl out for no limit")
    return ttl


def prepared(put: Put, embedder: Embedder, ttl: float | None) -> Put:
    """Return a put as it is to be stored, with a vector only where the entry may be found by meaning.

    :param ttl: seconds that an entry lives whose put names no lifetime.
    """
    lifetime = check_ttl(ttl if put.ttl is None else put.ttl)
    vector = put.vector
    if put.request.exact_only:
        vector = None
    elif not reads(embedder)(put.request.text):
        vector = None  # a text that was not read must not be found by meaning
    elif vector is None:
        vector = embedder.embed(put.request.text)
    if vector is not None:
        vector = checked_query(vector, embedder.dim, 1)
    return Put(put.request, put.completion, vector, lifetime, put.like)


TOUCH_BATCH = 1_000
"""Times of use that are collected before they are persisted in one transaction."""


class Cache:
    """Answers prompts from stored completions. Safe to call from several threads.

    :param make_index: called with the embedder's dim for each new partition.
    :param ttl: seconds an entry lives from `put`; None keeps it until it is evicted. A hit does not
        renew it, so a wrong answer cannot live for ever by being served.
    :param max_entries: evict the least recently used entry beyond this many.
    :param max_bytes: the same by bytes of bodies, prompts and vectors.
    :param vetoes: checks of the evidence that forbid a semantic hit by themselves, see `cache.evidence.evidence`. None:
        all of them under a static policy, none under one that weighs them itself. The floor (`cache.evidence.floor`)
        always applies.
    :param later: called with each write to the store that a lookup causes (expired entries, times of use). By default
        it is made at once; a server hands it to a thread, so that no lookup waits for the disk.
    """

    def __init__(
        self,
        *,
        embedder: Embedder,
        policy: Policy,
        store: Store | None = None,
        make_index: Callable[[int], Index] = AutoIndex,
        ttl: float | None = None,
        max_entries: int | None = None,
        max_bytes: int | None = None,
        vetoes: frozenset[str] | None = None,
        later: Callable[[Callable[[], None]], object] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.embedder = embedder
        self.policy = policy
        self.store: Store = store if store is not None else MemoryStore(embedder.dim)
        self.ttl = check_ttl(ttl)
        self.checks = HitChecks(embedder, policy, vetoes)
        self._reads, self._learns = self.checks.floor.reads, policy.learns
        self._candidates = max(policy.candidates, 1)
        self._make_index = make_index
        self._clock = clock
        self._lock = threading.RLock()
        # Writers hold this lock while they wait for the disk, so that lookups need not wait for it.
        self._writing = threading.RLock()
        self._shelf = EntryTable(max_entries, max_bytes)
        self._indexes: dict[bytes, Index] = {}
        self._used: dict[int, float] = {}
        self._owed = DeferredWrites(later)
        self._witness = EntryHistory(self._text)
        self._rehydrate()

    def __len__(self) -> int:
        return len(self._shelf)

    @property
    def size_bytes(self) -> int:
        """Bytes of all retained bodies, prompts and vectors."""
        return self._shelf.size_bytes

    def get(self, request: Request) -> Lookup:
        """Return the stored answer of an equal or close enough request, or a miss with its vector."""
        found = self.exact(request)
        if found is not None:
            return found
        if request.exact_only or not self.checks.by_meaning:
            return Lookup(Decision(Outcome.MISS, reason="exact_only"))
        return self.match(request, self.embedder.embed(request.text))

    def exact(self, request: Request) -> Lookup | None:
        """Return the hit on the request's identity, or None."""
        id = self._shelf.by_identity.get(request.identity)
        if id is None:
            return None
        with self._lock:
            completion = self._use(id)
        if self._owed:
            self._owed.settle()
        if completion is None:
            return None
        return Lookup(Decision(Outcome.EXACT, 1.0, None, id), completion)

    def match(self, request: Request, vector: Vector) -> Lookup:
        """Search the request's partition for the vector and decide: a semantic hit, or a miss."""
        text = request.text
        # An unread text in ASCII is rare, and looking at its words is a twentieth of a lookup: under a fixed cutoff the
        # checks do it, where something is near, and `put` does.
        if (self._learns or not text.isascii()) and not self._reads(text):
            return Lookup(Decision(Outcome.MISS, reason=UNREAD))
        # The first element is almost never 0, and testing it costs a twentieth of any().
        if not vector[0] and not vector.any():
            return Lookup(Decision(Outcome.MISS, reason="no_known_token"), vector=vector)
        found = self._match(request, vector)
        if self._owed:
            self._owed.settle()
        return found

    def _match(self, request: Request, vector: Vector) -> Lookup:
        with self._lock:
            while True:
                index = self._indexes.get(request.partition)
                ids, similarities = no_answer() if index is None else index.search(vector, self._candidates)
                if not len(ids):
                    reason = "empty_partition" if self._reads(request.text) else UNREAD
                    return Lookup(Decision(Outcome.MISS, reason=reason), vector=vector)
                evidence = self.weigh(request.text, ids, similarities)
                found = self._decide(request, vector, int(ids[0]), evidence, self._witness, self._use)
                if found is not None:
                    return found
                # The nearest one had expired and is gone now: the next nearest may still serve.

    def _decide(
        self,
        request: Request,
        vector: Vector,
        id: int,
        evidence: Evidence,
        witness: EntryHistory,
        use: Callable[[int], Completion | None],
    ) -> Lookup | None:
        """Return what the nearest entry makes of a lookup; None when it was to be served, but `use` finds it gone."""
        similarity, text, checks = evidence.similarity, request.text, self.checks
        choice = decide(self.policy, request.namespace, evidence, lambda: checks.check(text, id, evidence, witness))
        if not choice.serve:
            decision = Decision(Outcome.MISS, similarity, choice.cutoff, id, choice.reason)
            return Lookup(decision, vector=vector, evidence=choice.evidence)
        completion = use(id)
        if completion is None:
            return None
        decision = Decision(Outcome.SEMANTIC, similarity, choice.cutoff, id)
        return Lookup(decision, completion, vector, choice.evidence, choice.audit)

    def weigh(self, text: str, ids: Ids, similarities: Vector) -> Evidence:
        """Return the evidence of the nearest entry, as far as the policy looks at it.

        :param ids: what the partition's index found, best first: one or more.
        """
        if not self.checks.weighs_texts:
            return Evidence(cosine(float(similarities[0])))
        return self._witness.evidence(text, ids.tolist(), cosines(similarities.tolist()))

    def put(
        self,
        request: Request,
        completion: Completion,
        vector: Vector | None = None,
        *,
        ttl: float | None = None,
        like: int | None = None,
    ) -> int | None:
        """Store an answer and return its entry id; None when it alone exceeds `max_bytes`.

        An older answer of the same identity is gone in either case.

        :param vector: the one `get` returned with the miss; without it the text is embedded here.
            Raises ValueError when it is no unit vector of the embedder's dim.
        :param ttl: seconds this entry lives, instead of the cache's.
        :param like: an entry whose answer was found to say the same: both are of one group.
        """
        return self.put_many([Put(request, completion, vector, ttl, like)])[0]

    def put_many(self, puts: Sequence[Put]) -> list[int | None]:
        """Store several answers in one write of the store; return their entry ids as `put` does.

        Of two with the same identity the later one stays. A store that fails has kept none.
        """
        ready = [prepared(put, self.embedder, self.ttl) for put in puts]
        latest = {put.request.identity: at for at, put in enumerate(ready)}
        now = self._clock()
        made: list[tuple[int, Put, Entry]] = []
        with self._writing:
            largest = self._shelf.max_bytes
            gone = []
            # The store first: it replaces the old row in the same transaction, or fails and nothing has changed.
            with self.store.batch():
                for at, put in enumerate(ready):
                    if latest[put.request.identity] != at:
                        continue
                    if largest is not None and entry_size(put.request, put.completion, put.vector) > largest:
                        old = self._shelf.by_identity.get(put.request.identity)
                        gone += [] if old is None else [old]
                        continue
                    expires = None if put.ttl is None else now + put.ttl
                    entry = self.store.append(
                        put.request,
                        put.completion,
                        put.vector,
                        created=now,
                        expires=expires,
                        group=self._group(put.like),
                    )
                    made.append((at, put, entry))
            self._drop(gone)
            with self._lock:
                self._publish([(entry, put.vector) for _, put, entry in made])
            self._shrink(now)
        ids: list[int | None] = [None] * len(ready)
        for at, _, entry in made:
            ids[at] = entry.id
        return ids

    def _publish(self, made: Sequence[tuple[Entry, Vector | None]]) -> None:
        """Make entries that the store has acknowledged visible to lookups."""
        rows: dict[bytes, tuple[list[int], list[Vector]]] = {}
        for entry, vector in made:
            old = self._shelf.by_identity.get(entry.identity)
            if old is not None:
                self._forget(old)
            self._shelf.keep(entry)
            self._witness.join(entry.id, entry.id if entry.group is None else entry.group, entry.labels, entry.wrong)
            if vector is not None:
                ids, vectors = rows.setdefault(entry.partition, ([], []))
                ids.append(entry.id)
                vectors.append(vector)
        for partition, (ids, vectors) in rows.items():
            self._open_index(partition).add(np.array(ids, dtype=np.int64), np.stack(vectors))

    def learn(self, request: Request, found: Lookup, fresh: Completion, *, same: bool | None) -> int | None:
        """Take in a fresh answer to a miss, or to a hit that was checked; return the id of the entry that has it.

        :param same: whether the fresh answer says what the nearest candidate's does; None: nobody could
            tell. That is no label, and it counts against a namespace where it is most of what is found.
        """
        if not self.observe(request, found, same=same):
            return found.decision.entry
        return self.put(request, fresh, found.vector, like=found.decision.entry if same else None)

    def observe(self, request: Request, found: Lookup, *, same: bool | None) -> bool:
        """Take in what a fresh answer says of the nearest candidate's; return whether the fresh one is to be stored."""
        entry = found.decision.entry
        served = found.decision.outcome is not Outcome.MISS
        learned = learn(self.policy, request.namespace, found.evidence, served=served, same=same)
        if learned.counts and entry is not None:
            with self._lock:
                if entry in self._shelf:
                    self._witness.judge(entry, same=same is True)
        return learned.stores

    def index_of(self, partition: bytes) -> Index | None:
        """Return the index of a partition, None when it holds no vector."""
        return self._indexes.get(partition)

    def delete(self, ids: list[int]) -> int:
        """Delete entries by id; return how many existed."""
        with self._writing:
            return self._drop([id for id in dict.fromkeys(ids) if id in self._shelf])

    def flush(self) -> None:
        """Persist what has been collected: times of use, labels, the policy's state."""
        with self._writing:
            with self._lock:
                used, self._used = self._used, {}
                judged, self._witness.judged = self._witness.judged, set()
                records = self._witness.records(judged)
            try:
                if used:
                    self.store.touch(used)
                    used = {}
                if judged:
                    self._persist_labels(records)
            except StoreError:
                with self._lock:  # for the next time
                    self._used = used | self._used
                    self._witness.judged |= judged
                raise

    def _persist_labels(self, records: Mapping[int, tuple[int, int, int]]) -> None:
        self.store.learn(records)
        if self.policy.learns:
            self.store.save("policy", self.policy.state())

    def close(self) -> None:
        """Flush and release the store."""
        self.flush()
        self.store.close()

    def _use(self, id: int) -> Completion | None:
        """Mark an entry used and return its answer. Drop it and return None when it is stale.

        A store that cannot be written to (locked, full, read-only) does not cost the caller the answer.
        """
        entry = self._shelf.get(id)
        if entry is None:
            return None
        now = self._clock()
        completion = None
        if entry.is_fresh(now):
            completion = self._read(id, entry.identity)
        if completion is None:
            self._forget(id)
            self._owed.add(lambda: self.store.delete([id]))
            return None
        self._shelf.use(id)
        grew = id not in self._used
        self._used[id] = now
        # Only when an id was added: otherwise a locked store would be tried again at every hit.
        if grew and len(self._used) % TOUCH_BATCH == 0:
            self._owed.add(self.flush)
        return completion

    def _group(self, like: int | None) -> int | None:
        with self._lock:
            return self._witness.group(like) if like is not None and like in self._shelf else None

    def _read(self, id: int, identity: bytes) -> Completion | None:
        return self.store.get(id, identity)

    def _text(self, id: int) -> str | None:
        return self.store.text(id)

    def _drop(self, ids: list[int]) -> int:
        """Delete entries from the store, then from memory: a store that fails leaves both as they were."""
        if ids:
            self.store.delete(ids)
        with self._lock:
            for id in ids:
                self._forget(id)
        return len(ids)

    def _forget(self, id: int) -> None:
        if id not in self._shelf:
            return  # a lookup found it stale meanwhile
        entry = self._shelf.forget(id)
        self._used.pop(id, None)
        self._witness.forget(id)
        index = self._indexes.get(entry.partition)
        if entry.has_vector and index is not None:
            index.remove([id])
            if not len(index):
                # A partition may be one user's one question: its empty index must not stay.
                del self._indexes[entry.partition]

    def _shrink(self, now: float) -> None:
        """Drop what has expired, then the least recently used until the caps hold."""
        while (id := self._shelf.surplus(now)) is not None:
            self._drop([id])

    def _open_index(self, partition: bytes) -> Index:
        index = self._indexes.get(partition)
        if index is None:
            index = self._indexes[partition] = self._make_index(self.embedder.dim)
        return index

    def _rehydrate(self) -> None:
        """Rebuild the maps and the indexes from the store."""
        for entry in sorted(self.store.entries(), key=lambda e: (e.used, e.id)):
            self._shelf.keep(entry)
            self._witness.join(entry.id, entry.id if entry.group is None else entry.group, entry.labels, entry.wrong)
        state = self.store.saved("policy") if self.policy.learns else None
        if state is not None:
            self.policy.load(state)
        ids, vectors = self.store.vectors()
        partitions: dict[bytes, list[int]] = {}
        for row, id in enumerate(ids):
            entry_of = self._shelf.get(int(id))
            if entry_of is not None:
                partitions.setdefault(entry_of.partition, []).append(row)
        try:
            for partition, rows in partitions.items():
                self._open_index(partition).add(ids[rows], vectors[rows])
        except ValueError as error:
            raise StoreError(
                f"the store holds a vector that cannot be used: {error}",
                hint="embed its prompts again: recall cache reembed STORE --embedder NAME",
            ) from error
        self._shrink(self._clock())
