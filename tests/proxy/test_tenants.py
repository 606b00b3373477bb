"""Who meets whose answers: what tells tenants apart, and what a caller that joins another's call is given."""

from __future__ import annotations

import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.proxy.credentials import own_cookies, says_who_asks
from recall_cli.proxy.planner import TenantKeys
from recall_cli.proxy.settings import Settings
from tests.proxy.answers import provider
from tests.proxy.conftest import Start
from tests.proxy.fake import Reply, Seen, ask
from tests.proxy.test_rules import wait_for

CREDENTIALS = [
    "x-goog-api-key",
    "ocp-apim-subscription-key",
    "cf-aig-authorization",
    "x-portkey-api-key",
    "x-portkey-virtual-key",
    "x-portkey-config",
    "x-litellm-api-key",
    "x-amz-security-token",
    "helicone-auth",
    "api-key",
    "api_key",
    "apikey",
    "x-apikey",
    "cookie",
    "proxy-authorization",
    "x-auth-token",
    "x-access-token",
    "x-secret",
    "x-session-id",
    "session_id",
    "x-functions-key",
    "x-user-token",
    "x-goog-iap-jwt-assertion",
    "cf-access-jwt-assertion",
    "x-ms-client-principal-id",
    "x-amzn-oidc-data",
    "x-forwarded-client-cert",
    "x-goog-user-project",
    "x-tenant-id",
    "x-organization-id",
    "authorization",
    "x-api-key",
    "openai-organization",
    "openai-project",
]
NONE = [
    "idempotency-key",
    "x-idempotency-key",
    "x-stainless-idempotency-key",
    "sec-websocket-key",
    "x-csrf-token",
    "x-xsrf-token",
    "x-csrftoken",
    "traceparent",
    "tracestate",
    "baggage",
    "x-request-id",
    "x-amzn-trace-id",
    "x-portkey-trace-id",
    "x-cloud-trace-context",
    "user-agent",
    "accept",
    "accept-encoding",
    "accept-language",
    "content-type",
    "content-length",
    "host",
    "connection",
    "keep-alive",
    "x-stainless-lang",
    "x-stainless-retry-count",
    "x-stainless-timeout",
    "anthropic-version",
    "http-referer",
    "x-title",
    "referer",
]


@pytest.mark.parametrize("name", CREDENTIALS)
def test_what_speaks_of_a_credential_parts_tenants(name: str, start: Start) -> None:
    """The same body with another value of one header meets neither the other's stored answer nor its call."""
    go = threading.Event()

    def slow(seen: Seen) -> Reply:
        return Reply([go, *provider()(seen).pieces])

    proxy, upstream = start(slow)
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask, proxy, headers={name.title(): f"{at}=a"}) for at in (1, 2)]
        wait_for(lambda: len(upstream.seen) == 2)
        go.set()
        assert [done.result(20).outcome for done in asked] == ["MISS", "MISS"]
    proxy.settle()
    assert ask(proxy, headers={name.title(): "3=a"}).outcome == "MISS"
    assert ask(proxy, headers={name.title(): "1=a"}).outcome == "EXACT"


@pytest.mark.parametrize("query", ["key={}", "api-key={}", "access_token={}", "alt=sse&key={}"])
@pytest.mark.parametrize("scope", ["credential", "all"])
def test_a_credential_in_the_query_parts_tenants(query: str, scope: str, start: Start) -> None:
    proxy, upstream = start(share_scope=scope)
    for at in (1, 2):
        assert ask(proxy, to="/v1/chat/completions?" + query.format(at)).outcome == "MISS"
        proxy.settle()
    assert ask(proxy, to="/v1/chat/completions?" + query.format(1)).outcome == "EXACT"
    assert len(upstream.seen) == 2


@pytest.mark.parametrize("name", CREDENTIALS)
def test_one_that_comes_twice_or_stays_here_is_nobodys(name: str, start: Start) -> None:
    proxy, _ = start()
    body = json.dumps({"model": "m", "temperature": 0, "messages": [{"role": "user", "content": "Hello there"}]})
    for more, why in (
        ([(name, "a"), (name, "b")], "repeated_header"),
        ([(name, "a"), ("connection", name)], "withheld_header"),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
        connection.putrequest("POST", "/v1/chat/completions")
        for said, value in (*more, ("content-length", str(len(body)))):
            connection.putheader(said, value)
        connection.endheaders(body.encode())
        got = connection.getresponse().getheader("x-recall")
        connection.close()
        assert got == f"BYPASS; reason={why}"


def test_what_is_new_at_every_request_ends_no_hits(start: Start) -> None:
    proxy, upstream = start()
    names = [name for name in NONE if name not in ("content-length", "host", "connection", "keep-alive")]
    kept = ("content-type", "anthropic-version")
    for at in range(3):
        ask(proxy, headers={name: f"{at}" for name in names if name not in kept})
        proxy.settle()
    assert len(upstream.seen) == 1


@pytest.mark.parametrize("name", NONE)
def test_what_is_none(name: str) -> None:
    assert not says_who_asks(name.encode())


@given(
    st.sampled_from(["key", "token", "secret", "session", "credential", "cookie", "auth", "authorisation"]),
    st.from_regex(r"(x-)?[a-z]{0,8}[-_]?", fullmatch=True),
    st.from_regex(r"([-_][a-z]{1,8})?", fullmatch=True),
)
def test_a_name_that_speaks_of_one_counts_wherever_it_does(word: str, before: str, behind: str) -> None:
    name = (before + word + behind).encode()
    assert says_who_asks(name) or b"portkey" in name or b"csrf" in name or b"xsrf" in name


def test_cookies_of_the_front_door_say_nothing() -> None:
    assert own_cookies(b"__cf_bm=a; _cfuvid=b;AWSALB=c") is None
    assert own_cookies(b"__cf_bm=a; sid=1; _cfuvid=b") == b"sid=1"
    walls = TenantKeys(bytes(32), Settings())
    key = {b"authorization": b"Bearer k"}
    alone = walls.wall(key, b"/", "")
    assert walls.wall({**key, b"cookie": b"__cf_bm=a"}, b"/", "") == alone
    assert walls.wall({**key, b"cookie": b"__cf_bm=a; sid=1"}, b"/", "") != alone


def test_tenants_of_stores_made_before_are_found_again() -> None:
    """The digests of callers with the usual headers: another one would make all their entries unreachable."""
    walls = TenantKeys(bytes(range(32)), Settings())
    usual = {b"authorization": b"Bearer k", b"user-agent": b"x", b"content-type": b"application/json"}
    assert walls.wall(usual, b"/v1/messages?", "") == "07df449ac2e6a4985ad2c25be4ce3f9d"
    assert (
        walls.wall({b"cookie": b"a=1", b"origin": b"http://x"}, b"/v1/messages?", "")
        == "38cc75771acd8bc281ade9d1f530531f"
    )
