"""What lies in a store: list, show, choose for removal, export and import as JSON lines, move to another store.

Moving works between any two stores. It can be resumed, and it checks each entry.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from blake3 import blake3

from recall_cli.cache.stores.memory import HeldSpace
from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.cache.stores.sqlite_file import check_schema, connect, read_embedder
from recall_cli.errors import InputError, StoreError
from recall_cli.types import Completion, Embedder, Entry, Request, Store, Usage, Vector, VectorSpace

FORMAT = 1
"""Version of the export's layout."""

TENANTS = "tenants"
"""Under which a store keeps the key of its tenants' digests: entries are found by those who have it."""

SHOWN_CHARS = 120
"""Characters of a prompt in a list."""


def open_store(path: str | Path) -> SqliteStore:
    """Open a store that exists, whatever its embedder. Raises StoreError when there is none."""
    file = Path(path)
    if not file.is_file():
        raise StoreError(f"there is no store at {path}", hint="name the SQLite file that --store was given")
    with closing(connect(file)) as db:
        check_schema(db, file)
        held = read_embedder(db)
    space = HeldSpace(held.get("embedder", ""), int(held.get("dim", 0)), held.get("fingerprint", ""))
    return SqliteStore(file, embedder=space)


def listed(
    store: Store, *, namespace: str | None = None, contains: str | None = None, limit: int | None = 100
) -> list[dict[str, Any]]:
    """Return the entries of a store, latest first, each with the beginning of its prompt."""
    rows: list[dict[str, Any]] = []
    for entry in reversed(list(store.entries())):
        if limit is not None and len(rows) >= limit:
            break
        if namespace is not None and entry.namespace != namespace:
            continue
        text = store.text(entry.id)
        if text is None or (contains is not None and contains.lower() not in text.lower()):
            continue
        prompt = " ".join(text.split())
        rows.append({**_facts(entry), "prompt": prompt[:SHOWN_CHARS] + ("..." if len(prompt) > SHOWN_CHARS else "")})
    return rows


def shown(store: Store, id: int) -> dict[str, Any] | None:
    """Return all of one entry but its vector, None when it is gone."""
    entry = next((entry for entry in store.entries() if entry.id == id), None)
    completion, text = store.get(id), store.text(id)
    if entry is None or completion is None or text is None:
        return None
    try:
        body = orjson.loads(completion.body)
    except ValueError:
        body = completion.body.decode("utf-8", "replace")
    usage = completion.usage
    counts = {"input_tokens": usage.input, "output_tokens": usage.output, "cache_read_tokens": usage.cache_read}
    return {**_facts(entry), "prompt": text, "model": completion.model, "usage": counts, "body": body}


def chosen(
    store: Store, *, namespace: str | None = None, before: float | None = None, contains: str | None = None
) -> list[int]:
    """Return the ids of the entries that a purge means.

    :param before: only those stored before this time, seconds since the epoch.
    """
    found = []
    for entry in store.entries():
        if namespace is not None and entry.namespace != namespace:
            continue
        if before is not None and entry.created >= before:
            continue
        if contains is not None and contains.lower() not in (store.text(entry.id) or "").lower():
            continue
        found.append(entry.id)
    return found


def exported(store: Store, embedder: VectorSpace) -> Iterator[bytes]:
    """Yield a store as JSON lines: a head, then one entry a line. It holds prompts, answers and the tenants' key."""
    head = {"recall_export": FORMAT, "embedder": embedder.name, "fingerprint": embedder.fingerprint}
    yield _line({**head, "dim": embedder.dim, TENANTS: store.saved(TENANTS)})
    ids, vectors = store.vectors()
    row_of = {int(id): row for row, id in enumerate(ids)}
    for entry in list(store.entries()):
        completion, text = store.get(entry.id), store.text(entry.id)
        if completion is None or text is None:
            continue  # deleted meanwhile
        row = row_of.get(entry.id)
        yield _line(
            {
                "identity": entry.identity.hex(),
                "partition": entry.partition.hex(),
                "namespace": entry.namespace,
                "text": _packed(text.encode("utf-8", "surrogatepass")),
                "model": completion.model,
                "usage": completion.usage,
                "made": completion.created,
                "created": entry.created,
                "expires": entry.expires,
                "exact_only": not entry.has_vector,
                "vector": None if row is None else _packed(vectors[row].tobytes()),
                "body": _packed(completion.body),
            }
        )


