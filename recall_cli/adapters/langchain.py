"""The cache as LangChain's: `set_llm_cache(RecallCache(cache))`, or a chat model's `cache=`.

LangChain hands over a prompt and a string that describes the model with all its parameters. The string and every
message but the last are a wall, as in the proxy; the last human message is what a near one may answer.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import orjson
from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.messages import message_to_dict, messages_from_dict
from langchain_core.outputs import ChatGeneration, Generation

from recall_cli.cache import finish_reasons
from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.registry import reads_all
from recall_cli.cache.request import parse_body
from recall_cli.types import Bypass, Completion, Lookup, Request

_log = logging.getLogger(__name__)

PROVIDER = "langchain"
ROLES = {"human": "user", "system": "system"}
ENDINGS = ("finish_reason", "stop_reason", "stopReason", "done_reason")
"""Fields in which the models of several providers say why an answer ended."""
TOLD = frozenset({"id", "response_metadata", "usage_metadata"})
"""Fields of a message that no model is sent."""


class RecallCache(BaseCache):
    """Answers equal and near prompts of LangChain models from a recall cache.

    What LangChain asks it caches: leave the cache off a model (`cache=False`) whose answers should vary.

    :param tenant: requests of two tenants never meet; one RecallCache for each may share a cache.
    """

    def __init__(self, cache: Cache, *, tenant: str = "") -> None:
        self.cache = cache
        self._tenant = tenant

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """Return the stored generations of an equal or near prompt to the same model, None for a miss."""
        request = self._request(prompt, llm_string)
        if request is None:
            return None
        try:
            answer = self._find(request).completion
            return None if answer is None else [_revived(one) for one in orjson.loads(answer.body)]
        except Exception:
            _log.exception("the cache failed; the model is asked")
            return None

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """Store generations that are whole answers in words; others are let go."""
        request = self._request(prompt, llm_string)
        if request is None or not all(_is_storable(generation) for generation in return_val):
            return
        try:
            body = orjson.dumps([_kept(generation) for generation in return_val])
            self.cache.put(request, Completion(body, created=time.time()))
        except TypeError:
            return  # it carries an object that no store can hold
        except Exception:
            _log.exception("the cache failed; an answer is not stored")

    def clear(self, **kwargs: Any) -> None:
        """Forget every entry of the cache, whoever stored it."""
        self.cache.delete([entry.id for entry in self.cache.store.entries()])

    def _find(self, request: Request) -> Lookup:
        if not request.exact_only:
            request.exact_only = not reads_all(self.cache.embedder, request.text)
        return self.cache.get(request)

    def _request(self, prompt: str, llm_string: str) -> Request | None:
        body = {"model": llm_string, "messages": _messages(prompt)}
        request = parse_body(PROVIDER, body, tenant=self._tenant)
        return None if isinstance(request, Bypass) else request


def _messages(prompt: str) -> list[dict[str, Any]]:
    """Return the messages of a prompt as the APIs have them: a chat model's come as LangChain's JSON, or it is text."""
    try:
        said = orjson.loads(prompt)
    except orjson.JSONDecodeError:
        said = None
    if not isinstance(said, list) or not all(isinstance(one, dict) and "kwargs" in one for one in said):
        return [{"role": "user", "content": prompt}]
    return [_message(one["kwargs"]) for one in said]


def _message(said: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in said.items() if name not in TOLD and value not in (None, {}, [])}
    kind = str(kept.pop("type", ""))
    return {**kept, "role": ROLES.get(kind, kind), "content": said.get("content")}


def _is_storable(generation: Generation) -> bool:
    info = generation.generation_info or {}
    if isinstance(generation, ChatGeneration):
        message = generation.message
        info = {**message.response_metadata, **info}
        if getattr(message, "tool_calls", None) or getattr(message, "invalid_tool_calls", None):
            return False
    return bool(generation.text) and _ended_well(info)


def _ended_well(info: dict[str, Any]) -> bool:
    """Return whether all that is said of an answer's end is known to be good.

    Models that have no such field, as plain language models of LangChain, hand over whole answers alone.
    """
    reasons = [info[name] for name in ENDINGS if name in info]
    said = [reason for reason in reasons if finish_reasons.is_said(reason)]
    return not reasons or (bool(said) and all(finish_reasons.is_good(reason) for reason in said))


def _kept(generation: Generation) -> dict[str, Any]:
    said: dict[str, Any] = {"generation_info": generation.generation_info}
    if isinstance(generation, ChatGeneration):
        return said | {"message": message_to_dict(generation.message)}
    return said | {"text": generation.text}


def _revived(said: dict[str, Any]) -> Generation:
    """Return a generation of a store that others may have written to: it can become a message, and nothing else."""
    info = said["generation_info"]
    if "message" not in said:
        return Generation(text=said["text"], generation_info=info)
    return ChatGeneration(message=messages_from_dict([said["message"]])[0], generation_info=info)
