"""sulci as a library: `Cache` with its faiss backend, which its documents call the fastest local one.

Settings of its own: `context_window` (turns that are blended into the vector; its default is none of them) and
`vectors`, an .npz of `texts` and `vectors` to embed by instead of `embedder`. Its default embedder is all-MiniLM-L6-v2
by sentence-transformers, which fetches it from a model hub; our `minilm` is that model in int8.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import count
from typing import Any

from benchmarks.peers.embedders import loaded
from benchmarks.peers.protocol import Found, Turns, serve


class Sulci:
    """`Cache.set` and `Cache.get`."""

    packages: tuple[str, ...] = ("sulci", "faiss-cpu", "numpy")

    def __init__(self) -> None:
        self.cache: Any = None
        self.sessions = count()

    def open(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        from sulci import Cache

        self.close()
        self.window = settings.get("context_window", 0)
        self.cache = Cache(
            backend="faiss",
            db_path=settings["folder"],
            embedding_model=embedder_of(settings),
            threshold=settings["threshold"],
            context_window=self.window,
            # One number for lookups with and without earlier turns, as its own default has it, without the warning.
            context_threshold=settings["threshold"],
            telemetry=False,
        )
        if settings["capacity"] is not None:
            raise ValueError("sulci evicts by age alone: it has no limit of entries")
        return {
            "threshold": self.cache.threshold,
            "scale": "cosine similarity",
            "embedder": settings["embedder"] or "all-MiniLM-L6-v2",
        }

    def put(self, turns: Turns, answer: str) -> None:
        self.cache.set(turns[-1], answer)

    def get(self, turns: Turns) -> Found:
        answer, similarity, _ = self.cache.get(turns[-1], session_id=self._told(turns))
        return answer, similarity or None

    def close(self) -> None:
        # It holds no handle beyond memory: every write has replaced its files already.
        self.cache = None

    def _told(self, turns: Turns) -> str | None:
        """Return a session that was told the earlier turns; None where the cache is set to look at none."""
        if not self.window or len(turns) == 1:
            return None
        session = f"session-{next(self.sessions)}"
        window = self.cache.get_context(session)
        for asked, answered in zip(turns[:-1:2], turns[1::2], strict=False):
            window.add_turn(asked, role="user")
            window.add_turn(answered, role="assistant")
        return session


def embedder_of(settings: Mapping[str, Any]) -> Any:
    """Return what it embeds by; its own name for its default where nothing else is asked for."""
    if settings.get("vectors"):
        return known(settings["vectors"])
    return Ours(settings["embedder"]) if settings["embedder"] else "minilm"


class Ours:
    """One of our embedders, in the shape that sulci takes."""

    def __init__(self, name: str) -> None:
        self.model = loaded(name)
        self.dimension = self.model.dim

    def embed(self, text: str) -> list[float]:
        vector: list[float] = self.model.embed(text).tolist()
        return vector

    def embed_batch(self, texts: list[str]) -> list[list[float]]:
        return [self.embed(text) for text in texts]


class Known(Ours):
    """Vectors that were computed already, by text.

    :param file: an .npz of `texts` and `vectors`.
    """

    def __init__(self, file: str) -> None:
        import numpy as np

        with np.load(file) as held:
            self.vectors = dict(zip(held["texts"].tolist(), held["vectors"], strict=True))
        self.dimension = len(next(iter(self.vectors.values())))

    def embed(self, text: str) -> list[float]:
        vector: list[float] = self.vectors[text].tolist()
        return vector


@cache
def known(file: str) -> Known:
    """Read a file once a process."""
    return Known(file)


if __name__ == "__main__":
    serve(Sulci())
