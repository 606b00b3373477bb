"""From a request body to the lookup's `Request`, or to a `Bypass` that says why not.

Three keys come out of a body. *identity* digests everything that shapes the answer; *partition*
digests the same with the last user text cut out, so that a semantic hit can only ever reuse an
answer given under the same model, system prompt, earlier turns, formats and parameters;
*namespace* is the readable group whose cutoff is learned together.

The identity is the whole body minus a deny-list. An allow-list would miss the next parameter a
provider adds, and a key that misses a field serves wrong answers (LiteLLM #9844, autogen #7968).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import orjson
from blake3 import blake3

from recall_cli.cache.evidence.text_features import is_anaphoric
from recall_cli.types import Bypass, Json, Request

DIGEST_BYTES = 16
"""128 bits: no collision to fear by accident at any number of entries a cache can hold."""

DENIED = frozenset(
    {
        # How the answer travels, not what it says.
        "stream",
        "stream_options",
        "service_tier",
        # Who asks and how it is billed or cached upstream.
        "metadata",
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "cache_control",
        # `store: true` bypasses below; `false` is the default said aloud.
        "store",
    }
)
"""Top-level fields that do not shape the answer."""

STATEFUL = ("previous_response_id", "conversation", "container", "background", "plugins")
"""Fields whose meaning lives on the provider's side: the same body may get another answer."""

SEARCHING = ("-search-preview", "-search-api", ":online")
"""Parts of names of models that search the web by themselves: yesterday's answer is not today's."""

TOOLS = ("tools", "functions", "mcp_servers")

SUSPECT = frozenset((*TOOLS, *STATEFUL, "store", "web_search_options", "modalities"))
"""Fields for which a body may bypass: most have none of them, which one look tells."""

SAID_ALOUD: dict[str, Any] = {"n": 1, "tools": [], "functions": [], "modalities": ["text"]}
"""Values that mean the same as leaving the field out."""

APART = DENIED | {"messages", "system"}
"""Fields that are not keyed, or not as plain values."""

KNOWN_PROMPTS, LONGEST_KNOWN = 512, 1 << 14
"""System prompts whose digests are remembered, and the characters up to which: 8 MB of text at most."""

SYSTEM_ROLES = ("system", "developer")


def text_request(text: str, namespace: str = "default", *, tenant: str = "") -> Request:
    """Return the request of a bare prompt, for callers that have no API body."""
    partition = _text_partition(namespace, tenant)
    # surrogatepass: a lone surrogate is a legal str and must have a key of its own.
    identity = blake3(partition + text.encode("utf-8", "surrogatepass")).digest(length=DIGEST_BYTES)
    return Request(text, identity, partition, namespace)


@lru_cache(maxsize=1024)
def _text_partition(namespace: str, tenant: str) -> bytes:
    parts = [part.encode("utf-8", "surrogatepass").hex() for part in ("text", tenant, namespace)]
    return _digest(orjson.dumps(parts))


def parse_body(provider: str, body: Json, *, tenant: str = "") -> Request | Bypass:
    """Return the request in an OpenAI chat-completions or Anthropic messages body.

    :param provider: "openai" or "anthropic"; each has partitions of its own.
    :param tenant: part of the partition; requests of two tenants never meet.
    """
    reason = _bypass_reason(body)
    if reason:
        return Bypass(reason)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return Bypass("no_messages")
    for message in messages:
        if not isinstance(message, dict):
            return Bypass("no_messages")
    if messages[-1].get("role") != "user":
        # A tool result, or a prefilled assistant turn: there is no question to embed.
        return Bypass("last_turn_not_user")
    found = _last_user_text(messages[-1].get("content"))
    if isinstance(found, Bypass):
        return found
    text, hollow = found
    model = str(body.get("model", ""))
    try:
        canonical = _canonical(body)
        identity = _digest(orjson.dumps([provider, tenant, canonical], option=orjson.OPT_SORT_KEYS))
        canonical["messages"] = [*canonical["messages"][:-1], {**canonical["messages"][-1], "content": hollow}]
        partition = _digest(orjson.dumps([provider, tenant, canonical], option=orjson.OPT_SORT_KEYS))
        system = _system_digest(_system_prompt(body))
    except (TypeError, RecursionError):
        # A lone surrogate, NaN, an integer beyond 64 bits, endless nesting: no canonical form, so no key.
        return Bypass("not_canonical_json")
    return Request(
        text,
        identity,
        partition,
        f"{provider}/{model}/{system}",
        provider=provider,
        model=model,
        sampled=_is_sampled(body),
        # n answers to one prompt are n draws: replaying them for another wording is a stretch. And a text that means
        # nothing without what was said before it is not told by its own words.
        exact_only=body.get("n", 1) not in (1, None) or not text.strip() or is_anaphoric(text),
    )


