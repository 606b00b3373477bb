"""HAR: what a browser or `mitmdump --set hardump` saw go over the wire. Calls are picked out by their address."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any

from recall_cli.logs.files import GZIP_MAGIC
from recall_cli.logs.formats.base import Adapter, Found, Pair
from recall_cli.logs.json_path import decoded, dig, text
from recall_cli.logs.record import status_of
from recall_cli.types import Json

CALLS = ("/completions", "/messages", "/responses")
MAX_BODY_BYTES = 64 << 20
"""What a compressed body may unpack to."""


class Har(Adapter):
    """Entries of a HAR file; bodies may be base64 of gzip of an event stream."""

    name = "har"

    def score(self, row: Json) -> int:
        """Count an entry's own keys."""
        if "startedDateTime" not in row or not isinstance(row.get("request"), dict):
            return 0
        return 4

    def read(self, row: Json, source: str) -> tuple[Found]:
        """Return the call of an entry."""
        url = text(dig(row, "request", "url"))
        if not url.partition("?")[0].rstrip("/").endswith(CALLS):
            return ("not_a_generation",)
        took = row.get("time")
        return (
            Pair(
                source,
                decoded(_content(dig(row, "request", "postData"))),
                decoded(_content(dig(row, "response", "content"))),
                {"start_time": row.get("startedDateTime"), "duration_ms": took if took != -1 else None},
                uri=url,
                status=status_of(dig(row, "response", "status")),
            ),
        )


def _content(held: Any) -> Any:
    """Return a body's text. HAR writes bytes that are no text as base64."""
    found = dig(held, "text")
    if not isinstance(found, str) or dig(held, "encoding") != "base64":
        return found
    try:
        data = base64.b64decode(found)
        if data.startswith(GZIP_MAGIC):
            data = zlib.decompressobj(wbits=31).decompress(data, MAX_BODY_BYTES)
    except (binascii.Error, ValueError, zlib.error):
        return found
    return data.decode("utf-8", "replace")
