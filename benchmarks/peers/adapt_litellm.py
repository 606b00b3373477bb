"""LiteLLM's cache as a library: `Cache.get_cache` and `add_cache`, keyed by a whole chat completion.

Settings of its own: `mode`, "local" (the default), "disk", "redis" or "redis-semantic". The semantic one asks
`litellm.embedding` for its vectors; here that is one of ours, as a custom provider in the same process, which costs it
less than the request over HTTP that it would otherwise be. Redis' address is in PEERS_REDIS_URL.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from benchmarks.peers.embedders import loaded
from benchmarks.peers.protocol import Found, Turns, messages, serve

NO_LIMIT = 10_000_000
"""Its local cache keeps 200 entries, and no argument says otherwise: an arm that asks for none sets the attribute."""
PROXY_EXAMPLE_TAU = 0.8
"""It has no default for a similarity; its documentation's example takes this."""


class LiteLlm:
    """`litellm.Cache`."""

    packages: tuple[str, ...] = ("litellm", "redisvl", "redis", "diskcache")

    def __init__(self) -> None:
        self.cache: Any = None

    def open(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        # Its prices are else fetched from the network when it is imported, again and again where there is none.
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        from litellm.caching.caching import Cache
        from redis import Redis

        self.close()
        mode = settings.get("mode", "local")
        if mode.startswith("redis"):
            # It has no way to empty itself: what the cache before stored, indexes among it, would be found by this one.
            Redis.from_url(os.environ["PEERS_REDIS_URL"]).flushdb()
        told: dict[str, Any] = {"threshold": None, "scale": "equal or not", "embedder": None}
        if settings["capacity"] and mode != "local":
            raise ValueError("it has no limit of entries: they go by their time to live, or when Redis is full")
        if mode == "local":
            self.cache = Cache(type=mode)
            self.cache.cache.max_size_in_memory = settings["capacity"] or NO_LIMIT
        elif mode == "disk":
            self.cache = Cache(type=mode, disk_cache_dir=settings["folder"])
        elif mode == "redis":
            redis = urlsplit(os.environ["PEERS_REDIS_URL"])
            self.cache = Cache(type=mode, host=redis.hostname, port=redis.port)
        else:
            threshold = PROXY_EXAMPLE_TAU if settings["threshold"] is None else settings["threshold"]
            self.cache = Cache(
                type=mode,
                redis_url=os.environ["PEERS_REDIS_URL"],
                similarity_threshold=threshold,
                redis_semantic_cache_embedding_model=embed_with(settings["embedder"]),
            )
            told = {"threshold": threshold, "scale": "cosine similarity", "embedder": settings["embedder"]}
        return told

    def put(self, turns: Turns, answer: str) -> None:
        self.cache.add_cache(answer_body(answer), **call(turns))

    def get(self, turns: Turns) -> Found:
        asked = call(turns)
        found = self.cache.get_cache(**asked)
        if found is None:
            return None, asked["metadata"].get("semantic-similarity")
        return found["choices"][0]["message"]["content"], asked["metadata"].get("semantic-similarity")

    def close(self) -> None:
        self.cache = None


def call(turns: Turns) -> dict[str, Any]:
    """Return the arguments of the completion that the cache is asked about."""
    return {"model": "gpt-4o", "temperature": 0, "messages": messages(turns), "metadata": {}}


def answer_body(answer: str) -> Any:
    """Return a completion as LiteLLM hands it to its cache."""
    from litellm import Choices, Message, ModelResponse

    choice = Choices(finish_reason="stop", index=0, message=Message(role="assistant", content=answer))
    return ModelResponse(model="gpt-4o", choices=[choice])


def embed_with(name: str) -> str:
    """Make one of our embedders a provider of LiteLLM; return the model's name there."""
    import litellm
    from litellm import CustomLLM, EmbeddingResponse

    model = loaded(name)

    class Ours(CustomLLM):
        def embedding(self, model_response: EmbeddingResponse, input: Any, **_: Any) -> EmbeddingResponse:
            texts = [input] if isinstance(input, str) else input
            model_response.data = [
                {"object": "embedding", "index": at, "embedding": model.embed(text).tolist()}
                for at, text in enumerate(texts)
            ]
            return model_response

    litellm.custom_provider_map = [{"provider": "ours", "custom_handler": Ours()}]
    return f"ours/{name}"


if __name__ == "__main__":
    serve(LiteLlm())