def differing_fields(one: Json, other: Json) -> list[str]:
    """Return the fields in which two bodies' partitions differ: why an answer to one can never serve the other.

    The last user text is no wall and is left out. Raises TypeError when a body has no canonical form.
    """
    walls = []
    for body in (one, other):
        canonical = _canonical(body)
        canonical["earlier messages"] = canonical["messages"][:-1]
        found = _last_user_text(canonical["messages"][-1].get("content"))
        canonical["beside the last text"] = None if isinstance(found, Bypass) else found[1]
        del canonical["messages"]
        walls.append(canonical)
    a, b = walls
    return [name for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]


def _digest(data: bytes) -> bytes:
    return blake3(data).digest(length=DIGEST_BYTES)


def _system_digest(prompt: Any) -> str:
    if isinstance(prompt, str) and len(prompt) <= LONGEST_KNOWN:
        return _known_digest(prompt)
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str) and len(prompt[0]) <= LONGEST_KNOWN:
        return _known_digest((prompt[0],))
    return _short_digest(prompt)


@lru_cache(maxsize=KNOWN_PROMPTS)
def _known_digest(prompt: str | tuple[str]) -> str:
    """Return the digest of what a few thousand requests in a row have in common. A tuple has the JSON of a list."""
    return _short_digest(prompt)


def _short_digest(prompt: Any) -> str:
    return _digest(orjson.dumps(prompt, option=orjson.OPT_SORT_KEYS)).hex()[:8]


def _bypass_reason(body: Json) -> str:
    if SUSPECT.isdisjoint(body):
        return "web_search" if _searches(str(body.get("model", ""))) else ""
    if any(body.get(name) for name in TOOLS):
        return "tools"
    if any(body.get(name) for name in STATEFUL) or body.get("store") is True:
        return "server_state"
    # An empty object is how search is switched on with its defaults.
    if body.get("web_search_options") is not None or _searches(str(body.get("model", ""))):
        return "web_search"
    modalities = body.get("modalities")
    if isinstance(modalities, list) and modalities != ["text"]:
        return "media"
    return ""


@lru_cache(maxsize=1024)
def _searches(model: str) -> bool:
    return any(part in model for part in SEARCHING)


def _last_user_text(content: Any) -> tuple[str, Any] | Bypass:
    """Return the text of a user turn, and its canonical content with that text cut out."""
    if isinstance(content, str):
        return content, ""
    if not isinstance(content, list) or not content:
        return Bypass("no_content")
    texts: list[str] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "tool_result":
            return Bypass("tool_result")
        if kind != "text" or not isinstance(part.get("text"), str):
            # An image, a file, audio, or something newer: its bytes are part of the question.
            return Bypass("media")
        texts.append(part["text"])
    plain = _plain_content(content)
    # What stands beside the text (citations, a title) shapes the answer: it stays in the wall.
    hollow = "" if isinstance(plain, str) else [{k: v for k, v in part.items() if k != "text"} for part in plain]
    return "\n".join(texts), hollow


def _canonical(body: Json) -> dict[str, Any]:
    """Return the body as it is keyed: no denied fields, no cache markers, one form for numbers and text."""
    kept = {
        k: v if type(v) is str else _plain_value(v)
        for k, v in body.items()
        if k not in APART and v is not None and not (k in SAID_ALOUD and v == SAID_ALOUD[k])
    }
    kept["messages"] = [_plain_message(m) for m in body["messages"]]
    if body.get("system") is not None:
        kept["system"] = _plain_content(body["system"])
    return kept


def _plain_value(value: Any) -> Any:
    """Return a parameter with 0 and 0.0 as one number: clients of two languages send both."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError("JSON has no such number")
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {k: _plain_value(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain_value(v) for v in value]
    return value


def _plain_message(message: Json) -> Json:
    content = message.get("content")
    # Most content is one string: such a message is in canonical form, and nobody writes to it.
    return message if type(content) is str else {**message, "content": _plain_content(content)}


def _plain_content(content: Any) -> Any:
    """Return content without cache markers; a lone text block becomes its text, as both APIs read it."""
    if not isinstance(content, list):
        return content
    # Only the markers on the blocks themselves: deeper ones are somebody's data (headroom #3345).
    blocks = [{k: v for k, v in b.items() if k != "cache_control"} if isinstance(b, dict) else b for b in content]
    if len(blocks) == 1 and isinstance(blocks[0], dict):
        only: dict[str, Any] = blocks[0]
        if only.keys() == {"type", "text"} and only["type"] == "text":
            return only["text"]
    return blocks


def _system_prompt(body: Json) -> Any:
    if "system" in body:
        return _plain_content(body["system"])
    return [_plain_content(m.get("content")) for m in body["messages"] if m.get("role") in SYSTEM_ROLES]


def _is_sampled(body: Json) -> bool:
    """True unless the caller pinned the draw: unset temperature is the APIs' 1.0, not 0."""
    if body.get("seed") is not None:
        return False
    temperature = body.get("temperature")
    return not (isinstance(temperature, (int, float)) and temperature == 0)
