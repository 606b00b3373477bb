"""One question to a hub, here or on a server, and its answer as the API words it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recall_cli.errors import InputError, UsageError
from recall_cli.hub.api.errors import Refusal
from recall_cli.hub.api.question import read_question
from recall_cli.hub.api.views import answer_json
from recall_cli.hub.client_ import ask_served
from recall_cli.hub.models import Level, Question
from recall_cli.hub.search.rerank import DEADLINE_S, NO_RERANKER, make_reranker
from recall_cli.hub.session import ask, local_hub
from recall_cli.hub.stores.open import Place


@dataclass(frozen=True, slots=True)
class Asked:
    """A question as somebody typed it."""

    text: str
    k: int = 10
    level: Level = Level.DOC
    min_score: float | None = None
    reranker: str = NO_RERANKER
    """As `rerank.make_reranker` reads it; a server has its own."""
    deadline_s: float = DEADLINE_S

    def question(self) -> Question:
        """Return the question, checked as the API checks it. Raises UsageError."""
        body = {
            "question": self.text,
            "k": self.k,
            "level": self.level.value,
            "rerank": self.reranker != NO_RERANKER,
            "min_score": self.min_score,
        }
        try:
            return read_question(body)
        except Refusal as error:
            raise UsageError(str(error), hint="recall hub query --help says what may be asked") from None


def asked(wanted: Asked, slug: str, place: Place | str) -> dict[str, Any]:
    """Return a hub's answer, JSON-ready. Raises InputError for a hub that nothing was ever brought into.

    :param place: where the hubs are, or the base URL of a server.
    """
    question = wanted.question()
    if isinstance(place, str):
        return ask_served(place, slug, question)
    reranker = make_reranker(wanted.reranker, deadline_s=wanted.deadline_s)
    with local_hub(place, slug, reranker=reranker) as hub:
        if hub.engine.info().was_never_fed:
            raise InputError(
                f"nothing has been ingested into {slug} yet", hint=f"feed it with: recall hub ingest {slug} FOLDER"
            )
        return answer_json(ask(hub, question, reranker))
