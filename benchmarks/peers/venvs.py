"""An environment for each peer, made once and kept under its requirements' digest."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

DONE = "installed.txt"
"""Written last, so that an environment whose making was cut short is made again."""


class VenvError(Exception):
    """What the installer said of requirements that it could not install."""


def python_of(name: str, requirements: Sequence[str], work: Path) -> Path:
    """Return the interpreter of an environment with these requirements, making it when it is not there.

    Without requirements it is our own interpreter. Raises VenvError.
    """
    if not requirements:
        return Path(sys.executable)
    wanted = "\n".join(requirements) + "\n"
    digest = hashlib.blake2b((wanted + sys.version).encode(), digest_size=6).hexdigest()
    folder = work / "venvs" / f"{name}-{digest}"
    python = folder / "bin" / "python"
    if (folder / DONE).exists():
        return python
    venv.create(folder, with_pip=True, clear=True)
    listed = folder / "requirements.txt"
    listed.write_text(wanted)
    told = subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "--requirement", str(listed)], capture_output=True, text=True
    )
    if told.returncode:
        raise VenvError(told.stderr.strip().splitlines()[-1] if told.stderr.strip() else "pip failed")
    (folder / DONE).write_text(wanted)
    return python
