"""Who may do what with a hub: signed tokens, made and verified.

A token is a JWT access token (RFC 9068) signed with HS256 by a key of the hubs' ring. It is good for the hubs
it names, at this server's address, for an hour by default. The algorithm is ours to say, never the token's.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from recall_cli.errors import UsageError
from recall_cli.hub.api.errors import INGEST, RECALL, ApiError
from recall_cli.hub.models import TOKEN_S, HubInfo

if TYPE_CHECKING:
    from recall_cli.hub.stores.signing_keys import KeyStore

ALGORITHM = "HS256"
TYPE = "at+jwt"
SCOPES = (RECALL, INGEST)
REQUIRED = ["iss", "aud", "sub", "iat", "exp", "jti", "hub"]

WELL_KNOWN = "/.well-known/oauth-protected-resource"

LONGEST_S = 30 * 24 * 3_600
"""A token that lives longer than this is not made, and not taken either."""
LEEWAY_S = 30
"""What two clocks may differ by."""

LONGEST_TOKEN = 4_096
"""Characters of a token at most: about a hundred hubs' names."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a verified token allows."""

    subject: str
    hubs: frozenset[str]
    """Slugs of the hubs it is good for."""
    scopes: frozenset[str] | None
    """None: it names none, which is how the owner of a hub has all of them, and anybody else has none."""

    def allows(self, scope: str, hub: HubInfo) -> bool:
        """Return whether the bearer may do this with the hub."""
        if hub.slug not in self.hubs:
            return False
        if self.scopes is None:
            return hub.owner != "" and hub.owner == self.subject
        return scope in self.scopes


@dataclass(frozen=True, slots=True)
class Minted:
    """A new token and what must be known to keep account of it."""

    token: str
    jti: str
    subject: str
    audience: str
    expires: int
    """Seconds since the epoch."""


