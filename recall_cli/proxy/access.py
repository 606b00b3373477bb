"""Who may see and change what on our own routes."""

from __future__ import annotations

import hmac
import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from recall_cli.proxy.settings import LOOPBACK, Settings

if TYPE_CHECKING:
    from starlette.requests import Request

TOKEN = "RECALL_ADMIN_TOKEN"

RELAYED = frozenset(
    {"forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip", "cf-connecting-ip"}
)
"""Headers of a terminator in front: it is on this machine, and who asks it need not be."""
FORWARDED = "x-forwarded-"
"""What others of these begin with."""


class Guard:
    """Who may see and change what.

    Changing takes the admin token, always, and beyond this machine the setting `admin` too. Seeing takes it as
    well, except from this machine; and then the Host must be this machine's, or any web page could look through
    its visitor's browser (DNS rebinding).
    """

    def __init__(self, settings: Settings) -> None:
        offered = settings.is_loopback or settings.admin
        self._token = os.environ.get(TOKEN, "").encode() if offered else b""

    @property
    def is_armed(self) -> bool:
        """Whether there is an admin API."""
        return bool(self._token)

    def knows(self, request: Request) -> bool:
        """Return whether the request carries the admin token."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return self.is_armed and scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), self._token)

    def may_see(self, request: Request) -> bool:
        """Return whether the request may see numbers and decisions."""
        try:
            host = urlsplit("//" + request.headers.get("host", "")).hostname
        except ValueError:  # half of an IPv6 address
            host = None
        is_here = request.client is not None and request.client.host in LOOPBACK
        is_here &= not any(name in RELAYED or name.startswith(FORWARDED) for name in request.headers)
        return self.knows(request) or (is_here and host in LOOPBACK)
