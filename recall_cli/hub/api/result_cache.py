"""Answers kept for a minute, under everything they hang on.

The hub's revision is part of the key: any change of its documents, visibility or embedder leaves what was kept
before unreachable, at once. Settings are named besides: an engine in the middle of a write obeys them before its
revision moves. Answers of a hub that is not public are kept only where that was asked for, and then each principal
has its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import orjson
from blake3 import blake3
from cachetools import TTLCache

from recall_cli.hub.models import Answer, HubInfo, Question, Visibility

TTL_S = 60.0
MOST_BYTES = 32 << 20
"""Bytes of answers kept, as far as they are counted: the least recently read go first."""

MATCH_BYTES = 1_000
"""What a result takes beside its passage's texts: objects, numbers, names."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer and when it was kept."""

    answer: Answer
    at: float
    """On the cache's own clock."""


class ResultCache:
    """The last answers. Belongs to one thread."""

    def __init__(
        self,
        ttl_s: float = TTL_S,
        *,
        private: bool = False,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep nothing yet.

        :param ttl_s: seconds that an answer is good for; 0 keeps none.
        :param private: also keep answers of hubs that are not public, for each principal apart.
        """
        self.ttl_s = ttl_s
        self._private = private
        self._clock = clock
        self._kept: TTLCache[bytes, Kept] = TTLCache(most_bytes, ttl_s, timer=clock, getsizeof=_size)

    def __len__(self) -> int:
        return len(self._kept)

    def key(self, hub: HubInfo, question: Question, *, principal: str, reranker: str) -> bytes | None:
        """Return what an answer is kept under, None when it may not be kept or shared at all.

        :param principal: who asks, with what right; told apart only where the hub is not public.
        :param reranker: the model that the answer passes through, "" for none.
        """
        is_public = hub.visibility is Visibility.PUBLIC
        if not self.ttl_s or not (is_public or self._private):
            return None
        return blake3(
            orjson.dumps(
                [
                    hub.uid,
                    hub.revision,
                    hub.visibility,
                    hub.fingerprint,
                    "" if is_public else principal,
                    question.text,
                    question.k,
                    question.level,
                    reranker if question.rerank else "",
                    hub.min_score if question.min_score is None else question.min_score,
                    hub.alpha,
                ]
            )
        ).digest()

    def get(self, key: bytes) -> tuple[Answer, float] | None:
        """Return an answer and its age in seconds, None when there is none."""
        kept = self._kept.get(key)
        return None if kept is None else (kept.answer, self._clock() - kept.at)

    def put(self, key: bytes, answer: Answer) -> None:
        """Keep an answer, unless it is worth less than the next one may be: its reranker failed."""
        kept = Kept(answer, self._clock())
        if answer.rerank_error or _size(kept) > self._kept.maxsize:
            return
        self._kept[key] = kept


def _size(kept: Kept) -> int:
    return MATCH_BYTES + sum(
        MATCH_BYTES + len(m.passage.text) + len(m.passage.title) + len(m.passage.url) for m in kept.answer.results
    )
