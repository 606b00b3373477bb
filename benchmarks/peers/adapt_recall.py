"""recall as a library: a cache in a SQLite file, opened by the one call that README gives.

Settings of its own: `policy` ("static", the default, or "adaptive"), `memory` (no file).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.embedders import loaded
from benchmarks.peers.protocol import Found, Turns, messages, serve


class Recall:
    """`Cache.get` and `Cache.put`."""

    packages: tuple[str, ...] = ("recall-cli", "faiss-cpu", "nanotoken")

    def __init__(self) -> None:
        self.cache: Any = None

    def open(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        from recall_cli import open_cache
        from recall_cli.cache.policy.static import DEFAULT_TAU

        self.close()
        threshold = DEFAULT_TAU if settings["threshold"] is None else settings["threshold"]
        self.cache = open_cache(
            None if settings.get("memory") else Path(settings["folder"]) / "answers.db",
            embedder=loaded(settings["embedder"] or "static"),
            policy=settings.get("policy", "static"),
            tau=threshold,
            max_entries=settings["capacity"],
        )
        known = threshold if settings.get("policy", "static") == "static" else None
        return {"threshold": known, "scale": "cosine similarity", "embedder": self.cache.embedder.name}

    def put(self, turns: Turns, answer: str) -> None:
        from recall_cli import Completion

        self.cache.put(request(turns), Completion(answer.encode()))

    def get(self, turns: Turns) -> Found:
        found = self.cache.get(request(turns))
        body = None if found.completion is None else found.completion.body.decode()
        return body, found.decision.similarity

    def close(self) -> None:
        if self.cache is not None:
            self.cache.close()
            self.cache = None


def request(turns: Turns) -> Any:
    """Return the request of a prompt: of a conversation, the one that a chat completion of it makes."""
    from recall_cli import text_request
    from recall_cli.cache.request import parse_body

    if len(turns) == 1:
        return text_request(turns[0])
    return parse_body("openai", {"model": "m", "temperature": 0, "messages": messages(turns)})


if __name__ == "__main__":
    serve(Recall())