def admit_key(store: Store, theirs: dict[str, Any] | None) -> None:
    """Let entries that come from elsewhere be found: take over the tenants' key they are stored under.

    Raises InputError when the store has entries under another one.

    :param theirs: as `Store.saved` gives it; None where no key is needed.
    """
    ours = store.saved(TENANTS)
    if theirs is None or ours == theirs:
        return
    if ours is not None and next(iter(store.entries()), None) is not None:
        raise keyed_otherwise("let them come into an empty store, or into the one that they are from")
    store.save(TENANTS, theirs)


def keyed_otherwise(hint: str) -> InputError:
    """Return the error for entries that would be stored under another key than those that are there."""
    return InputError("the store's entries are keyed otherwise: what came in would never be found", hint=hint)


class Import:
    """An export being read. Raises InputError, with the line, for what is none."""

    def __init__(self, lines: Iterable[bytes], embedder: Embedder) -> None:
        self._lines = iter(lines)
        self._embedder = embedder
        head = self._read(next(self._lines, b""), 1)
        if head.get("recall_export") != FORMAT:
            raise InputError("this is no export of a recall store", hint="make one with: recall cache export STORE")
        self.tenants: dict[str, Any] | None = head.get(TENANTS)
        self._is_same = head.get("fingerprint") == embedder.fingerprint

    def entries(self) -> Iterator[tuple[Request, Completion, Vector | None, float, float | None]]:
        """Yield (request, completion, vector, created, expires); vectors of another embedder are made anew."""
        for number, line in enumerate(self._lines, 2):
            if not line.strip():
                continue
            row = self._read(line, number)
            try:
                text = _unpacked(row["text"]).decode("utf-8", "surrogatepass")
                identity, partition = bytes.fromhex(row["identity"]), bytes.fromhex(row["partition"])
                request = Request(text, identity, partition, row["namespace"], exact_only=row["exact_only"])
                completion = Completion(_unpacked(row["body"]), row["model"], Usage(**row["usage"]), row["made"])
                packed = row["vector"]
                created, expires = float(row["created"]), row["expires"]
                vector = self._vector(request, packed)
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(f"line {number} is no entry of an export: {error}", hint="export again") from error
            yield request, completion, vector, created, expires

    def _vector(self, request: Request, packed: str | None) -> Vector | None:
        if request.exact_only or packed is None:
            return None
        if self._is_same:
            held = np.frombuffer(_unpacked(packed), dtype=np.float32)
            if held.shape != (self._embedder.dim,) or not np.isfinite(held).all():
                raise ValueError("its vector is not one of the embedder's")
            return held
        vector = self._embedder.embed(request.text)
        return vector if vector.any() else None

    @staticmethod
    def _read(line: bytes, number: int) -> dict[str, Any]:
        try:
            row = orjson.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise InputError(f"line {number} is no JSON object", hint="make an export with: recall cache export STORE")
        return row


def _facts(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "namespace": entry.namespace,
        "created": entry.created,
        "used": entry.used,
        "expires": entry.expires,
        "bytes": entry.size,
        "labels": entry.labels,
        "wrong": entry.wrong,
    }


