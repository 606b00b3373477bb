"""The cache: what hits, what misses, what is kept, what survives."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.registry import HashEmbedder, make_embedder
from recall_cli.cache.policy.static import StaticPolicy
from recall_cli.cache.request import parse_body, text_request
from recall_cli.cache.stores import sqlite_file
from recall_cli.cache.stores.memory import MemoryStore
from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.cache.stores.sqlite_file import read_facts, reembed
from recall_cli.errors import StoreError, StoreMismatch, UsageError
from recall_cli.types import Completion, Outcome, Put, Request

STATIC = make_embedder("static")
HASH = HashEmbedder()


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def answer(text: str) -> Completion:
    return Completion(text.encode("utf-8", "surrogatepass"))


def make(tau: float = 0.8, **options: object) -> Cache:
    return Cache(embedder=STATIC, policy=StaticPolicy(tau), **options)  # type: ignore[arg-type]


def test_exact_semantic_miss() -> None:
    cache = make()
    first = text_request("How do I reset my password?")
    assert cache.get(first).decision.reason == "empty_partition"
    id = cache.put(first, answer("click the link"))
    exact = cache.get(text_request("How do I reset my password?"))
    assert (exact.decision.outcome, exact.decision.entry) == (Outcome.EXACT, id)
    assert exact.completion == answer("click the link")
    near = cache.get(text_request("how do i reset my password"))
    assert near.decision.outcome is Outcome.SEMANTIC
    assert near.completion == answer("click the link")
    assert near.decision.similarity is not None
    assert near.decision.cutoff == 0.8
    far = cache.get(text_request("What is the capital of Portugal?"))
    assert (far.decision.outcome, far.decision.reason, far.completion) == (Outcome.MISS, "below_cutoff", None)
    assert far.decision.entry == id


def test_a_miss_returns_the_vector_and_put_reuses_it() -> None:
    calls = []

    class Counting(HashEmbedder):
        def embed(self, text: str):  # type: ignore[no-untyped-def]
            calls.append(text)
            return super().embed(text)

    cache = Cache(embedder=Counting(), policy=StaticPolicy(0.8))
    request = text_request("once")
    found = cache.get(request)
    cache.put(request, answer("a"), found.vector)
    assert calls == ["once"]


def test_tau_one_serves_equal_requests_alone_and_zero_serves_anything() -> None:
    strict, loose = make(1.0), make(0.0)
    for cache in (strict, loose):
        cache.put(text_request("Reset my password"), answer("a"))
    # Another identity, but the same tokens: cosine is 1 up to rounding.
    assert strict.get(text_request("reset my password")).decision.outcome is Outcome.MISS
    assert loose.get(text_request("reset my password")).decision.outcome is Outcome.SEMANTIC
    assert strict.get(text_request("Reset my password")).decision.outcome is Outcome.EXACT
    anything = make(0.0, vetoes=frozenset())
    anything.put(text_request("Reset my password"), answer("a"))
    assert anything.get(text_request("what is my password for")).decision.outcome is Outcome.SEMANTIC


@pytest.mark.parametrize("text", ["", "   ", "\x00", "[UNK]"])
def test_text_without_tokens_hits_exactly_only(text: str) -> None:
    cache = make(0.0)
    cache.put(text_request("anything"), answer("other"))
    assert cache.get(text_request(text)).decision.reason == "no_known_token"
    cache.put(text_request(text), answer("own"))
    assert cache.get(text_request(text)).decision.outcome is Outcome.EXACT
    # Nor may it become a neighbour of others.
    assert cache.get(text_request("something else")).completion == answer("other")


def test_partitions_never_meet() -> None:
    cache = make(0.0)
    body = {"model": "m", "messages": [{"role": "user", "content": "hello there"}]}
    variants = [
        ("openai", body, ""),
        ("anthropic", body, ""),
        ("openai", body, "tenant"),
        ("openai", {**body, "model": "n"}, ""),
        ("openai", {**body, "temperature": 0.5}, ""),
        ("openai", {**body, "messages": [{"role": "system", "content": "s"}, *body["messages"]]}, ""),  # type: ignore[misc]
    ]
    for provider, variant, tenant in variants:
        request = parse_body(provider, variant, tenant=tenant)
        assert isinstance(request, Request)
        found = cache.get(request)
        assert found.decision.outcome is Outcome.MISS, variant
        cache.put(request, answer(repr(variant)), found.vector)


def test_a_put_of_the_same_identity_replaces() -> None:
    cache = make()
    request = text_request("question")
    old = cache.put(request, answer("old"))
    new = cache.put(request, answer("new"))
    assert (len(cache), old == new) == (1, False)
    assert cache.get(request).completion == answer("new")
    assert cache.get(text_request("Question")).completion == answer("new")


def test_time_to_live_is_not_renewed_by_hits() -> None:
    clock = Clock()
    cache = make(ttl=10, clock=clock)
    cache.put(text_request("question"), answer("a"))
    clock.now += 9
    assert cache.get(text_request("question")).decision.outcome is Outcome.EXACT
    clock.now += 1
    assert cache.get(text_request("question")).decision.outcome is Outcome.MISS
    assert (len(cache), cache.size_bytes) == (0, 0)


@pytest.mark.parametrize("text", ["question", "Question"])
def test_what_a_wrong_clock_stored_does_not_outlive_its_time(text: str) -> None:
    clock = Clock()
    cache = make(0.5, ttl=10, clock=clock)
    clock.now += 1e9
    cache.put(text_request("question"), answer("a"))
    clock.now -= 1e9
    assert cache.get(text_request(text)).decision.outcome is Outcome.MISS
    cache.put(text_request("question"), answer("b"))
    clock.now -= 30  # two clocks may differ a little
    assert cache.get(text_request(text)).completion == answer("b")


def test_without_an_end_no_clock_matters() -> None:
    clock = Clock()
    cache = make(clock=clock)
    cache.put(text_request("question"), answer("a"))
    for jump in (-1e9, 1e9):
        clock.now += jump
        assert cache.get(text_request("question")).completion == answer("a")


def test_an_expired_nearest_gives_way_to_the_next_nearest() -> None:
    clock = Clock()
    cache = make(0.5, clock=clock)
    cache.put(text_request("reset my password now"), answer("kept"))
    cache.put(text_request("reset my password"), answer("expired"), ttl=5)
    clock.now += 6
    assert cache.get(text_request("Reset my password")).completion == answer("kept")


def test_least_recently_used_goes_first() -> None:
    cache = make(max_entries=2)
    for text in ("alpha one", "beta two"):
        cache.put(text_request(text), answer(text))
    cache.get(text_request("alpha one"))
    cache.put(text_request("gamma three"), answer("c"))
    outcomes = [cache.get(text_request(t)).decision.outcome for t in ("alpha one", "beta two", "gamma three")]
    assert outcomes == [Outcome.EXACT, Outcome.MISS, Outcome.EXACT]


def test_expired_entries_are_evicted_before_live_ones() -> None:
    clock = Clock()
    cache = make(max_entries=2, clock=clock)
    cache.put(text_request("live"), answer("a"))
    cache.put(text_request("short"), answer("b"), ttl=1)
    clock.now += 2
    cache.put(text_request("new"), answer("c"))
    assert cache.get(text_request("live")).decision.outcome is Outcome.EXACT


def test_byte_cap_holds_and_an_answer_beyond_it_is_not_kept() -> None:
    cache = make(max_bytes=5_000)
    for i in range(20):
        cache.put(text_request(f"question number {i}"), answer("x" * 500))
        assert cache.size_bytes <= 5_000
    assert len(cache) > 0
    kept = len(cache)
    assert cache.put(text_request("huge"), answer("x" * 10_000)) is None
    assert len(cache) == kept


@pytest.mark.parametrize("name", ["ttl", "max_entries", "max_bytes"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_cap_of_nothing_is_refused(name: str, value: int) -> None:
    with pytest.raises(UsageError, match=name):
        make(**{name: value})


def test_threads_share_a_cache() -> None:
    cache = make(0.9, max_entries=50)
    texts = [f"question about topic {i} and {i * 7}" for i in range(100)]
    errors: list[BaseException] = []

    def work(offset: int) -> None:
        try:
            for i in range(300):
                request = text_request(texts[(i * 7 + offset) % 100])
                found = cache.get(request)
                if found.completion is None:
                    cache.put(request, answer(request.text), found.vector)
                elif found.decision.outcome is Outcome.EXACT:
                    assert found.completion == answer(request.text)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(cache) == 50


def test_an_answer_too_large_to_keep_does_not_leave_the_old_one_in_service() -> None:
    cache = make(max_bytes=5_000)
    cache.put(text_request("question"), answer("old"))
    assert cache.put(text_request("question"), answer("x" * 10_000)) is None
    assert cache.get(text_request("question")).completion is None
    assert (len(cache), cache.size_bytes) == (0, 0)


@pytest.mark.parametrize("ttl", [0, -1, float("nan")])
def test_a_lifetime_that_is_none_is_refused(ttl: float) -> None:
    with pytest.raises(UsageError, match="ttl"):
        make().put(text_request("q"), answer("a"), ttl=ttl)


@pytest.mark.parametrize(
    "vector",
    [np.full(256, np.nan), np.ones(128) / np.sqrt(128), np.ones(256), np.ones((1, 256)) / 16],
    ids=["nan", "narrow", "long", "shape"],
)
def test_a_vector_that_cannot_be_indexed_is_not_stored_either(vector: np.ndarray, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db", embedder=STATIC)
    cache = make(store=store)
    with pytest.raises(ValueError, match=r"shape|NaN|length"):
        cache.put(text_request("q"), answer("a"), vector.astype(np.float32))
    assert (len(cache), list(store.entries())) == (0, [])
    cache.close()
    make(store=SqliteStore(tmp_path / "s.db", embedder=STATIC)).close()


def test_deleting_twice_in_one_call() -> None:
    cache = make()
    id = cache.put(text_request("q"), answer("a"))
    assert id is not None
    assert cache.delete([id, id, 999]) == 1


def test_replaced_entries_do_not_pile_up_until_their_time() -> None:
    cache = make(ttl=1_000)
    for _ in range(2_000):
        cache.put(text_request("one question"), answer("a"))
    assert len(cache._shelf._expiries) < 200


# --- every retained entry stays findable -----------------------------------------------------


class Findable(RuleBasedStateMachine):
    """Puts, hits, deletions, expiry, evictions and reopening, against a plain model of the cache."""

    store_kind = "memory"

    @initialize()
    def open(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(HASH.dim)
        self.cache = self.reopened()
        self.live: dict[str, float] = {}
        self.order: list[str] = []

    def reopened(self) -> Cache:
        policy = StaticPolicy(0.99)
        return Cache(embedder=HASH, policy=policy, store=self.store, max_entries=6, clock=self.clock)

    texts = st.integers(0, 15).map(lambda n: f"text {n}")

    def forget_expired(self) -> None:
        for text in [t for t, expires in self.live.items() if expires <= self.clock.now]:
            del self.live[text]
            self.order.remove(text)

    @rule(text=texts, ttl=st.sampled_from([None, 3]))
    def put(self, text: str, ttl: float | None) -> None:
        self.clock.now += 1
        self.cache.put(text_request(text), answer(text), ttl=ttl)
        self.live[text] = float("inf") if ttl is None else self.clock.now + ttl
        self.order = [t for t in self.order if t != text] + [text]
        self.forget_expired()
        while len(self.order) > 6:
            del self.live[self.order.pop(0)]

    @rule(text=texts)
    def get(self, text: str) -> None:
        self.clock.now += 1
        self.forget_expired()
        found = self.cache.get(text_request(text))
        assert (found.completion is not None) == (text in self.live)
        if text in self.live:
            assert found.completion == answer(text)
            self.order = [t for t in self.order if t != text] + [text]

    @rule(text=texts)
    def delete(self, text: str) -> None:
        found = self.cache.exact(text_request(text))
        if found is not None and found.decision.entry is not None:
            assert self.cache.delete([found.decision.entry]) == 1
            if text in self.live:
                del self.live[text]
                self.order.remove(text)

    @rule()
    def reopen(self) -> None:
        self.cache.flush()
        self.cache = self.reopened()
        self.forget_expired()

    @invariant()
    def every_live_entry_is_its_own_nearest(self) -> None:
        if not hasattr(self, "live"):
            return
        for text, expires in self.live.items():
            if expires > self.clock.now:
                # match() alone: the exact map must not hide an entry that the index lost.
                index = self.cache._indexes[text_request(text).partition]
                ids, similarities = index.search(HASH.embed(text), 1)
                assert similarities[0] == pytest.approx(1, abs=1e-5)
                assert self.cache.store.text(int(ids[0])) == text


class FindableOnDisk(Findable):
    """The same over a real SQLite file."""

    @initialize()
    def open(self) -> None:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.live = {}
        self.order = []
        self.cache = self.reopened()

    def reopened(self) -> Cache:
        if hasattr(self, "cache"):
            self.cache.close()
        self.store = SqliteStore(Path(self.folder.name) / "s.db", embedder=HASH)  # type: ignore[assignment]
        return super().reopened()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.cache.close()
            self.folder.cleanup()


TestFindable = Findable.TestCase
TestFindable.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestFindableOnDisk = FindableOnDisk.TestCase
TestFindableOnDisk.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)


# --- the SQLite store ------------------------------------------------------------------------


VERBS = ["cancel", "move", "book", "sell", "paint", "clean", "return", "insure", "rent", "repair"]
NOUNS = ["flight", "sofa", "ticket", "car", "fence", "oven", "parcel", "phone", "house", "bicycle"]


def test_hits_survive_reopening(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    texts = [f"how do I {verb} a {noun}" for verb in VERBS for noun in NOUNS]
    cache = make(store=SqliteStore(path, embedder=STATIC))
    for text in texts:
        cache.put(text_request(text), answer(text))
    cache.close()
    cache = make(store=SqliteStore(path, embedder=STATIC))
    assert len(cache) == len(texts)
    for text in texts:
        assert cache.get(text_request(text)).completion == answer(text)
        near = cache.get(text_request(text.upper()))
        assert near.decision.outcome is Outcome.SEMANTIC
        assert near.completion == answer(text)
    cache.close()


def test_recency_survives_reopening(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "s.db"
    cache = make(store=SqliteStore(path, embedder=STATIC), clock=clock)
    for text in ("first one", "second one", "third one"):
        clock.now += 1
        cache.put(text_request(text), answer(text))
    clock.now += 1
    cache.get(text_request("first one"))
    cache.close()
    cache = make(store=SqliteStore(path, embedder=STATIC), clock=clock, max_entries=2)
    assert cache.exact(text_request("second one")) is None
    assert cache.exact(text_request("first one")) is not None
    cache.close()


def test_a_store_of_another_embedder_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    cache = make(store=SqliteStore(path, embedder=STATIC))
    cache.put(text_request("How do I reset my password?"), answer("a"))
    cache.put(text_request(""), answer("b"))
    cache.close()
    with pytest.raises(StoreMismatch, match="static") as raised:
        SqliteStore(path, embedder=HASH)
    assert "recall cache reembed" in raised.value.hint
    assert reembed(path, HASH) == 1
    cache = Cache(embedder=HASH, policy=StaticPolicy(0.9), store=SqliteStore(path, embedder=HASH))
    assert cache.get(text_request("How do I reset my password?")).completion == answer("a")
    vector = HASH.embed("How do I reset my password?")
    assert cache.match(text_request("How do I reset my password?"), vector).decision.outcome is Outcome.SEMANTIC
    cache.close()
    assert read_facts(path)[0]["embedder"] == "hash-v1"


def write_text(path: Path) -> None:
    path.write_text("this is not a database, but a letter to a friend\n" * 50)


def write_other_database(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE other (x)")
    db.commit()
    db.close()


def write_newer_schema(path: Path) -> None:
    SqliteStore(path, embedder=HASH).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()


@pytest.mark.parametrize("write", [write_text, write_other_database, write_newer_schema, Path.mkdir])
def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path, write: object) -> None:
    path = tmp_path / "s.db"
    write(path)  # type: ignore[operator]
    before = path.read_bytes() if path.is_file() else b""
    for attempt in (lambda: SqliteStore(path, embedder=HASH), lambda: read_facts(path), lambda: reembed(path, HASH)):
        with pytest.raises(StoreError) as raised:
            attempt()
        assert raised.value.hint
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_looking_at_a_missing_store_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store"):
        read_facts(tmp_path / "s.db")
    assert not (tmp_path / "s.db").exists()


def test_a_damaged_vector_is_said(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = SqliteStore(path, embedder=HASH)
    store.append(text_request("q"), answer("a"), HASH.embed("q"), created=1.0, expires=None)
    store.close()
    db = sqlite3.connect(path)
    bad = np.full(HASH.dim, np.nan, dtype=np.float32).tobytes()
    db.execute("UPDATE vectors SET vector = ?", (bad,))
    db.commit()
    with pytest.raises(StoreError, match="NaN"):
        Cache(embedder=HASH, policy=StaticPolicy(), store=SqliteStore(path, embedder=HASH))
    db.execute("UPDATE vectors SET vector = ?", (b"abc",))
    db.commit()
    db.close()
    with pytest.raises(StoreError, match="width"):
        Cache(embedder=HASH, policy=StaticPolicy(), store=SqliteStore(path, embedder=HASH))


def locked(path: Path) -> sqlite3.Connection:
    """Another process's write that does not end."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    return db


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_MS", 1)


