"""Tokens: which are taken, which are refused, and for how long a key and a revocation hold."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.errors import InputError, StoreError, UsageError
from recall_cli.hub.api.errors import INGEST, RECALL, ApiError
from recall_cli.hub.api.tokens import (
    LEEWAY_S,
    LONGEST_S,
    LONGEST_TOKEN,
    Grant,
    Minted,
    Tokens,
    challenge,
    checked_base,
    read_bearer,
)
from recall_cli.hub.models import TOKEN_S, HubInfo, Visibility
from recall_cli.hub.stores.folder import HubFolder
from recall_cli.hub.stores.open import HubStore
from recall_cli.hub.stores.pg_hubs import PostgresHubs
from recall_cli.hub.stores.signing_keys import KeyRing, KeyStore

BASE = "https://hub.example.org"


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[KeyRing]:
    ring = KeyRing(tmp_path / "keys.db")
    yield ring
    ring.close()


@pytest.fixture(params=["folder", "database"])
def any_ring(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeyStore]:
    """What signs and verifies, wherever it is kept."""
    place: HubStore = HubFolder(tmp_path)
    if request.param == "database":
        place = PostgresHubs(request.getfixturevalue("database"))
    with closing(place), closing(place.ring()) as ring:
        yield ring


def test_one_contract_for_all_rings(any_ring: KeyStore) -> None:
    first, secret = any_ring.signing()
    assert any_ring.signing() == (first, secret)
    assert any_ring.secret(first) == secret
    assert [(key.kid, key.signs) for key in any_ring.live()] == [(first, True)]
    for unknown in ("", "0" * 16, "' OR 1=1 --", "a\x00b", "\N{SNOWMAN}"):
        assert any_ring.secret(unknown) is None
    second = any_ring.rotate()
    assert any_ring.signing()[0] == second != first
    assert any_ring.secret(first) == secret, "tokens under way live on"
    third = any_ring.rotate()
    assert [key.kid for key in any_ring.live()] == [third, second]
    assert any_ring.secret(first) is None
    any_ring.revoke("one", time.time() + TOKEN_S)
    any_ring.revoke("one", time.time() + TOKEN_S / 2)
    any_ring.revoke("old", time.time() - TOKEN_S)
    assert [any_ring.is_revoked(jti) for jti in ("one", "old", "other")] == [True, True, False]
    any_ring.rotate()
    assert [any_ring.is_revoked(jti) for jti in ("one", "old", "other")] == [True, False, False]


@pytest.fixture
def tokens(ring: KeyRing) -> Tokens:
    return Tokens(ring, BASE)


def hub(slug: str = "docs", owner: str = "ann") -> HubInfo:
    return HubInfo(slug, f"uid-{slug}", Visibility.PRIVATE, owner, "hash-v1", "f" * 64, 256, 1, 0, 0, None, 0.3, None)


def resigned(minted: Minted, ring: KeyRing, claims: dict[str, Any] | None = None, **header: Any) -> str:
    """Return the token with other claims (None takes one out) or another header, signed with the ring's key."""
    said = jwt.decode(minted.token, options={"verify_signature": False}) | (claims or {})
    kid, secret = ring.signing()
    head = {"typ": "at+jwt", "kid": kid, **header}
    return jwt.encode({k: v for k, v in said.items() if v is not None}, secret, "HS256", headers=head)


def unsigned(minted: Minted, **header: Any) -> str:
    """Return the token's claims under a header of one's own, without a signature."""
    head = jwt.get_unverified_header(minted.token) | header
    first = base64.urlsafe_b64encode(json.dumps(head).encode()).rstrip(b"=").decode()
    return f"{first}.{minted.token.split('.')[1]}."


def signed_by_hand(minted: Minted, ring: KeyRing, alg: str, digest: Callable[..., Any]) -> str:
    """Return the token under another algorithm, rightly signed with our key: the library refuses to make that."""
    kept = unsigned(minted, alg=alg)[:-1]
    signature = hmac.new(ring.signing()[1], kept.encode(), digest).digest()
    return f"{kept}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def tampered(minted: Minted) -> str:
    head, claims, signature = minted.token.split(".")
    said = json.loads(base64.urlsafe_b64decode(claims + "=="))
    said["sub"] = "mallory"
    return ".".join((head, base64.urlsafe_b64encode(json.dumps(said).encode()).rstrip(b"=").decode(), signature))


def rotated_out(tokens: Tokens, minted: Minted) -> str:
    tokens.ring.rotate()
    tokens.ring.rotate()
    return minted.token