def _line(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def _packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unpacked(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


BATCH = 500
"""Entries stored in one write: what a broken-off run loses."""


@dataclass(frozen=True, slots=True)
class Moved:
    """What came of it."""

    entries: int
    """Of the source, all of which are in the target, with the same digest."""
    copied: int
    """By this run; the others were there."""
    digest: str
    """Of all entries of the source, the same when read from either store."""


@dataclass(slots=True)
class Item:
    """All of one entry."""

    entry: Entry
    text: str
    completion: Completion
    vector: Vector | None

    def digest(self) -> bytes:
        """Return the digest of everything that must not change; numbers of entries do."""
        entry, answer = self.entry, self.completion
        facts = [entry.namespace.replace("\x00", "\N{SYMBOL FOR NULL}"), entry.created, entry.expires, entry.used]
        said = orjson.dumps([*facts, entry.labels, entry.wrong, answer.model, answer.usage, answer.created])
        pieces = (entry.identity, entry.partition, self.text.encode("utf-8", "surrogatepass"), answer.body, said)
        hasher = blake3(b"" if self.vector is None else np.ascontiguousarray(self.vector, np.float32).tobytes())
        for piece in pieces:
            hasher.update(struct.pack("<q", len(piece)) + piece)
        return hasher.digest()


def move(source: Store, target: Store, progress: Callable[[int], None] = lambda done: None) -> Moved:
    """Copy what the target lacks, then read both and compare. The source stays as it is.

    Raises InputError when the target's entries are keyed otherwise, and when the two differ in the end.
    """
    admit_key(target, source.saved(TENANTS))
    learned = source.saved("policy")
    if learned is not None:
        target.save("policy", learned)
    there = {entry.identity: entry for entry in target.entries()}
    numbers: dict[int, int] = {}
    copied, batch = 0, []
    for item in items(source):
        held = there.get(item.entry.identity)
        if held is not None and held.created >= item.entry.created:
            numbers[item.entry.id] = held.id
            continue
        batch.append(item)
        if len(batch) == BATCH:
            copied += _store(target, batch, numbers)
            progress(copied)
            batch = []
    copied += _store(target, batch, numbers)
    count, digest = _digest(source, None)
    found, same = _digest(target, {item.identity for item in source.entries()})
    if (count, digest) != (found, same):
        raise InputError(
            f"of {count:,} entries {found:,} arrived, and they are not the same",
            hint="stop what writes to either store, and run it again: it goes on where it was",
        )
    return Moved(count, copied, digest)


def items(store: Store) -> Iterator[Item]:
    """Yield all of each entry, oldest first; those that go meanwhile are left out."""
    ids, vectors = store.vectors()
    row_of = {int(id): row for row, id in enumerate(ids)}
    for entry in store.entries():
        completion, text = store.get(entry.id), store.text(entry.id)
        if completion is not None and text is not None:
            row = row_of.get(entry.id)
            yield Item(entry, text, completion, None if row is None else vectors[row])


def _store(target: Store, batch: list[Item], numbers: dict[int, int]) -> int:
    """Store a batch whole; `numbers` maps an entry's number in the source to that in the target."""
    with target.batch():
        for item in batch:
            entry = item.entry
            request = Request(item.text, entry.identity, entry.partition, entry.namespace)
            group = None if entry.group is None else numbers.get(entry.group)
            made = target.append(
                request, item.completion, item.vector, created=entry.created, expires=entry.expires, group=group
            )
            numbers[entry.id] = made.id
            if entry.group is not None:
                # The first of a group may be gone: whoever comes first stands for it.
                numbers.setdefault(entry.group, made.id)
        target.touch({numbers[item.entry.id]: item.entry.used for item in batch})
        labelled = [item.entry for item in batch if item.entry.labels]
        target.learn(
            {numbers[e.id]: (numbers[e.id if e.group is None else e.group], e.labels, e.wrong) for e in labelled}
        )
    return len(batch)


def _digest(store: Store, among: set[bytes] | None) -> tuple[int, str]:
    """Return how many entries there are, and one digest of all, in whatever order they lie."""
    found = sorted(
        item.entry.identity + item.digest() for item in items(store) if among is None or item.entry.identity in among
    )
    return len(found), blake3(b"".join(found)).hexdigest(length=16)
