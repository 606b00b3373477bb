"""The embedders that a hub may have: those of the cache, and any behind an OpenAI-compatible `/v1/embeddings` endpoint.

An endpoint gets texts in batches, several at a time. A busy or failing one is asked again, later each time, and as late
as it says itself. Its answers are checked whole: an index missing or twice, another dimension or a value that is not a
number is an error, never a vector.
"""

from __future__ import annotations

import http.client
import os
import random
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from queue import Empty, SimpleQueue

import numpy as np
import orjson
from blake3 import blake3

from recall_cli.cache.embed.registry import NAMES, make_embedder
from recall_cli.errors import EmbedderError, UpstreamError, UsageError
from recall_cli.types import Embedder, Vector
from recall_cli.util.endpoint import address, key_of

KIND = "openai:"
DEFAULT_URL = "https://api.openai.com/v1"
KEY, OPENAI_KEY = "RECALL_EMBED_KEY", "OPENAI_API_KEY"
SPEC = "openai:MODEL@URL"
BATCH_TEXTS = 128
BATCH_CHARS = 200_000
"""About 50,000 tokens: well below what endpoints take in one call."""
LANES = 4
"""Calls at a time."""
FIRST_WAIT_S = 0.5
MOST_REPLY_BYTES = 64 << 20
"""Several times what 128 vectors of 4,096 numbers take."""
RETRIED = frozenset((408, 429, 500, 502, 503, 504, 529))
PROBE = "dimension"
GONE = (ConnectionError, http.client.RemoteDisconnected)
"""What a connection that was kept open ends with when the other side had enough of it."""

Connections = SimpleQueue[http.client.HTTPConnection]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an endpoint is waited for."""

    tries: int
    silence_s: float
    """How long it may send nothing."""
    longest_wait_s: float
    """Between two tries; an endpoint that asks for more is given up."""
    call_s: float
    """How long a call may take in all: one that sends a byte now and then is never silent."""


BULK = Patience(7, 30.0, 60.0, 300.0)
"""With waits that double from half a second: about half a minute between the first try and the last."""
QUESTION = Patience(2, 5.0, 1.0, 10.0)
"""Somebody waits for the answer."""


class RemoteEmbedder:
    """Asks an endpoint for vectors (see `types.Embedder`). A text of blanks alone has the zero vector, unasked.

    Every call may raise UpstreamError.

    :param dim: of its vectors where that is known; without it the endpoint is asked once.
    :param sleep: waits between tries.
    """

    def __init__(
        self,
        model: str,
        url: str = DEFAULT_URL,
        key: str = "",
        *,
        dim: int | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = address(url, of="the embedder", hint=f"write {SPEC}, as in {KIND}text-embedding-3-small@{DEFAULT_URL}")
        self.model = model
        self.url = url.rstrip("/")
        self.name = f"{KIND}{model}@{self.url}"
        # Another host may serve other weights under the same name.
        self.fingerprint = blake3(f"openai embeddings 1|{self.url}|{model}".encode()).hexdigest()
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._path = parts.path.rstrip("/") + "/embeddings" + (f"?{parts.query}" if parts.query else "")
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._sleep = sleep
        self._idle: Connections = SimpleQueue()
        # Embedders have no end in their protocol; whoever lets go of this one lets go of its connections.
        weakref.finalize(self, _close, self._idle)
        self.dim = dim or len(self._ask([PROBE], QUESTION)[0])

    def embed(self, text: str) -> Vector:
        """Return the vector of one text, shape (dim,)."""
        vector: Vector = self._rows([text], QUESTION)[0]
        return vector

    def embed_many(self, texts: Sequence[str]) -> Vector:
        """Return one row a text, shape (len(texts), dim)."""
        batches = list(_batches(texts))
        with ThreadPoolExecutor(LANES, thread_name_prefix="recall-embed") as lanes:
            rows = list(lanes.map(lambda batch: self._rows(batch, BULK), batches))
        return np.concatenate(rows) if rows else np.empty((0, self.dim), dtype=np.float32)

    def _rows(self, texts: Sequence[str], patience: Patience) -> Vector:
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        said = [at for at, text in enumerate(texts) if text.strip()]
        if said:
            found = self._ask([texts[at] for at in said], patience)
            if found.shape[1] != self.dim:
                raise self._failed(f"gave vectors of {found.shape[1]} numbers, not {self.dim}", "the model has changed")
            vectors[said] = found
        return vectors

    def _ask(self, texts: Sequence[str], patience: Patience) -> Vector:
        """Return the unit vectors of texts, asking again where that may help."""
        body = orjson.dumps({"model": self.model, "input": list(texts), "encoding_format": "float"})
        for attempt in range(1, patience.tries + 1):
            status, reply, wait = self._post(body, patience)
            if status == 200:
                return self._vectors(reply, len(texts))
            # A spent quota is a 429 too, and no wait mends it.
            is_hopeless = status not in (*RETRIED, 0) or b"insufficient_quota" in reply
            if is_hopeless or attempt == patience.tries or wait > patience.longest_wait_s:
                break
            backoff = FIRST_WAIT_S * 2 ** (attempt - 1) * random.uniform(0.75, 1.25)
            self._sleep(max(wait, min(backoff, patience.longest_wait_s)))
        if status == 0:
            raise self._failed(f"could not be reached: {reply.decode()}", "check the address, and that it runs there")
        hint = f"set {KEY} to its key" if status in (401, 403) else f"it said: {_shown(reply)}"
        raise self._failed(f"answered with status {status}", hint)

    def _post(self, body: bytes, patience: Patience) -> tuple[int, bytes, float]:
        """Return status, body and the seconds to wait before another try; status 0 and why when there is no answer."""
        connection, kept = self._connection(patience.silence_s)
        late = threading.Event()
        timer = threading.Timer(patience.call_s, _hang_up, (connection, late))
        timer.daemon = True
        timer.start()
        try:
            connection.request("POST", self._path, body, self._headers)
            answer = connection.getresponse()
            reply = answer.read(MOST_REPLY_BYTES + 1)
            if len(reply) <= MOST_REPLY_BYTES and answer.length:
                raise http.client.IncompleteRead(reply, answer.length)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if late.is_set():
                return 0, f"no whole answer within {patience.call_s:g} s".encode(), 0.0
            if kept and isinstance(error, GONE):
                return self._post(body, patience)
            return 0, (str(error) or type(error).__name__).encode("utf-8", "replace"), 0.0
        finally:
            timer.cancel()
        if len(reply) > MOST_REPLY_BYTES:
            connection.close()
            raise self._failed(f"answered with more than {MOST_REPLY_BYTES:,} bytes", "check that it is an embedder")
        self._idle.put(connection)
        return answer.status, reply, retry_after(answer.getheader("Retry-After"), time.time())

    def _connection(self, silence_s: float) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection that nobody uses, and whether it was open before."""
        try:
            held = self._idle.get_nowait()
        except Empty:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            return kind(self._host, self._port, timeout=silence_s), False
        held.timeout = silence_s
        if held.sock is not None:
            held.sock.settimeout(silence_s)
        return held, held.sock is not None

    def _vectors(self, reply: bytes, n: int) -> Vector:
        try:
            rows = orjson.loads(reply)["data"]
            places = [row["index"] for row in rows]
            vectors = np.array([row["embedding"] for row in rows], dtype=np.float32)
        except (ValueError, LookupError, TypeError):
            raise self._failed("gave an answer that is no list of vectors", f"it said: {_shown(reply)}") from None
        # As doubles: the square of a large float is none.
        norms = np.linalg.norm(vectors.astype(np.float64), axis=-1, keepdims=True)
        is_whole = all(type(place) is int for place in places) and sorted(places) == list(range(n))
        if not is_whole or vectors.ndim != 2 or not vectors.shape[1] or not np.isfinite(norms).all():
            raise self._failed(f"did not give one vector for each of {n} texts", f"it said: {_shown(reply)}")
        units: Vector = (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)
        return units[np.argsort(places)]

    def _failed(self, what: str, hint: str) -> UpstreamError:
        return UpstreamError(f"the embedder at {self.url} {what}", hint=hint)