def revoked(tokens: Tokens, minted: Minted) -> str:
    tokens.revoke(minted.token)
    return minted.token


def of_another_ring(folder: Path, kid: str) -> str:
    """Return a token that is right in everything but the key, which only shares the name."""
    other = KeyRing(folder / "other.db")
    try:
        return resigned(Tokens(other, BASE).mint("ann", ["docs"]), other, kid=kid)
    finally:
        other.close()


NOW = int(time.time())
"""When the tests were collected: a whole run may lie between this and a test."""
MATRIX: dict[str, tuple[Callable[[Tokens, Minted], str], str]] = {
    "alg none": (lambda t, m: unsigned(m, alg="none"), "malformed"),
    "alg none, no key named": (lambda t, m: jwt.encode({"sub": "ann"}, "", "none", headers={"typ": "at+jwt"}), "key"),
    "another alg, our key": (lambda t, m: signed_by_hand(m, t.ring, "HS512", hashlib.sha512), "malformed"),
    "kid unknown": (lambda t, m: resigned(m, t.ring, kid="0" * 16), "key"),
    "kid of ours, key of another": (
        lambda t, m: of_another_ring(t.ring.path.parent, t.ring.signing()[0]),
        "signature",
    ),
    "kid swapped for the older key": (
        lambda t, m: (older := t.ring.signing()[0], t.ring.rotate(), resigned(m, t.ring, kid=older))[2],
        "signature",
    ),
    "kid a path": (lambda t, m: resigned(m, t.ring, kid="../../dev/null"), "key"),
    "kid SQL": (lambda t, m: resigned(m, t.ring, kid="' OR 1=1 --"), "key"),
    "kid no text": (lambda t, m: unsigned(m, kid=7), "malformed"),
    "typ JWT": (lambda t, m: resigned(m, t.ring, typ="JWT"), "type"),
    "crit unknown": (lambda t, m: resigned(m, t.ring, crit=["x"], x=1), "malformed"),
    "tampered": (lambda t, m: tampered(m), "signature"),
    "cut off": (lambda t, m: m.token[:-2], "signature"),
    "signature of nothing": (lambda t, m: m.token.rpartition(".")[0] + ".", "signature"),
    "no token": (lambda t, m: "token", "malformed"),
    "too long": (lambda t, m: resigned(m, t.ring, {"x": "y" * LONGEST_TOKEN}), "long"),
    "nested": (lambda t, m: base64.urlsafe_b64encode(b"[" * 3_000).decode() + ".e30.", "malformed"),
    "expired": (lambda t, m: t.mint("ann", ["docs"], now=NOW - TOKEN_S - LEEWAY_S - 5).token, "expired"),
    "issued in the future": (lambda t, m: t.mint("ann", ["docs"], now=NOW + TOKEN_S).token, "not valid yet"),
    "not before": (lambda t, m: resigned(m, t.ring, {"nbf": NOW + TOKEN_S}), "not valid yet"),
    "a year": (lambda t, m: resigned(m, t.ring, {"exp": NOW + 365 * 24 * 3600}), "30 days"),
    "no expiry": (lambda t, m: resigned(m, t.ring, {"exp": None}), "malformed"),
    "no id": (lambda t, m: resigned(m, t.ring, {"jti": None}), "malformed"),
    "no hub": (lambda t, m: resigned(m, t.ring, {"hub": None}), "malformed"),
    "hub a text": (lambda t, m: resigned(m, t.ring, {"hub": "docs"}), "malformed"),
    "hub a pattern": (lambda t, m: resigned(m, t.ring, {"hub": ["*"]}), "another server"),
    "scope a list": (lambda t, m: resigned(m, t.ring, {"scope": ["hub:recall"]}), "malformed"),
    "expiry a text": (lambda t, m: resigned(m, t.ring, {"exp": str(NOW + TOKEN_S)}), "malformed"),
    "another issuer": (lambda t, m: resigned(m, t.ring, {"iss": "https://other.example"}), "another server"),
    "audience of another host": (
        lambda t, m: resigned(m, t.ring, {"aud": "https://other.example/api/hub/docs"}),
        "another server",
    ),
    "audience of a hub it does not name": (lambda t, m: resigned(m, t.ring, {"aud": f"{BASE}/api/hub/x"}), "server"),
    "revoked": (revoked, "revoked"),
    "rotated out": (rotated_out, "key"),
}


