"""Asking a hub that a server serves: the API's answer, as it came."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import orjson

from recall_cli.errors import InputError, UpstreamError
from recall_cli.hub.models import Question
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
