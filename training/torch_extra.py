"""The extra `train`: found, imported without types, and held to one thread."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from recall_cli.errors import UsageError, extra_hint

EXTRA_HINT = extra_hint("train")


def need_extra() -> None:
    """Raise UsageError when a package of the extra is missing."""
    for name in ("torch", "transformers", "skeletoken", "threadpoolctl"):
        if importlib.util.find_spec(name) is None:
            raise UsageError(f"building a model needs {name}, which is not installed", hint=EXTRA_HINT)


def optional(name: str) -> Any:
    """Import a module of the extra `train`; untyped, so that type checking does not need it installed."""
    return importlib.import_module(name)


@contextmanager
def single_thread() -> Iterator[None]:
    """Hold torch and the BLAS to one thread: how a sum is split decides its last bits."""
    torch = optional("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with optional("threadpoolctl").threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
