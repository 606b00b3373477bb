"""Run one of our modules in a subprocess, to use another CPU core or to isolate crashes."""

from __future__ import annotations

import os
import subprocess
import sys

PIPE_BYTES = 1 << 20
"""Bytes of pipe buffer, where the system allows setting it, so that reader and writer do not run in lockstep."""


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
