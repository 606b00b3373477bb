"""recall: measure whether a semantic cache pays and whether it lies, then run it."""

from __future__ import annotations

__version__ = "0.1.0"