def _hang_up(connection: http.client.HTTPConnection, late: threading.Event) -> None:
    """End a call that another thread waits for."""
    late.set()
    with suppress(OSError, AttributeError):  # not connected, or not any more
        connection.sock.shutdown(socket.SHUT_RDWR)


def _close(idle: Connections) -> None:
    while not idle.empty():
        idle.get_nowait().close()


def make_remote(spec: str, *, dim: int | None = None, environ: Mapping[str, str] = os.environ) -> RemoteEmbedder:
    """Return the embedder of a spec, `openai:MODEL[@URL]`, with the key that the environment has for it.

    Raises UsageError for a spec that is none, and UpstreamError when its dimension must be asked for and cannot be.
    """
    model, at, url = spec.removeprefix(KIND).rpartition("@http")
    model, url = (model, f"http{url}") if at else (spec.removeprefix(KIND), DEFAULT_URL)
    if not spec.startswith(KIND) or not model.strip():
        raise UsageError(f"there is no embedder {spec!r}", hint=f"write {SPEC}, as in {KIND}text-embedding-3-small")
    if not at and "@" in model:
        # Taken for a model's name, it would send every document to OpenAI.
        raise UsageError(
            f"the address in {spec!r} is no http or https URL",
            hint=f"write {SPEC}, as in {KIND}m@http://127.0.0.1:8080/v1",
        )
    # A hub's settings name the endpoint, and a hub may come from elsewhere: OpenAI's key goes to OpenAI alone.
    names = (KEY, OPENAI_KEY) if url.rstrip("/") == DEFAULT_URL else (KEY,)
    return RemoteEmbedder(model.strip(), url, key_of(names, environ, of="the embedder"), dim=dim)


def retry_after(value: str | None, now: float) -> float:
    """Return the seconds that a Retry-After header asks for: a number, or a date; 0 for none that can be read."""
    if not value:
        return 0.0
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError):
        return 0.0


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == BATCH_TEXTS or size + len(text) > BATCH_CHARS):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def _shown(reply: bytes) -> str:
    return reply[:200].decode("utf-8", "replace").strip() or "nothing"


def hub_embedder(spec: str, dim: int | None = None) -> Embedder:
    """Return the embedder of a spec: what `cache.embed.registry.make_embedder` reads, or `openai:MODEL@URL`.

    Raises EmbedderError or UsageError when there is none, UpstreamError when an endpoint must be asked and cannot be.

    :param dim: of its vectors where that is known, as a hub knows it: then no endpoint is asked before it is needed.
    """
    if spec.startswith("openai:"):
        return make_remote(spec, dim=dim)
    kind, _, source = spec.partition(":")
    if kind == "model2vec" and os.path.isdir(source):
        # A hub is asked from any folder, and not only from the one that it was made in.
        spec = f"{kind}:{os.path.abspath(source)}"
    if kind not in {name.partition(":")[0] for name in NAMES}:
        raise EmbedderError(
            f"there is no embedder named {spec!r}", hint=f"choose one of {', '.join(NAMES)}, openai:MODEL@URL"
        )
    return make_embedder(spec)
