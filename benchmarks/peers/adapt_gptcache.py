"""GPTCache as a library: `init_similar_cache` with its own SQLite and faiss, its own distance evaluation.

Settings of its own: `mode`, "semantic" (the default) or "exact" (its map of equal prompts, which the quick start opens
with). Its default embedder is an ONNX model that it fetches from a model hub; `embedder` names one of ours instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.peers.embedders import loaded
from benchmarks.peers.protocol import Found, Turns, serve

NO_LIMIT = 10_000_000
"""Its own limit is 1,000 entries unless told: an arm that asks for none must not be cut off there."""


class GptCache:
    """`gptcache.adapter.api.get` and `put`."""

    packages: tuple[str, ...] = ("gptcache", "faiss-cpu", "SQLAlchemy", "numpy")

    def __init__(self) -> None:
        self.cache: Any = None

    def open(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        from gptcache import Cache, Config
        from gptcache.adapter import api
        from gptcache.manager import manager_factory
        from gptcache.processor.pre import get_prompt

        self.close()
        self.api = api
        threshold = settings["threshold"]
        config = Config() if threshold is None else Config(similarity_threshold=threshold)
        size = settings["capacity"] or NO_LIMIT
        cache = Cache()
        if settings.get("mode") == "exact":
            cache.init(pre_embedding_func=get_prompt, data_manager=manager_factory("map", settings["folder"], size))
            told = {"scale": "equal or not", "embedder": None}
        else:
            embedding = Embedding(settings["embedder"]) if settings["embedder"] else api.Onnx()
            store = semantic_store(settings["folder"], embedding.dimension, size)
            api.init_similar_cache(cache_obj=cache, embedding=embedding, data_manager=store, config=config)
            told = {"scale": "(1 + cosine) / 2", "embedder": settings["embedder"] or "onnx"}
        self.cache = cache
        return told | {"threshold": config.similarity_threshold}

    def put(self, turns: Turns, answer: str) -> None:
        self.api.put(turns[-1], answer, cache_obj=self.cache)

    def fill(self, prompts: Sequence[Turns], answers: Sequence[str]) -> None:
        self.cache.import_data([turns[-1] for turns in prompts], list(answers))

    def get(self, turns: Turns) -> Found:
        near: list[tuple[str, float]] = []
        # Its default looks at the last message alone, and so does this.
        answer = self.api.get(turns[-1], cache_obj=self.cache, hit_callback=near.extend)
        return answer, near[0][1] if near else None

    def close(self) -> None:
        if self.cache is not None:
            self.cache.data_manager.close()
            self.cache = None


def semantic_store(folder: str, dimension: int, size: int) -> Any:
    """Return its store in SQLite and faiss, which holds `size` entries."""
    from gptcache.manager import manager_factory

    return manager_factory(
        "sqlite,faiss", folder, vector_params={"dimension": dimension}, eviction_params={"max_size": size}
    )


class Embedding:
    """One of our embedders, in the shape that GPTCache takes."""

    def __init__(self, name: str) -> None:
        self.model = loaded(name)
        self.dimension = self.model.dim
        self.embed: Callable[[str], Any] = self.model.embed

    def to_embeddings(self, text: str, **_: Any) -> Any:
        return self.embed(text)


if __name__ == "__main__":
    serve(GptCache())