@pytest.mark.parametrize("case", MATRIX)
def test_what_is_not_ours_now_is_refused(tokens: Tokens, case: str) -> None:
    make, why = MATRIX[case]
    token = make(tokens, tokens.mint("ann", ["docs"]))
    with pytest.raises(ApiError, match=why) as refused:
        tokens.verify(token)
    assert (refused.value.status, refused.value.code) == (401, "invalid_token")


def test_what_is_ours_is_taken(tokens: Tokens) -> None:
    assert tokens.verify(tokens.mint("ann", ["docs"]).token) == Grant("ann", frozenset({"docs"}), frozenset({RECALL}))


@pytest.mark.parametrize(
    ("minted", "scope", "slug", "allowed"),
    [
        pytest.param(("bob", ["docs"], [RECALL]), RECALL, "docs", True, id="scoped"),
        pytest.param(("bob", ["docs"], [RECALL]), INGEST, "docs", False, id="another scope"),
        pytest.param(("bob", ["docs"], [INGEST]), RECALL, "docs", False, id="scopes do not contain each other"),
        pytest.param(("bob", ["docs", "wiki"], [RECALL]), RECALL, "wiki", True, id="two hubs"),
        pytest.param(("bob", ["wiki"], [RECALL]), RECALL, "docs", False, id="another hub"),
        pytest.param(("ann", ["docs"], None), INGEST, "docs", True, id="the owner, unscoped"),
        pytest.param(("ann", ["docs"], [RECALL]), INGEST, "docs", False, id="the owner, narrowed"),
        pytest.param(("ann", ["wiki"], None), RECALL, "docs", False, id="the owner, for another hub"),
        pytest.param(("bob", ["docs"], None), RECALL, "docs", False, id="unscoped and not the owner"),
    ],
)
def test_what_a_token_allows(
    tokens: Tokens, minted: tuple[str, list[str], list[str] | None], scope: str, slug: str, allowed: bool
) -> None:
    grant = tokens.verify(tokens.mint(*minted).token)
    assert grant.allows(scope, hub(slug)) is allowed


def test_nobody_owns_a_hub_without_an_owner(tokens: Tokens) -> None:
    assert not Grant("", frozenset({"docs"}), None).allows(RECALL, hub(owner=""))


def test_an_audience_narrows_the_hubs_named(tokens: Tokens, ring: KeyRing) -> None:
    both = tokens.mint("ann", ["docs", "wiki"])
    assert tokens.verify(both.token).hubs == {"docs", "wiki"}
    assert tokens.verify(resigned(both, ring, {"aud": f"{BASE}/api/hub/wiki"})).hubs == {"wiki"}


def test_a_rotation_lets_tokens_under_way_live_on(tokens: Tokens) -> None:
    old = tokens.mint("ann", ["docs"])
    kid = tokens.ring.rotate()
    assert tokens.verify(old.token).subject == "ann"
    assert [(key.kid == kid, key.signs) for key in tokens.ring.live()] == [(True, True), (False, False)]
    assert jwt.get_unverified_header(tokens.mint("ann", ["docs"]).token)["kid"] == kid


def test_another_process_rotates_and_revokes_under_a_running_server(tokens: Tokens) -> None:
    minted, kept = tokens.mint("ann", ["docs"]), tokens.mint("ann", ["docs"])
    code = (
        "import sys; from pathlib import Path; from recall_cli.hub.stores.signing_keys import KeyRing\n"
        "ring = KeyRing(Path(sys.argv[1])); ring.revoke(sys.argv[2], float(sys.argv[3])); ring.rotate()"
    )
    subprocess.run([sys.executable, "-c", code, str(tokens.ring.path), minted.jti, str(minted.expires)], check=True)
    with pytest.raises(ApiError, match="revoked"):
        tokens.verify(minted.token)
    assert tokens.verify(kept.token).subject == "ann"
    assert len(tokens.ring.live()) == 2


def test_a_revocation_outlives_the_process(tokens: Tokens, ring: KeyRing) -> None:
    minted = tokens.mint("ann", ["docs"])
    assert tokens.revoke(minted.token) == minted.jti
    again = KeyRing(ring.path)
    assert again.is_revoked(minted.jti)
    again.close()


