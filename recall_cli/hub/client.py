"""One question to a hub, here or on a server, and its answer as the API words it."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import orjson

from recall_cli.errors import InputError, UpstreamError, UsageError
from recall_cli.hub.api.errors import ApiError
from recall_cli.hub.api.question import read_question
from recall_cli.hub.api.views import answer_json
from recall_cli.hub.models import Level, Question
from recall_cli.hub.search.rerank import DEADLINE_S, NO_RERANKER, make_reranker
from recall_cli.hub.session import ask, local_hub
from recall_cli.hub.stores.open import Place
from recall_cli.util.endpoint import address, key_of

TOKEN = "RECALL_HUB_TOKEN"
"""The variable with the token of restricted and private hubs."""
WAIT_S = 60.0
MINT = "mint one for this hub and this server: recall hub token mint HUB --sub NAME --hub-url URL"


def ask_served(url: str, slug: str, question: Question, *, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the answer of the hub at `{url}/api/hub/{slug}`, as `shown.answer_json` words it.

    Raises InputError when the server refuses, UpstreamError when it fails or cannot be reached, UsageError for an
    address or a token that is none.
    """
    address(url, of="the server", hint="write it as in http://127.0.0.1:8484")
    body: dict[str, Any] = {
        "question": question.text,
        "k": question.k,
        "level": question.level.value,
        "rerank": question.rerank,
    }
    if question.min_score is not None:
        body["min_score"] = question.min_score
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    token = key_of((TOKEN,), environ, of="the hub")
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(
        f"{url.rstrip('/')}/api/hub/{quote(slug, safe='')}/recall", orjson.dumps(body), headers
    )
    try:
        with _OPENER.open(request, timeout=WAIT_S) as reply:
            answer = orjson.loads(reply.read())
    except urllib.error.HTTPError as error:
        raise _refused(url, error, has_token=bool(token)) from None
    except (OSError, ValueError) as error:
        # urllib wraps what the system said into a URLError.
        reason = getattr(error, "reason", error)
        raise UpstreamError(
            f"{url} cannot be asked: {reason}", hint="check the address, and that it runs there"
        ) from error
    if not isinstance(answer, dict) or not isinstance(answer.get("results"), list):
        raise UpstreamError(f"{url} gave an answer that is none of a hub", hint="check that a recall server runs there")
    return answer


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the token is for the server that was named."""

    def redirect_request(self, *args: Any, **more: Any) -> None:
        """Return that there is nothing to follow."""


_OPENER = urllib.request.build_opener(_NoRedirect)


def _refused(url: str, error: urllib.error.HTTPError, *, has_token: bool) -> InputError | UpstreamError:
    with error:
        said = error.read(65_536)
    try:
        message = str(orjson.loads(said)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        message = f"it answered with status {error.code}"
    if error.code >= 500 or error.code in (408, 429):
        return UpstreamError(f"{url}: {message}", hint="try again later")
    if error.code in (401, 403):
        hint = MINT if has_token else f"set {TOKEN} to a token for it"
        return InputError(f"{url}: {message}", hint=hint)
    return InputError(f"{url}: {message}", hint="check the hub's name, and that the server was started with --hub-dir")


@dataclass(frozen=True, slots=True)
class AskPlan:
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
        except ApiError as error:
            raise UsageError(str(error), hint="recall hub query --help says what may be asked") from None


def asked(wanted: AskPlan, slug: str, place: Place | str) -> dict[str, Any]:
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
