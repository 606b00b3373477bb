"""stub."""
from __future__ import annotations
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
Message = Mapping[str, Any]
Conversation = tuple[Message, ...]
@dataclass(frozen=True, slots=True)
class Pair:
    a: str | Conversation
    b: str | Conversation
    same: bool
    category: str = ""
    style: str = ""
    group: str = ""