def test_no_wrong_clock_brings_a_revoked_token_back(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    minted, other = tokens.mint("ann", ["docs"]), tokens.mint("ann", ["docs"])
    tokens.revoke(minted.token)
    years = 3 * 365 * 24 * 3_600
    for wrong in (years, -years):
        with monkeypatch.context() as jump:
            jump.setattr(time, "time", lambda wrong=wrong: NOW + wrong)
            tokens.revoke(other.token)
    tokens.ring.rotate()
    for token in (minted, other):
        with pytest.raises(ApiError, match="revoked"):
            tokens.verify(token.token)


def test_a_token_is_revoked_by_its_id_too(tokens: Tokens) -> None:
    minted = tokens.mint("ann", ["docs"])
    tokens.revoke(f" {minted.jti}\n")
    with pytest.raises(ApiError, match="revoked"):
        tokens.verify(minted.token)


@pytest.mark.parametrize("wrong", ["", " ", "a.b.c", "e30.e30.e30"])
def test_what_is_no_token_is_not_revoked(tokens: Tokens, wrong: str) -> None:
    with pytest.raises(UsageError):
        tokens.revoke(wrong)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_keys_that_others_can_read_are_refused(ring: KeyRing, mode: int) -> None:
    ring.rotate()
    assert {file.stat().st_mode & 0o777 for file in ring.path.parent.glob("keys.db*")} == {0o600}
    os.chmod(ring.path, mode)
    with pytest.raises(InputError, match="others can read"):
        KeyRing(ring.path)


def test_a_file_that_holds_no_keys_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "keys.db"
    path.write_bytes(b"something else, and longer than a header of SQLite would be" * 20)
    path.chmod(0o600)
    before = path.read_bytes()
    with pytest.raises(StoreError):
        KeyRing(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"subject": "", "hubs": ["docs"]},
        {"subject": "ann", "hubs": []},
        {"subject": "ann", "hubs": ["docs"], "ttl_s": 0},
        {"subject": "ann", "hubs": ["docs"], "ttl_s": LONGEST_S + 1},
        {"subject": "ann", "hubs": ["docs"], "scopes": ["hub:everything"]},
        {"subject": "ann", "hubs": [f"a-hub-with-a-long-name-{n}" for n in range(200)]},
    ],
)
def test_what_no_token_can_say_is_not_minted(tokens: Tokens, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        tokens.mint(**wrong)


@given(st.one_of(st.text(max_size=200), st.binary(max_size=200).map(lambda raw: raw.decode("latin-1"))))
def test_any_text_is_refused_and_breaks_nothing(text: str) -> None:
    tokens = Tokens(NoKeys(), BASE)  # type: ignore[arg-type]
    for token in (text, f"{text}.{text}.{text}", base64.urlsafe_b64encode(text.encode()).decode() + ".e30.e30"):
        with pytest.raises(ApiError):
            tokens.verify(token)


class NoKeys:
    def secret(self, kid: str) -> None:
        return None


@pytest.mark.parametrize(
    ("headers", "token"),
    [([], None), (["Bearer abc"], "abc"), (["bearer  abc "], "abc")],
)
def test_a_bearer_is_read(headers: list[str], token: str | None) -> None:
    assert read_bearer(headers) == token


@pytest.mark.parametrize("headers", [["Basic abc"], ["Bearer"], ["Bearer "], [""], ["Bearer a", "Bearer b"]])
def test_another_credential_is_refused(headers: list[str]) -> None:
    with pytest.raises(ApiError):
        read_bearer(headers)


def test_a_base_url_has_one_spelling() -> None:
    assert checked_base("HTTPS://Hub.Example.org:8443/") == "https://hub.example.org:8443"
    for wrong in (
        "hub.example.org",
        "ftp://x",
        "https://",
        "https://u:p@x",
        "https://x/?q",
        "https://x/#f",
        "http://x/y",
    ):
        with pytest.raises(UsageError):
            checked_base(wrong)


def test_a_challenge_says_where_to_look_and_nothing_that_breaks_out() -> None:
    refusal = ApiError(401, "invalid_token", 'a "quoted\\" word', scope=RECALL)
    said = challenge(refusal, f"{BASE}/.well-known/x")
    assert said == (
        'Bearer error="invalid_token", error_description="a \'quoted\'\' word", '
        f'resource_metadata="{BASE}/.well-known/x", scope="hub:recall"'
    )
    assert "error" not in challenge(ApiError(401, "token_required", "bring one"), "u")


def test_keys_whose_damage_cannot_even_be_quoted_are_told(tmp_path: Path) -> None:
    path = tmp_path / "keys.db"
    KeyRing(path).close()
    # SQLite names the table that it cannot make out.
    damaged = path.read_bytes().replace(b"revokedrevoked", b"re\xff\xfeoedrevoked").replace(b"CREATE", b"CR\xff\xfeTE")
    path.write_bytes(damaged)
    with pytest.raises(StoreError):
        KeyRing(path)