def test_a_store_that_cannot_be_written_still_answers(
    tmp_path: Path, impatient: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recall_cli.cache.cache.TOUCH_BATCH", 1)
    clock = Clock()
    cache = make(store=SqliteStore(tmp_path / "s.db", embedder=STATIC), clock=clock)
    cache.put(text_request("kept"), answer("a"))
    cache.put(text_request("short"), answer("b"), ttl=1)
    other = locked(tmp_path / "s.db")
    clock.now += 2
    assert cache.get(text_request("kept")).completion == answer("a")
    assert cache.get(text_request("short")).completion is None
    assert "could not be written" in caplog.text
    with pytest.raises(StoreError, match="locked"):
        cache.put(text_request("kept"), answer("new"))
    assert cache.get(text_request("kept")).completion == answer("a")  # nothing has changed
    with pytest.raises(StoreError, match="locked"):
        cache.delete([1])
    assert cache.get(text_request("kept")).completion == answer("a")
    other.rollback()
    other.close()
    cache.flush()
    cache.close()


def test_a_locked_store_is_not_tried_again_by_every_hit(
    tmp_path: Path, impatient: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recall_cli.cache.cache.TOUCH_BATCH", 1)
    cache = make(store=SqliteStore(tmp_path / "s.db", embedder=STATIC))
    cache.put(text_request("one"), answer("a"))
    cache.put(text_request("two"), answer("b"))
    other = locked(tmp_path / "s.db")
    for text in ("one", "one", "one", "two", "one", "two"):
        assert cache.get(text_request(text)).completion is not None
    other.close()
    assert caplog.text.count("could not be written") == 2  # once an entry, whose time was noted either way
    cache.close()


def test_a_store_moved_to_another_embedder_takes_no_more_of_the_old_vectors(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    cache = make(store=SqliteStore(path, embedder=STATIC))
    cache.put(text_request("before"), answer("a"))
    reembed(path, HASH)
    with pytest.raises(StoreMismatch):
        cache.put(text_request("after"), answer("b"))
    cache.close()
    assert read_facts(path)[0]["entries"] == 1


def test_a_row_of_another_identity_is_not_served(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    cache = make(store=SqliteStore(path, embedder=STATIC))
    cache.put(text_request("mine"), answer("mine"))
    db = sqlite3.connect(path)
    db.execute("UPDATE entries SET identity = ?", (text_request("yours").identity,))
    db.commit()
    db.close()
    assert cache.get(text_request("mine")).completion is None
    cache.close()


@pytest.mark.parametrize("usage", ["not json", '{"input": 1, "field_of_next_year": 2}', "[]"])
def test_a_row_that_cannot_be_read_is_a_miss(tmp_path: Path, usage: str) -> None:
    path = tmp_path / "s.db"
    cache = make(store=SqliteStore(path, embedder=STATIC))
    cache.put(text_request("q"), answer("a"))
    db = sqlite3.connect(path)
    db.execute("UPDATE bodies SET usage = ?", (usage,))
    db.commit()
    db.close()
    assert cache.get(text_request("q")).completion is None
    cache.close()


def test_damaged_pages_are_said(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    cache = Cache(embedder=HASH, policy=StaticPolicy(), store=SqliteStore(path, embedder=HASH))
    for i in range(200):
        cache.put(text_request(f"q {i}"), answer("a" * 500))
    cache.close()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    for attempt in (lambda: SqliteStore(path, embedder=HASH), lambda: read_facts(path), lambda: reembed(path, HASH)):
        with pytest.raises(StoreError) as raised:
            attempt()
        assert raised.value.hint


WRITER = """
import sys
from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.registry import HashEmbedder
from recall_cli.cache.policy.static import StaticPolicy
from recall_cli.cache.request import text_request
from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.types import Completion
embedder = HashEmbedder()
cache = Cache(embedder=embedder, policy=StaticPolicy(0.9), store=SqliteStore(sys.argv[1], embedder=embedder))
number = 0
while True:
    cache.put(text_request(f"prompt {number}"), Completion(f"answer {number}".encode()))
    print(number, flush=True)
    number += 1
"""


def test_acknowledged_writes_survive_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged = -1
    for line in process.stdout:
        acknowledged = int(line)
        if acknowledged >= 300:
            os.kill(process.pid, signal.SIGKILL)
            break
    # What it had printed before it died was acknowledged too.
    acknowledged = max([acknowledged, *(int(line) for line in process.stdout if line.endswith("\n"))])
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    cache = Cache(embedder=HASH, policy=StaticPolicy(0.9), store=SqliteStore(path, embedder=HASH))
    for number in range(acknowledged + 1):
        request = text_request(f"prompt {number}")
        assert cache.get(request).completion == Completion(f"answer {number}".encode())
        assert cache.match(request, HASH.embed(request.text)).decision.outcome is Outcome.SEMANTIC
    cache.close()


def test_two_processes_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    code = WRITER.replace("while True:", "while number < 20:")
    both = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "s.db")], stdout=subprocess.DEVNULL) for _ in "ab"
    ]
    assert [process.wait(60) for process in both] == [0, 0]
    assert read_facts(tmp_path / "s.db")[0]["entries"] == 20


class SlowStore(MemoryStore):
    """A store whose writes last until they are let go, as a disk's sync does."""

    def __init__(self) -> None:
        super().__init__(STATIC.dim)
        self.entered, self.go = threading.Event(), threading.Event()
        self.go.set()

    def append(self, *args: object, **options: object) -> object:  # type: ignore[override]
        self.entered.set()
        assert self.go.wait(20)
        return super().append(*args, **options)  # type: ignore[arg-type]


def test_a_lookup_does_not_wait_for_a_write() -> None:
    store = SlowStore()
    cache = make(store=store)
    cache.put(text_request("How do I reset my password?"), answer("click"))
    store.entered.clear()
    store.go.clear()
    writer = threading.Thread(target=lambda: cache.put(text_request("Where is my invoice?"), answer("in Billing")))
    writer.start()
    assert store.entered.wait(20)
    assert cache.get(text_request("How do I reset my password?")).decision.outcome is Outcome.EXACT
    assert cache.get(text_request("how do i reset my password")).decision.outcome is Outcome.SEMANTIC
    assert cache.get(text_request("Where is my invoice?")).decision.outcome is Outcome.MISS
    store.go.set()
    writer.join(20)
    assert cache.get(text_request("Where is my invoice?")).decision.outcome is Outcome.EXACT


def test_the_writes_of_a_lookup_can_be_left_to_another(tmp_path: Path) -> None:
    clock, owed = Clock(), []
    store = SqliteStore(tmp_path / "s.db", embedder=STATIC)
    cache = make(store=store, ttl=10, clock=clock, later=owed.append)
    id = cache.put(text_request("How do I reset my password?"), answer("click"))
    assert id is not None
    clock.now += 11
    assert cache.get(text_request("How do I reset my password?")).decision.outcome is Outcome.MISS
    assert len(owed) == 1
    assert store.get(id) is not None, "the write is not made by the lookup"
    owed.pop()()
    assert store.get(id) is None
    cache.close()


def test_readers_and_writers_of_a_stale_entry_do_not_wait_for_each_other() -> None:
    clock = Clock()
    cache = make(ttl=1, clock=clock)
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            cache.get(text_request("How do I reset my password?"))

    readers = [threading.Thread(target=read, daemon=True) for _ in range(3)]
    for reader in readers:
        reader.start()
    writer = threading.Thread(
        target=lambda: [
            (
                cache.put(text_request("How do I reset my password?"), answer("click")),
                setattr(clock, "now", clock.now + 2),
            )
            for _ in range(300)
        ],
        daemon=True,
    )
    writer.start()
    writer.join(30)
    stop.set()
    for reader in readers:
        reader.join(30)
    assert not writer.is_alive()
    assert not any(reader.is_alive() for reader in readers)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_many_answers_in_one_write(kind: str, tmp_path: Path) -> None:
    store = MemoryStore(STATIC.dim) if kind == "memory" else SqliteStore(tmp_path / "s.db", embedder=STATIC)
    cache = make(store=store, max_bytes=200_000)
    texts = ["How do I reset my password?", "Where is my invoice?", "How do I reset my password?", "May my dog come?"]
    puts = [Put(text_request(text), answer(f"{at}")) for at, text in enumerate(texts)]
    huge = Put(text_request("What is too large?"), answer("x" * 300_000))
    ids = cache.put_many([*puts, huge])
    assert ids[0] is None, "the later of two equal requests stays"
    assert ids[4] is None
    assert len(cache) == len(list(store.entries())) == 3
    assert cache.get(text_request("How do I reset my password?")).completion == answer("2")
    assert cache.get(text_request("where is my invoice")).completion == answer("1")
    cache.close()


def test_a_write_of_many_that_fails_keeps_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "s.db", embedder=STATIC)
    cache = make(store=store)
    cache.put(text_request("How do I reset my password?"), answer("old"))
    whole, calls = store.append, []

    def failing(*given: object, **options: object) -> object:
        calls.append(given)
        if len(calls) == 2:
            raise StoreError("the disk is full")
        return whole(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "append", failing)
    puts = [Put(text_request(text), answer("new")) for text in ("How do I reset my password?", "Where is my invoice?")]
    with pytest.raises(StoreError):
        cache.put_many(puts)
    assert cache.get(text_request("How do I reset my password?")).completion == answer("old")
    assert cache.get(text_request("Where is my invoice?")).decision.outcome is Outcome.MISS
    assert len(list(store.entries())) == 1
    cache.close()
