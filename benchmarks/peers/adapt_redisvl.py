"""RedisVL's SemanticCache on Redis with its search module, whose address is in PEERS_REDIS_URL.

It has no exact tier: an equal prompt goes the same way as a near one. Its default embedder is fetched from a model hub;
`embedder` names one of ours instead. Its threshold is a cosine distance: lower is stricter.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from benchmarks.peers.embedders import loaded
from benchmarks.peers.protocol import Found, Turns, serve


class RedisVl:
    """`SemanticCache.store` and `check`."""

    packages: tuple[str, ...] = ("redisvl", "redis", "numpy")

    def __init__(self) -> None:
        self.cache: Any = None

    def open(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        from redisvl.extensions.cache.llm import SemanticCache
        from redisvl.utils.vectorize import CustomVectorizer

        self.close()
        if settings["capacity"]:
            raise ValueError("it has no limit of its own: entries go by their time to live, or when Redis is full")
        model = loaded(settings["embedder"])
        self.cache = SemanticCache(
            vectorizer=CustomVectorizer(embed=lambda text: model.embed(text).tolist()),
            redis_url=os.environ["PEERS_REDIS_URL"],
            **({} if settings["threshold"] is None else {"distance_threshold": settings["threshold"]}),
        )
        return {
            "threshold": self.cache.distance_threshold,
            "scale": "cosine distance",
            "embedder": settings["embedder"],
        }

    def put(self, turns: Turns, answer: str) -> None:
        self.cache.store(prompt=turns[-1], response=answer)

    def get(self, turns: Turns) -> Found:
        found = self.cache.check(prompt=turns[-1])
        if not found:
            return None, None
        return found[0]["response"], 1 - float(found[0]["vector_distance"])

    def close(self) -> None:
        if self.cache is not None:
            self.cache.delete()
            self.cache.disconnect()
            self.cache = None


if __name__ == "__main__":
    serve(RedisVl())
