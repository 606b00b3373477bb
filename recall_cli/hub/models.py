"""The nouns of a hub and the protocols between its parts.

A hub is a named set of documents. Documents are cut into chunks, chunks have vectors, and a question is answered
with the chunks, or the documents, that match it best. Every write of documents makes a new *revision*.

Imports nothing heavy at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack

from recall_cli.errors import RecallError, StoreError, StoreMismatch
from recall_cli.types import Ids, Vector, VectorSpace

if TYPE_CHECKING:
    from collections.abc import Mapping

LEGS = 30
"""Candidates that each of the two legs (vector, lexical) hands over."""
MOST = 20
"""Results of one recall at most."""
LONGEST_QUESTION = 2_000
"""Characters of a question at most."""
TOKEN_S = 3_600
"""Seconds that a token lives where nobody says how long. Here, since the command line names it and loads little."""
ALPHA = 0.5
"""Weight of the vector leg in a new hub's fused score.

The best on Cranfield and on CISI, each by itself; from 0.35 to 0.65 nDCG@10 is within 0.01 of it on both. `recall hub
eval --fit` shows the curve of a hub.
"""


class Visibility(StrEnum):
    """Who may ask a hub."""

    PUBLIC = "public"
    """Everybody."""
    RESTRICTED = "restricted"
    """Whoever has a token for it; its existence is no secret."""
    PRIVATE = "private"
    """Its owner, and whoever has a token for it."""


class Level(StrEnum):
    """What a result is."""

    DOC = "doc"
    CHUNK = "chunk"


class Source(StrEnum):
    """Which leg found a passage."""

    VECTOR = "vector"
    LEXICAL = "lexical"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Document:
    """A document as it is ingested."""

    id: str
    """Unique in its hub, chosen by whoever feeds it: a path, a URL, a key."""
    text: str
    title: str = ""
    url: str = ""
    updated: float | None = None
    """Seconds since the epoch of the last edit, None when nobody said."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document, about 500 tokens, as it is indexed."""

    ordinal: int
    """Its place in the document, from 0."""
    text: str
    digest: bytes
    """Digest (16 bytes) of embedder, chunker version, title and text: an equal one is not embedded again."""


@dataclass(frozen=True, slots=True)
class DocumentState:
    """What is known of a stored document without reading it."""

    digest: bytes
    """Digest (16 bytes) of chunker version, title, URL and text: an equal one is unchanged."""
    chunks: int


Upsert = tuple[Document, DocumentState, Sequence[Chunk], Vector]
"""A document, its state, its chunks and their vectors, shape (len(chunks), dim)."""

EmbedChunks = Callable[[Sequence[tuple[str, str]]], Iterable[tuple[bytes, Vector]]]
"""(title, text) of some chunks -> their digests and vectors, shape (dim,) each."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A stored chunk with its document's facts."""

    chunk_id: int
    doc_id: str
    title: str
    url: str
    ordinal: int
    text: str


@dataclass(frozen=True, slots=True)
class HubInfo:
    """What a hub is."""

    slug: str
    uid: str
    """Random, made once: a hub that is deleted and made anew is another hub."""
    visibility: Visibility
    owner: str
    """The subject (`sub`) of the tokens that may do everything with it; "" for nobody."""
    embedder: str
    """The spec that `make_embedder` reads."""
    fingerprint: str
    dim: int
    revision: int
    """Grows with every change of documents, visibility or embedder."""
    documents: int
    chunks: int
    updated: float | None
    """Seconds since the epoch of the last change; None before the first."""
    alpha: float
    """Weight of the vector leg in the fused score, 0..1."""
    min_score: float | None
    """Cosine below which nothing is returned where the question names no limit of its own."""

    @property
    def was_never_fed(self) -> bool:
        """Whether nothing was ever brought into it: one that was emptied has answers, and they are empty."""
        return not self.documents and self.updated is None


class Settings(TypedDict, total=False):
    """Those of a hub's facts that can be set. In a change, what is not named stays."""

    visibility: Visibility
    owner: str
    alpha: float
    min_score: float | None
    """None: no limit."""


@dataclass(frozen=True, slots=True)
class Question:
    """A recall as it is asked. Made by `hub.api.question.read_question`, which checks it."""

    text: str
    k: int = 10
    level: Level = Level.DOC
    rerank: bool = True
    min_score: float | None = None


