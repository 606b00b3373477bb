"""The connection to the providers: requests out as they came in, answers back as bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from recall_cli.errors import UpstreamError
from recall_cli.proxy.asgi import Refused
from recall_cli.proxy.settings import Settings

if TYPE_CHECKING:
    from aiohttp import ClientResponse

    from recall_cli.proxy.planner import RawHeaders

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
NOT_SENT = HOP_BY_HOP | {b"host", b"expect"}
OURS = b"x-recall"

AUTOMATIC = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""What the client library would add on its own: the upstream must see the caller's headers alone."""

KEEP_ALIVE_S = 15.0
"""Upstream connections idle longer are closed on our side, before a front door closes them under a request."""

RACE_S = 1.0
"""A kept connection that closes without a byte this soon after a request had been closed before it: ask again."""


class Timeout(UpstreamError):
    """The upstream was silent for too long."""


class Upstream:
    """Sends requests to the providers. Open and close it inside the event loop."""

    def __init__(self, settings: Settings) -> None:
        self._limits = settings.limits
        self._bases = {"openai": _base(settings.openai), "anthropic": _base(settings.anthropic)}

    async def open(self) -> None:
        """Make the connection pool."""
        import aiohttp

        self._session = aiohttp.ClientSession(
            # No limit of connections here: the server's own limit bounds them.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, ttl_dns_cache=300),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=self._limits.connect_s, sock_read=self._limits.upstream_s
            ),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=AUTOMATIC,
            trust_env=False,
            # Headers of this size are the provider's own business.
            max_line_size=1 << 16,
            max_field_size=1 << 16,
        )

    async def close(self) -> None:
        """Close the connection pool."""
        await self._session.close()

    def url(self, provider: str, raw_path: bytes, query: bytes) -> str:
        """Return the upstream's URL of a path, byte for byte behind the base.

        Raises Refused for a target that is no path: behind the base, `*@elsewhere/` would name another host.
        """
        base = self._bases[provider]
        path = raw_path.decode("latin-1")
        if not path.startswith("/"):
            raise Refused(400, "bad_target", "the request target must be a path")
        # A base that names the version already, as SDKs' base URLs do, takes paths that name it too.
        if base.endswith("/v1") and (path == "/v1" or path.startswith("/v1/")):
            path = path[3:]
        return base + path + ("?" + query.decode("latin-1") if query else "")

    async def send(
        self, method: str, url: str, headers: list[tuple[str, str]], body: bytes | AsyncIterator[bytes] | None
    ) -> ClientResponse:
        """Return the response once its head is there. Raises UpstreamError; Timeout when it took too long."""
        import aiohttp
        from yarl import URL

        loop = asyncio.get_running_loop()
        target = URL(url, encoded=True)
        for last in (False, True):
            started = loop.time()
            try:
                return await self._session.request(method, target, headers=headers, data=body, allow_redirects=False)
            except aiohttp.ServerDisconnectedError as error:
                if last or not isinstance(body, bytes) or loop.time() - started > RACE_S:
                    raise UpstreamError(_why(error)) from error
            except (TimeoutError, aiohttp.ServerTimeoutError) as error:
                raise Timeout("the upstream did not answer in time") from error
            except (aiohttp.ClientError, OSError, UnicodeError, ValueError) as error:
                raise UpstreamError(_why(error)) from error
        raise AssertionError("unreachable")


async def chunks(response: ClientResponse) -> AsyncIterator[bytes]:
    """Yield the body as it arrives. Raises UpstreamError when it does not end as it should."""
    import aiohttp

    try:
        async for data in response.content.iter_any():
            yield data
    except (TimeoutError, aiohttp.ServerTimeoutError) as error:
        raise Timeout("the upstream went silent in mid-answer") from error
    except (aiohttp.ClientError, OSError) as error:
        raise UpstreamError(_why(error)) from error


def request_headers(headers: RawHeaders, *, drop: Iterable[bytes] = ()) -> list[tuple[str, str]]:
    """Return the caller's headers as they go upstream: without hop-by-hop ones and ours."""
    gone = NOT_SENT.union(drop)
    headers = list(headers)
    for name, value in headers:
        if name == b"connection":
            gone = gone.union(part.strip().lower() for part in value.split(b","))
    return [
        (name.decode("latin-1"), _text(value))
        for name, value in headers
        if name not in gone and not name.startswith(OURS)
    ]


def _text(value: bytes) -> str:
    """Return a header's value for the client library, which writes UTF-8: other bytes cannot stay as they are."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def response_headers(response: ClientResponse) -> list[tuple[bytes, bytes]]:
    """Return the upstream's headers as they go to the caller: without hop-by-hop ones, names in lower case."""
    headers = [(name.lower(), value) for name, value in response.raw_headers]
    gone = HOP_BY_HOP
    for name, value in headers:
        if name == b"connection":
            gone = gone.union(part.strip().lower() for part in value.split(b","))
    return [(name, value) for name, value in headers if name not in gone]


def _base(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _why(error: BaseException) -> str:
    """Return what failed, without what a library quotes of the answer."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return f"the upstream failed: {said}"
