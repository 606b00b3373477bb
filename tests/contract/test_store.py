"""One contract, every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from recall_cli.cache.embed.registry import HashEmbedder
from recall_cli.cache.request import text_request
from recall_cli.cache.stores.memory import MemoryStore
from recall_cli.cache.stores.read_through import ReadThroughStore
from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.postgres.store import PostgresStore
from recall_cli.types import Completion, Store, Usage

EMBEDDER = HashEmbedder()
ANSWER = Completion(b'{"answer": "\x00\xff"}', "a-model", Usage(10, 5, 3, 2, 1), 12.5)


@pytest.fixture(params=["memory", "sqlite", "hot", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        made: Store = MemoryStore(EMBEDDER.dim)
    elif request.param == "postgres":
        made = PostgresStore(request.getfixturevalue("database"), embedder=EMBEDDER)
    else:
        made = SqliteStore(tmp_path / "store.db", embedder=EMBEDDER)
        if request.param == "hot":
            made = ReadThroughStore(made, most=1_000)
    yield made
    made.close()


def test_what_is_appended_comes_back(store: Store) -> None:
    request = text_request("a question\x00 with \ud800 odd text", "space")
    vector = EMBEDDER.embed(request.text)
    entry = store.append(request, ANSWER, vector, created=7.0, expires=9.0)
    assert store.get(entry.id) == ANSWER
    assert store.text(entry.id) == request.text
    assert list(store.entries()) == [entry]
    assert (entry.identity, entry.partition, entry.namespace) == (request.identity, request.partition, "space")
    assert (entry.created, entry.expires, entry.used, entry.has_vector) == (7.0, 9.0, 7.0, True)
    assert entry.size >= len(ANSWER.body) + vector.nbytes
    ids, vectors = store.vectors()
    assert ids.tolist() == [entry.id]
    np.testing.assert_array_equal(vectors, vector[np.newaxis])


def test_an_entry_without_a_vector(store: Store) -> None:
    entry = store.append(text_request(""), ANSWER, None, created=1.0, expires=None)
    assert not entry.has_vector
    assert list(store.entries()) == [entry]
    ids, vectors = store.vectors()
    assert len(ids) == 0
    assert vectors.shape == (0, EMBEDDER.dim)


def test_ids_only_grow_and_deletes_are_whole(store: Store) -> None:
    made = []
    for i in range(5):
        request = text_request(f"question {i}")
        made.append(store.append(request, ANSWER, EMBEDDER.embed(request.text), created=1.0, expires=None).id)
    assert made == sorted(set(made))
    store.delete([made[1], made[3], 999_999])
    kept = [made[0], made[2], made[4]]
    assert [entry.id for entry in store.entries()] == kept
    assert store.vectors()[0].tolist() == kept
    assert store.get(made[1]) is None
    assert store.text(made[1]) is None
    store.compact()
    assert store.vectors()[0].tolist() == kept
    again = store.append(text_request("another"), ANSWER, None, created=1.0, expires=None)
    assert again.id > max(made)


def test_an_append_replaces_the_entry_of_the_same_identity(store: Store) -> None:
    request = text_request("question")
    old = store.append(request, ANSWER, EMBEDDER.embed("question"), created=1.0, expires=None)
    new = store.append(request, Completion(b"new"), None, created=2.0, expires=None)
    assert [entry.id for entry in store.entries()] == [new.id]
    assert new.id > old.id
    assert store.get(old.id) is None
    assert store.get(new.id, request.identity) == Completion(b"new")
    assert store.get(new.id, text_request("another").identity) is None
    assert len(store.vectors()[0]) == 0


def test_touch_changes_the_time_of_use_alone(store: Store) -> None:
    entry = store.append(text_request("q"), ANSWER, None, created=1.0, expires=None)
    store.touch({entry.id: 5.0, 12345: 6.0})
    (found,) = store.entries()
    assert (found.used, found.created) == (5.0, 1.0)


def test_what_labels_said_and_states_are_kept(store: Store) -> None:
    entry = store.append(text_request("q"), ANSWER, None, created=1.0, expires=None)
    store.learn({entry.id: (77, 3, 1), 12345: (1, 1, 1)})
    (found,) = store.entries()
    assert (found.group, found.labels, found.wrong, found.created) == (77, 3, 1, 1.0)
    assert store.saved("policy") is None
    store.save("policy", {"weights": [1.5, -2], "by": {"n": {"x": None}}})
    store.save("policy", {"weights": [2.5]})
    assert store.saved("policy") == {"weights": [2.5]}
    assert store.saved("other") is None


def test_a_group_is_stored_with_its_entry(store: Store) -> None:
    first = store.append(text_request("q"), ANSWER, None, created=1.0, expires=None)
    second = store.append(text_request("r"), ANSWER, None, created=1.0, expires=None, group=first.id)
    assert [entry.group for entry in store.entries()] == [None, first.id] == [first.group, second.group]


def test_a_batch_is_kept_whole_or_not_at_all(store: Store) -> None:
    kept = store.append(text_request("before"), ANSWER, None, created=1.0, expires=None)
    with store.batch():
        again = store.append(text_request("in a batch"), ANSWER, None, created=1.0, expires=None)
    assert [entry.id for entry in store.entries()] == [kept.id, again.id]


def test_close_twice(store: Store) -> None:
    store.close()
    store.close()