class Tokens:
    """Makes and verifies the tokens of one server."""

    def __init__(self, ring: KeyStore, base_url: str) -> None:
        """Stand for one server.

        :param base_url: how callers name it, as in https://host; part of every token.
        """
        self.ring = ring
        self.issuer = checked_base(base_url)
        self.api = f"{self.issuer}/api"

    def metadata_url(self, slug: str) -> str:
        """Return where the protected-resource metadata of a hub are (RFC 9728).

        :param slug: as the caller wrote it: it need not be the name of a hub.
        """
        return f"{self.issuer}{WELL_KNOWN}/api/hub/{quote(slug, safe='')}"

    def metadata(self, path: str) -> dict[str, Any]:
        """Return the protected-resource metadata of `api` or `api/hub/SLUG`: how to ask there, not whether it exists.

        No authorization server is named: tokens are minted by whoever runs the hub, not fetched.
        """
        return {
            "resource": f"{self.issuer}/{path}",
            "scopes_supported": list(SCOPES),
            "bearer_methods_supported": ["header"],
        }

    def mint(
        self,
        subject: str,
        hubs: Collection[str],
        scopes: Collection[str] | None = (RECALL,),
        *,
        ttl_s: int = TOKEN_S,
        now: float | None = None,
    ) -> Minted:
        """Return a new token. Raises UsageError for what no token can say.

        :param hubs: the slugs it is good for, at least one.
        :param scopes: None names none: the token of a hub's owner.
        """
        if not subject or not hubs:
            raise UsageError("a token names a subject and a hub", hint="as in: recall hub token mint HUB --sub NAME")
        subject.encode()  # raises for a lone surrogate: the log of whoever verifies the token could not hold it
        if not 0 < ttl_s <= LONGEST_S:
            raise UsageError(f"a token lives from 1 second to 30 days, not {ttl_s} s", hint="mint a new one then")
        if unknown := set(scopes or ()) - set(SCOPES):
            raise UsageError(f"there is no scope {unknown.pop()!r}", hint=f"choose from {', '.join(SCOPES)}")
        import jwt

        issued = int(time.time() if now is None else now)
        names = sorted(set(hubs))
        audience = f"{self.api}/hub/{names[0]}" if len(names) == 1 else self.api
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "aud": audience,
            "sub": subject,
            "hub": names,
            "iat": issued,
            "exp": issued + ttl_s,
            "jti": secrets.token_urlsafe(16),
        }
        if scopes is not None:
            claims["scope"] = " ".join(sorted(scopes))
        kid, secret = self.ring.signing()
        token = jwt.encode(claims, secret, ALGORITHM, headers={"typ": TYPE, "kid": kid})
        if len(token) > LONGEST_TOKEN:
            raise UsageError(f"a token of {len(token):,} characters is too long", hint="name fewer hubs")
        return Minted(token, claims["jti"], subject, audience, claims["exp"])

    def verify(self, token: str) -> Grant:
        """Return what a token allows. Raises ApiError (401) for one that is not ours, not now, or no more."""
        claims = self._claims(token)
        hubs, scope, audience = claims["hub"], claims.get("scope"), claims["aud"]
        named = [audience] if isinstance(audience, str) else audience
        times = (claims["iat"], claims["exp"])
        if not (_are(str, hubs) and _are(str, named) and _are(int, times) and isinstance(scope, str | None)):
            raise _invalid("the token's claims are malformed")
        if times[1] - times[0] > LONGEST_S:
            raise _invalid("the token lives longer than 30 days")
        if self.ring.is_revoked(claims["jti"]):
            raise _invalid("the token was revoked")
        meant = frozenset(slug for slug in hubs if self.api in named or f"{self.api}/hub/{slug}" in named)
        if not meant:
            raise _invalid("the token is for another server")
        return Grant(claims["sub"], meant, None if scope is None else frozenset(scope.split()))

    def revoke(self, token_or_jti: str) -> str:
        """Refuse a token from now on, given whole or by its id. Return its id.

        A whole one is not verified: revoking what nobody could use harms nobody.
        """
        import jwt

        jti, until = token_or_jti.strip(), time.time() + LONGEST_S
        if jti.count(".") == 2:
            try:
                claims = jwt.decode(jti, options={"verify_signature": False})
                jti, until = str(claims["jti"]), float(claims["exp"])
            except (jwt.InvalidTokenError, KeyError, ValueError, TypeError):
                raise UsageError("this is neither a token nor a token's id", hint="paste it whole") from None
        if not jti:
            raise UsageError("there is nothing to revoke", hint="give a token, or the id that `mint` showed")
        self.ring.revoke(jti, until + 2 * LEEWAY_S)
        return jti

    def _claims(self, token: str) -> dict[str, Any]:
        """Return the claims of a token whose signature, type, issuer and times hold."""
        import jwt

        if len(token) > LONGEST_TOKEN:
            raise _invalid("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
            if header.get("typ") != TYPE:
                raise _invalid("the token is of another type")
            secret = self.ring.secret(header.get("kid", ""))
            if secret is None:
                raise _invalid("the token was signed with a key that is not known here")
            return jwt.decode(
                token,
                secret,
                algorithms=[ALGORITHM],
                issuer=self.issuer,
                leeway=LEEWAY_S,
                # Which hubs the audience stands for is asked where the hub is known.
                options={"require": REQUIRED, "verify_aud": False},
            )
        except jwt.ExpiredSignatureError:
            raise _invalid("the token has expired") from None
        except jwt.ImmatureSignatureError:
            raise _invalid("the token is not valid yet") from None
        except jwt.InvalidIssuerError:
            raise _invalid("the token is for another server") from None
        except (jwt.InvalidTokenError, RecursionError, ValueError):
            # PyJWT before 2.15 lets the error of a header nested a thousand deep through.
            raise _invalid("the token is malformed, or its signature is wrong") from None


def read_bearer(headers: list[str]) -> str | None:
    """Return the token of a request, None when it brings no credential.

    :param headers: the values of all its Authorization headers.
    """
    if not headers:
        return None
    scheme, _, token = headers[0].partition(" ")
    if len(headers) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise _invalid("the Authorization header must be one, and read: Bearer TOKEN")
    return token.strip()


def checked_base(url: str) -> str:
    """Return a server's URL as tokens write it: lower case, host and port alone. Raises UsageError."""
    parts = urlsplit(url)
    if parts.scheme.lower() not in ("http", "https") or not parts.netloc or "@" in parts.netloc:
        raise UsageError(f"{url!r} is no server's URL", hint="write it as in https://hub.example.org")
    if parts.path.strip("/") or parts.query or parts.fragment:
        # RFC 9728 puts a resource's path behind /.well-known/..., which only the root of a host can answer.
        raise UsageError(f"{url!r} goes beyond the host", hint="write it as in https://hub.example.org")
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}"


def challenge(refusal: ApiError, metadata_url: str) -> str:
    """Return the WWW-Authenticate header of a 401 or a 403 (RFC 6750, RFC 9728)."""
    said = {"resource_metadata": metadata_url}
    if refusal.code in ("invalid_token", "insufficient_scope"):
        said = {"error": refusal.code, "error_description": re.sub(r'["\\]', "'", str(refusal)), **said}
    if refusal.scope:
        said["scope"] = refusal.scope
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in said.items())


def _are(kind: type, value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, kind) for item in value)


def _invalid(message: str) -> ApiError:
    return ApiError(401, "invalid_token", message)