@dataclass(slots=True)
class Match:
    """A candidate on its way through fusion and reranking; at the end, a result."""

    passage: Passage
    source: Source
    cosine: float
    """Raw cosine of question and chunk: the only score that `min_score` is held against."""
    bm25: float
    fused: float
    rerank: float | None = None

    @property
    def score(self) -> float:
        """The rank score: the reranker's where there is one, else the fused one."""
        return self.fused if self.rerank is None else self.rerank


@dataclass(slots=True)
class Answer:
    """What a recall found. `timings_us` has embed, vector, lexical, fuse, rerank and total."""

    hub: HubInfo
    question: Question
    results: list[Match]
    reranked: bool = False
    rerank_error: str = ""
    """Why it was not reranked although that was asked for: timeout, status_429, bad_answer, ..."""
    cached: bool = False
    timings_us: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    """What an ingest did."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    """Documents that could not be taken, by reason."""
    chunks: int = 0
    """Chunks of the added and changed documents."""
    embedded: int = 0
    """Of these, the ones that had to be embedded; the others' vectors were there."""
    revision: int = 0
    seconds: float = 0.0


class NoSuchHub(StoreError):
    """There is no hub of that name."""


class OtherModel(StoreMismatch):
    """The embedder of a hub's name that is here is not the one that the hub was made with."""


class RerankError(RecallError):
    """A reranker gave no order that can be used; the fused one stands. Its text is a short name, as in status_429."""


class Reranker(Protocol):
    """Judges candidates against the question they may answer."""

    async def __call__(self, question: str, matches: Sequence[Match]) -> Sequence[float]:
        """Return one score a match, in their order, higher is better. Raises RerankError."""
        ...


class HubEngine(Protocol):
    """Where one hub's documents, chunks and vectors are, and the two legs over them.

    Any method may be called from any thread. A write is all or nothing, and survives a killed process once it has
    returned. Searches see the last whole revision. Raises StoreError where the store fails.
    """

    def info(self) -> HubInfo:
        """Return the hub's facts as of now."""
        ...

    def documents(self) -> Iterator[tuple[str, DocumentState]]:
        """Yield every document's id and state, in the order of the ids."""
        ...

    def document(self, id: str) -> Document | None:
        """Return a document as it was stored, None when it is not there."""
        ...

    def known(self, digests: Sequence[bytes]) -> Mapping[bytes, Vector]:
        """Return the vectors of those chunk digests that are stored, shape (dim,) each."""
        ...

    def apply(
        self,
        upserts: Iterable[Upsert],
        removed: Iterable[str] = (),
        *,
        fingerprint: str = "",
    ) -> int:
        """Store and remove documents in one write; return the new revision (the old one when nothing was given).

        Both are read once, the removals after the upserts: what is to go may be known only when all has come.
        An id comes once. Raises StoreMismatch for vectors of another width, and when the hub's fingerprint is no longer
        the one given.

        :param upserts: document, state, its chunks, and their vectors, shape (len(chunks), dim), unit norm (or zero:
            no known token; such a chunk is found by its words alone).
        """
        ...

    def move(self, space: VectorSpace, embed: EmbedChunks) -> int:
        """Give every chunk the vector of another embedder, in one write; return the new revision.

        :param embed: into that space.
        """
        ...

    def configure(self, **changes: Unpack[Settings]) -> HubInfo:
        """Change the hub's settings; what is not named stays. Makes a new revision."""
        ...

    def vector(self, vector: Vector, n: int) -> tuple[Ids, Vector]:
        """Return chunk ids and cosines of the n nearest chunks, best first."""
        ...

    def lexical(self, text: str, n: int) -> tuple[Ids, Vector]:
        """Return chunk ids and BM25 scores of the n best chunks that share a word with the text, best first.

        A word counts as often as the text says it, and a title's words count twice. Never fails on any text,
        whatever characters it holds.
        """
        ...

    def score(self, text: str, ids: Ids) -> tuple[Vector, Vector]:
        """Return what ranks these chunks exactly: their vectors, shape (n, dim), and their BM25 scores.

        0 where no word is shared, zeros for what is gone meanwhile: the order of the ids is kept.
        """
        ...

    def sample(self, most: int) -> Vector:
        """Return the vectors of up to so many chunks, spread evenly over the hub, shape (n, dim)."""
        ...

    def passages(self, ids: Ids) -> list[Passage]:
        """Return these chunks' texts, in the order asked for; those that are gone meanwhile are left out."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...
