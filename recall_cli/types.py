"""The nouns and the protocols. Everything else in recall is verbs over these.

Imports nothing outside the standard library at run time, so that a reader, a type checker and
`recall --help` can load it for free.

Records built on the hot path (`Request`, `Decision`, `Lookup`, `Evidence`) are slotted but not
frozen: freezing costs 2-4x to build, about a microsecond each. Everything else is frozen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]
    """Shape (dim,) or (n, dim), float32, rows of unit length (or all zero: "no known token")."""
    Ids = NDArray[np.int64]
    """Shape (n,), int64: entry ids."""
else:
    Vector = Ids = Any

Json = Mapping[str, Any]
"""A decoded JSON object."""


class Outcome(StrEnum):
    """What the cache decided for one request."""

    EXACT = "EXACT"
    SEMANTIC = "SEMANTIC"
    MISS = "MISS"
    BYPASS = "BYPASS"
    SHADOW = "SHADOW"


@dataclass(slots=True)
class Request:
    """What the lookup needs of one request; `cache.request` makes it from a body or a plain text."""

    text: str
    """The last user turn: the only part that is embedded."""
    identity: bytes
    """Digest (16 bytes) of everything that shapes the answer: the exact key."""
    partition: bytes
    """Digest (16 bytes) of identity without the last user text, plus tenant: a hard wall."""
    namespace: str
    """The coarser group whose cutoff is learned together."""
    provider: str = "text"
    model: str = ""
    sampled: bool = False
    """True when the model would not repeat itself: temperature unset (the API's 1.0) or above 0."""
    exact_only: bool = False
    """True when only a byte-equal request may hit (images in the last turn, no text, ...)."""


@dataclass(frozen=True, slots=True)
class Bypass:
    """A request that the cache must neither answer nor store, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one call. `input` always includes the cached and cache-writing tokens."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    """The part of `cache_write` that was written with the one-hour lifetime."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One stored answer: the provider's canonical non-stream body, as bytes."""

    body: bytes
    model: str = ""
    usage: Usage = Usage()
    created: float = 0.0
    """Seconds since the epoch at which the answer was made."""


@dataclass(slots=True)
class Evidence:
    """What a policy sees of the best candidate for a request.

    Similarity is cosine: 1 is identical, 0 unrelated. The defaults are what a caller that knows only
    the similarity may claim: nothing for or against.
    """

    similarity: float
    margin: float = 0.0
    """Similarity minus that of the best candidate with another answer, 0 when none is known to be near."""
    overlap: float = 0.0
    """Jaccard of the two texts' tokens weighted by IDF, 0..1."""
    length_ratio: float = 1.0
    """Tokens of the shorter text over those of the longer, 0..1."""
    numbers: float = 0.0
    """1 when numbers, dates or units of the two texts disagree, 0.5 when only one text has some, else 0."""
    negation: float = 0.0
    """1 when a negation or an antonym stands in one of the texts alone, else 0."""
    roles: float = 0.0
    """1 when two words of both texts have exchanged their roles (from A to B, A than B), else 0."""
    detail: float = 0.0
    """How much the pair looks alike but for a weighty word: share in common times that word's weight, 0..1."""
    names: float = 0.0
    """Share of the named or rare words of either text that the other lacks, 0..1."""
    history: float = 0.25
    """The entry's own record: (wrong labels + 0.5) / (labels + 2)."""
    ticket: int = -1
    """Set by the policy that decided: how a later label finds this decision again."""


@dataclass(slots=True)
class Verdict:
    """What a policy says to one candidate."""

    serve: bool
    cutoff: float
    """The similarity that would have been served with this candidate's other evidence."""
    audit: bool = False
    """A hit that should be checked against a fresh answer; drawn before the answer is known."""


@dataclass(slots=True)
class Decision:
    """One record of what was decided: logged, counted and returned in headers."""

    outcome: Outcome
    similarity: float | None = None
    cutoff: float | None = None
    entry: int | None = None
    reason: str = ""


@dataclass(slots=True)
class Lookup:
    """The answer of `Cache.get`. On a miss `vector` goes back to `put`: never embed twice."""

    decision: Decision
    completion: Completion | None = None
    vector: Vector | None = None
    evidence: Evidence | None = None
    """What the policy saw of the nearest candidate: a label of it goes back with this."""
    audit: bool = False
    """A semantic hit whose answer should be checked against a fresh one."""


@dataclass(slots=True)
class Put:
    """An answer to be stored, with what `Cache.put` takes."""

    request: Request
    completion: Completion
    vector: Vector | None = None
    ttl: float | None = None
    like: int | None = None


CLOCKS_S = 60.0
"""What the clocks of two machines that share a store may differ by."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a store keeps of one cached answer, without its body and its vector."""

    id: int
    identity: bytes
    partition: bytes
    namespace: str
    created: float
    expires: float | None
    used: float
    """Seconds since the epoch of the last hit that was persisted; recency for eviction."""
    size: int
    """Bytes of body and text: what the byte cap counts."""
    has_vector: bool = True
    group: int | None = None
    """Id of the entry whose answer this one's was found to say again; None: its own."""
    labels: int = 0
    """How often the answer was checked against a fresh one, and `wrong` how often it was not right."""
    wrong: int = 0

    def is_fresh(self, now: float) -> bool:
        """Return whether it has not expired. An entry created in the future (clock skew) is treated as stale.

        A clock that was wrong for an hour would else let what was stored meanwhile outlive its time by years.
        """
        return self.expires is None or self.created - CLOCKS_S <= now < self.expires


@dataclass(slots=True)
class LogRecord:
    """One call read from a user's log. Adapters in `logs/` fill in what their format carries.

    Not frozen: logs have millions of them.
    """

    source: str
    """File and line, as `name:line`."""
    provider: str
    model: str
    request: Json
    """The request body, as the provider's API takes it; empty when the log has no text (flaw "no_text")."""
    answer: str | None
    """The response as text (None: the log has no response body)."""
    usage: Usage | None
    start: float | None
    """Seconds since the epoch."""
    end: float | None = None
    status: int | None = None
    finish: str = ""
    """The provider's finish or stop reason, "" when not logged."""
    tenant: str = ""
    flaw: str = ""
    """Why this answer could not be stored ("error", "truncated", "tool_calls", ...), "" when it could."""
    tier: str = ""
    """The service tier the provider billed ("flex", "priority", "batch", ...), "" when not logged."""
    cost: Decimal | None = None
    """Dollars that the log says the call cost; None when it does not say."""
    session: str = ""
    """The conversation or session the log puts the call in, "" when it names none."""
    key: bytes = b""
    """An opaque identity of the whole prompt, in logs that hold no text ("no_text") but tell equal prompts apart."""
    format: str = ""
    """The name of the adapter that read it."""


@dataclass(frozen=True, slots=True)
class Warn:
    """A typed warning: a stable code, what was seen, and what the user can do."""

    code: str
    message: str
    hint: str = ""


@dataclass(slots=True)
class Result:
    """What every measurement returns; `measure.result` turns it into the stable JSON document."""

    command: str
    params: dict[str, Any]
    environment: dict[str, Any]
    started_at: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    warnings: list[Warn] = field(default_factory=list)


class VectorSpace(Protocol):
    """Whose vectors these are: what a store must know of the embedder that made them."""

    name: str
    dim: int
    fingerprint: str
    """Hex digest of everything that determines the vectors: equal means interchangeable."""


class Embedder(VectorSpace, Protocol):
    """Text to unit vectors. A text without a known token gives the zero vector."""

    def embed(self, text: str) -> Vector:
        """Return the vector of one text, shape (dim,)."""

    def embed_many(self, texts: Sequence[str]) -> Vector:
        """Return one row a text, shape (len(texts), dim); equal to `embed` row by row."""


class Index(Protocol):
    """Nearest neighbours by cosine similarity over unit vectors; ids are the caller's."""

    def __len__(self) -> int:
        """Return the number of ids that can be found."""

    def add(self, ids: Ids, vectors: Vector) -> None:
        """Add rows, shape (n,) and (n, dim). Raises ValueError on NaN, wrong shape or a known id."""

    def remove(self, ids: Iterable[int]) -> None:
        """Forget ids; unknown ones are ignored."""

    def search(self, vector: Vector, k: int = 1) -> tuple[Ids, Vector]:
        """Return up to k (ids, similarities), best first; fewer when the index holds fewer."""

    def fetch(self, ids: Ids) -> tuple[Ids, Vector]:
        """Return those of the ids that are here, in their order, and copies of their vectors."""

    def memory_bytes(self) -> int:
        """Return the bytes of memory in use."""


class Policy(Protocol):
    """Serve or not, given the evidence; learns from labels."""

    name: str
    learns: bool
    """Whether labels change it: then its state belongs in the store."""
    candidates: int
    """Nearest neighbours it wants to see the evidence of; 1 means that similarity is all it looks at."""

    def decide(self, namespace: str, evidence: Evidence) -> Verdict:
        """Return whether to serve, the cutoff that applied, and whether to check the hit."""

    def observe(self, namespace: str, evidence: Evidence, *, same: bool) -> None:
        """Learn that this candidate's answer was, or was not, right: of a miss, or of a hit that was checked."""

    def unsure(self, namespace: str, evidence: Evidence) -> None:
        """Learn that nobody can tell whether this candidate's answer was right: of a miss, or of a checked hit."""

    def state(self) -> dict[str, Any]:
        """Return what `load` needs to go on later, JSON-ready."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state; one of another version, embedder or feature set starts cold."""


class Store(Protocol):
    """Where entries live. A write is acknowledged when `append` returns. A fault raises StoreError."""

    def append(
        self,
        request: Request,
        completion: Completion,
        vector: Vector | None,
        *,
        created: float,
        expires: float | None,
        group: int | None = None,
    ) -> Entry:
        """Keep one entry, replacing the one of the same identity; return it with its new id (ids only grow).

        :param group: the entry whose answer this one's was found to say again.
        """

    def batch(self) -> AbstractContextManager[None]:
        """Return what makes the writes inside it one: all of them are acknowledged at its end, or none is."""

    def get(self, id: int, identity: bytes | None = None) -> Completion | None:
        """Return the completion of an entry, or None when it is gone, unreadable, or of another identity."""

    def text(self, id: int) -> str | None:
        """Return the prompt text of an entry, or None when it is gone."""

    def delete(self, ids: Sequence[int]) -> None:
        """Forget entries; unknown ids are ignored."""

    def touch(self, used: Mapping[int, float]) -> None:
        """Persist the time of last use, id by id."""

    def learn(self, records: Mapping[int, tuple[int, int, int]]) -> None:
        """Persist (group, labels, wrong), id by id; unknown ids are ignored."""

    def save(self, key: str, state: Mapping[str, Any]) -> None:
        """Keep a JSON-ready state under a key."""

    def saved(self, key: str) -> dict[str, Any] | None:
        """Return the state kept under a key, None when there is none or it cannot be read."""

    def entries(self) -> Iterator[Entry]:
        """Yield every entry, oldest id first."""

    def vectors(self) -> tuple[Ids, Vector]:
        """Return all ids that have a vector and their vectors, in the order of the ids."""

    def compact(self) -> None:
        """Give back the space of deleted entries."""

    def close(self) -> None:
        """Release the store; a second call does nothing."""


class HeldStore(Store, Protocol):
    """A store on a disk, which says whose vectors it holds."""

    embedder: VectorSpace


class Progress(Protocol):
    """How a measurement reports where it is; the command line draws it, tests ignore it."""

    def __call__(self, done: int, total: int, what: str) -> None:
        """Say that `done` of `total` steps are done and which comes next."""
