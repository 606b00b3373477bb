"""The cache as LiteLLM's: `litellm.cache = RecallCache(cache)`, for the library and for its proxy.

LiteLLM's own semantic back-ends get a key that already digests the prompt, so they can only wall by a part of it.
This one stands a step before: it sees the whole call, and walls as recall's proxy does.
"""

from __future__ import annotations

import time
from typing import Any

import orjson
from litellm.caching.caching import Cache as LiteLLMCache
from litellm.litellm_core_utils.model_param_helper import ModelParamHelper

from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.registry import reads_all
from recall_cli.cache.request import parse_body
from recall_cli.proxy.planner import completion, is_finished, is_too_old, storable
from recall_cli.proxy.settings import Limits
from recall_cli.types import Bypass, Request

PROVIDER = "litellm"
TENANTS = ("user_api_key", "user_api_key_team_id", "user_api_key_org_id")
"""Fields of a call's metadata by which LiteLLM's proxy tells callers apart."""
KEYED_BESIDE = ("extra_body", "api_base", "base_url", "custom_llm_provider")
"""Arguments that shape an answer and are no parameter of the API."""
MOST = Limits().cached_body_bytes


class RecallCache(LiteLLMCache):
    """Answers equal and near calls of LiteLLM from a recall cache; embeddings and other calls pass.

    :param allow_sampled: answer also calls whose temperature is unset or above 0.
    """

    def __init__(self, cache: Cache, *, allow_sampled: bool = False, **options: Any) -> None:
        super().__init__(type="local", **options)
        self.recall = cache
        self._allow_sampled = allow_sampled

    def get_cache(self, dynamic_cache_object: Any = None, **kwargs: Any) -> Any:
        """Return the stored answer to a call as LiteLLM keeps it, None for a miss."""
        request = self._request(kwargs)
        if request is None or self.should_use_cache(**kwargs) is not True:
            return None
        try:
            found = self.recall.get(request)
        except Exception as error:
            self._log_add_cache_failure(error)
            return None
        answer = found.completion
        if answer is None:
            return None
        told = kwargs.get("cache") or {}
        most = told.get("s-maxage") or told.get("s-max-age")
        if most is not None and is_too_old(time.time() - answer.created, float(most)):
            return None
        return orjson.loads(answer.body)

    async def async_get_cache(self, dynamic_cache_object: Any = None, **kwargs: Any) -> Any:
        """Return the same: a lookup takes less than handing it to a thread."""
        return self.get_cache(**kwargs)

    def add_cache(self, result: Any, **kwargs: Any) -> None:
        """Store a whole answer in words."""
        request = self._request(kwargs)
        if request is None or self.should_use_cache(**kwargs) is not True:
            return
        try:
            said = result if isinstance(result, str) else result.model_dump_json(exclude_unset=True)
            raw, body = said.encode(), orjson.loads(said)
            if storable(200, {}, body, is_finished(body), len(raw), MOST):
                return
            told = kwargs.get("cache") or {}
            self.recall.put(request, completion(raw, body, time.time()), ttl=told.get("ttl") or self.ttl)
        except Exception as error:
            self._log_add_cache_failure(error)

    async def async_add_cache(self, result: Any, dynamic_cache_object: Any = None, **kwargs: Any) -> None:
        """Store the same in a thread: the disk is waited for."""
        from asyncio import to_thread

        await to_thread(lambda: self.add_cache(result, **kwargs))

    def _request(self, kwargs: dict[str, Any]) -> Request | None:
        """Return the request in a call; None for one that is not to be answered."""
        if "messages" not in kwargs:
            return None
        known = ModelParamHelper.get_all_llm_api_params()
        body = {name: kwargs[name] for name in kwargs if name in known or name in KEYED_BESIDE}
        metadata = kwargs.get("metadata") or (kwargs.get("litellm_params") or {}).get("metadata") or {}
        tenant = orjson.dumps([metadata.get(name) for name in TENANTS]).decode()
        request = parse_body(PROVIDER, body, tenant=tenant)
        if isinstance(request, Bypass) or (request.sampled and not self._allow_sampled):
            return None
        if not request.exact_only:
            request.exact_only = not reads_all(self.recall.embedder, request.text)
        return request
