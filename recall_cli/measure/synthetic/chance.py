"""Drawing by chance, the same way wherever texts are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def pick(rng: np.random.Generator, choices: Sequence[T]) -> T:
    """Return one of the choices, each as likely as the others; there must be one."""
    return choices[int(rng.integers(len(choices)))]
