"""Keys: what shapes an answer separates, what does not unites."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.cache.request import parse_body, text_request
from recall_cli.types import Bypass, Request

BODY: dict[str, Any] = {
    "model": "a-model",
    "temperature": 0,
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "How do I reset my password?"},
    ],
}


def parsed(body: dict[str, Any], provider: str = "openai", tenant: str = "") -> Request:
    request = parse_body(provider, body, tenant=tenant)
    assert isinstance(request, Request), request
    return request


def last(content: Any) -> dict[str, Any]:
    return {**BODY, "messages": [*BODY["messages"][:-1], {"role": "user", "content": content}]}


@pytest.mark.parametrize(
    "extra",
    [
        {"stream": True},
        {"stream": True, "stream_options": {"include_usage": True}},
        {"user": "u-1"},
        {"metadata": {"user_id": "x"}},
        {"safety_identifier": "x"},
        {"prompt_cache_key": "k"},
        {"service_tier": "flex"},
        {"store": False},
        {"temperature": 0.0},
        {"top_p": None},
        {"n": 1},
        {"tools": []},
        {"modalities": ["text"]},
    ],
)
def test_what_does_not_shape_the_answer_is_not_keyed(extra: dict[str, Any]) -> None:
    assert parsed({**BODY, **extra}).identity == parsed(BODY).identity


@pytest.mark.parametrize(
    "extra",
    [
        {"model": "b-model"},
        {"temperature": 0.7},
        {"top_p": 0.5},
        {"max_tokens": 10},
        {"stop": ["\n"]},
        {"seed": 3},
        {"n": 2},
        {"response_format": {"type": "json_object"}},
        {"reasoning_effort": "low"},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"tool_choice": "none"},
        {"parallel_tool_calls": False},
        {"a_parameter_of_next_year": 1},
        {"messages": BODY["messages"][1:]},
        {"messages": [{"role": "system", "content": "Be long."}, *BODY["messages"][1:]]},
        {"messages": [BODY["messages"][0], BODY["messages"][-1]]},
    ],
)
def test_what_shapes_the_answer_parts_identity_and_partition(extra: dict[str, Any]) -> None:
    base, other = parsed(BODY), parsed({**BODY, **extra})
    assert base.identity != other.identity
    assert base.partition != other.partition


def test_another_last_text_shares_the_partition_alone() -> None:
    base, other = parsed(BODY), parsed(last("How do I change my password?"))
    assert base.partition == other.partition
    assert base.identity != other.identity
    assert base.namespace == other.namespace
    assert other.text == "How do I change my password?"


def test_key_order_and_client_style_do_not_matter() -> None:
    shuffled = dict(reversed(BODY.items()))
    assert parsed(shuffled).identity == parsed(BODY).identity
    blocks = last([{"type": "text", "text": "How do I reset my password?", "cache_control": {"type": "ephemeral"}}])
    assert parsed(blocks).identity == parsed(BODY).identity


def test_providers_and_tenants_have_walls() -> None:
    keys = {parsed(BODY, p, t).partition for p in ("openai", "anthropic") for t in ("", "a", "b")}
    assert len(keys) == 6


def test_cache_markers_inside_data_are_kept() -> None:
    one = {**BODY, "response_format": {"schema": {"cache_control": 1}}}
    two = {**BODY, "response_format": {"schema": {"cache_control": 2}}}
    assert parsed(one).identity != parsed(two).identity


def test_what_stands_beside_the_last_text_is_a_wall() -> None:
    def cited(document: str, text: str = "Summarise it") -> dict[str, Any]:
        return last([{"type": "text", "text": text, "citations": [{"doc": document}]}])

    assert parsed(cited("A")).partition != parsed(cited("B")).partition
    assert parsed(cited("A")).partition == parsed(cited("A", "Sum it up")).partition
    two = [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}]
    assert parsed(last(two)).text == "One\nTwo"
    assert parsed(last(two)).partition != parsed(last("One\nTwo")).partition


def test_numbers_have_one_form_at_any_depth() -> None:
    one, two = ({**BODY, "logit_bias": {"50256": bias}} for bias in (1, 1.0))
    assert parsed(one).identity == parsed(two).identity
    assert parsed({**BODY, "logit_bias": {"50256": 1.5}}).identity != parsed(one).identity
    assert parsed({**BODY, "n": True}).identity != parsed({**BODY, "n": 2}).identity


def test_text_partitions_are_not_kept_for_ever() -> None:
    from recall_cli.cache.request import _text_partition

    for i in range(3_000):
        text_request("q", tenant=str(i))
    assert _text_partition.cache_info().currsize <= 1024


def test_namespace_follows_the_system_prompt() -> None:
    anthropic = {"model": "m", "system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]}
    blocks = {**anthropic, "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]}
    other = {**anthropic, "system": "Be long."}
    assert parsed(anthropic, "anthropic").namespace == parsed(blocks, "anthropic").namespace
    assert parsed(anthropic, "anthropic").identity == parsed(blocks, "anthropic").identity
    assert parsed(anthropic, "anthropic").namespace != parsed(other, "anthropic").namespace


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({**BODY, "tools": [{"type": "function"}]}, "tools"),
        ({**BODY, "functions": [{"name": "f"}]}, "tools"),
        ({**BODY, "store": True}, "server_state"),
        ({**BODY, "previous_response_id": "r"}, "server_state"),
        ({**BODY, "web_search_options": {"x": 1}}, "web_search"),
        ({**BODY, "web_search_options": {}}, "web_search"),
        ({**BODY, "model": "gpt-4o-search-preview"}, "web_search"),
        ({**BODY, "model": "some/model:online"}, "web_search"),
        ({**BODY, "plugins": [{"id": "web"}]}, "server_state"),
        ({**BODY, "top_p": float("nan")}, "not_canonical_json"),
        (last([]), "no_content"),
        ({**BODY, "modalities": ["text", "audio"]}, "media"),
        (last([{"type": "image_url", "image_url": {"url": "x"}}]), "media"),
        (last([{"type": "text", "text": "what is this"}, {"type": "image", "source": {}}]), "media"),
        (last([{"type": "tool_result", "content": "42"}]), "tool_result"),
        (last(None), "no_content"),
        (last([{"type": "text"}]), "media"),
        ({**BODY, "messages": [*BODY["messages"], {"role": "assistant", "content": "{"}]}, "last_turn_not_user"),
        ({**BODY, "messages": [{"role": "tool", "content": "x"}]}, "last_turn_not_user"),
        ({"model": "m"}, "no_messages"),
        ({"model": "m", "messages": []}, "no_messages"),
        ({"model": "m", "messages": ["hi"]}, "no_messages"),
        ({"model": "m", "messages": {"role": "user"}}, "no_messages"),
        (last("lone \ud800 surrogate"), "not_canonical_json"),
        ({**BODY, "seed": 2**70}, "not_canonical_json"),
    ],
)
def test_what_must_not_be_cached_says_why(body: dict[str, Any], reason: str) -> None:
    assert parse_body("openai", body) == Bypass(reason)


@pytest.mark.parametrize(
    ("extra", "sampled"),
    [({}, False), ({"temperature": 0.0}, False), ({"temperature": 1}, True), ({"temperature": 1, "seed": 7}, False)],
)
def test_sampled(extra: dict[str, Any], sampled: bool) -> None:
    assert parsed({**BODY, **extra}).sampled is sampled


def test_an_unset_temperature_is_the_apis_one_not_zero() -> None:
    assert parsed({k: v for k, v in BODY.items() if k != "temperature"}).sampled


def test_empty_text_and_several_answers_hit_exactly_only() -> None:
    assert parsed(last("")).exact_only
    assert parsed(last(" \n")).exact_only
    assert parsed({**BODY, "n": 3}).exact_only
    assert not parsed({**BODY, "n": 1}).exact_only


@pytest.mark.parametrize("odd", [["x"], [None], [[]], [{}], [{"type": "text"}], [1, 2]])
def test_odd_content_of_earlier_turns_is_only_odd(odd: Any) -> None:
    messages = [{"role": "system", "content": odd}, *BODY["messages"]]
    assert isinstance(parse_body("openai", {**BODY, "messages": messages}), Request)
    assert isinstance(parse_body("anthropic", {**BODY, "system": odd}), Request)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    body=st.dictionaries(
        st.sampled_from(["model", "messages", "system", "tools", "n", "temperature", "seed", "modalities", "x"]), JSON
    )
)
def test_no_json_body_breaks_the_parser(body: dict[str, Any]) -> None:
    assert isinstance(parse_body("openai", body), Request | Bypass)


@given(a=st.text(), b=st.text(), space=st.text(max_size=3), other=st.text(max_size=3))
def test_text_requests_differ_exactly_when_text_or_namespace_does(a: str, b: str, space: str, other: str) -> None:
    one, two = text_request(a, space), text_request(b, other)
    assert (one.identity == two.identity) == ((a, space) == (b, other))
    assert (one.partition == two.partition) == (space == other)


@pytest.mark.parametrize(
    ("provider", "body", "identity", "partition", "namespace"),
    [
        ("openai", BODY, "fd37e7cfbf1c2273e8426b7b8933da66", "2543cb20eac70a300e85eaddaccab985", "a-model/e8c60c5a"),
        (
            "openai",
            {**BODY, "top_p": 1.0, "n": 1, "stream": True, "user": "u"},
            "a32c4baf59928915cb527bec7e5b80c2",
            "09dcc56ff924047c050c5ff4df96cddc",
            "a-model/e8c60c5a",
        ),
        (
            "openai",
            last([{"type": "text", "text": "Hi", "title": "t"}]),
            "fc2f062db8a49c9186be69ec9f67805b",
            "af4a793f79eda756e3825979e634d5df",
            "a-model/e8c60c5a",
        ),
        (
            "anthropic",
            {
                "model": "claude",
                "max_tokens": 9,
                "system": "Be brief.",
                "messages": [{"role": "user", "content": "Hi"}],
            },
            "6d2ca762223289324433fc293105d776",
            "35b730aaebd5111d52d2421ba7cda9a6",
            "claude/4f43691f",
        ),
    ],
)
def test_keys_of_stores_that_exist(
    provider: str, body: dict[str, Any], identity: str, partition: str, namespace: str
) -> None:
    """A store is found by these values: a change of any would lose what is in it."""
    request = parsed(body, provider, "t")
    found = request.identity.hex(), request.partition.hex(), request.namespace
    assert found == (identity, partition, f"{provider}/{namespace}")
