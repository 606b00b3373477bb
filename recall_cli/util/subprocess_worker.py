"""Another process that runs a module of ours: for what gains by a core of its own, or must not take this one along."""

from __future__ import annotations

import os
import subprocess
import sys

PIPE_BYTES = 1 << 20
"""What may be under way, where the system lets a pipe have a size: neither process waits for the other's every step."""


def start(module: str) -> subprocess.Popen[bytes]:
    """Run a module as a program of its own, with pipes to its standard input and output. Raises OSError."""
    # Where this process found the package, the other one does too.
    places = os.pathsep.join(place or os.getcwd() for place in sys.path)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pipesize=PIPE_BYTES,
        env=os.environ | {"PYTHONPATH": places},
    )
