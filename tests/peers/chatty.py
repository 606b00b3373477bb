"""An adapter over a dict that prints what it does, as some peers do, and breaks on demand."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks.peers.protocol import Found, Turns, serve


class Chatty:
    packages = ("numpy", "a-package-that-nobody-has")

    def __init__(self) -> None:
        self.held: dict[str, str] = {}

    def open(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        sys.stdout.write(f"opening {settings['folder']}\n")
        if settings.get("mode") == "broken":
            raise RuntimeError("no such mode")
        self.held.clear()
        return {"threshold": settings["threshold"]}

    def put(self, turns: Turns, answer: str) -> None:
        self.held[turns[-1]] = answer

    def get(self, turns: Turns) -> Found:
        sys.stdout.write(f"asked {turns}\n")
        if turns[-1] == "die":
            os._exit(7)
        return self.held.get(turns[-1]), None

    def close(self) -> None:
        sys.stdout.write("closing\n")


if __name__ == "__main__":
    serve(Chatty())
