"""A model folder: how its table is rounded to int8, and how it is written, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import blake3
import numpy as np

from recall_cli.cache.embed.registry import MODEL_FILES
from recall_cli.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIGESTS = "digests.json"
KEPT = ("MODEL.md", "__init__.py")
"""Hand-written companions that a rebuild carries over."""


def quantise(table: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return (cells, scales) with row i of the table ~ cells[i] * scales[i]: symmetric, half to even.

    SIF leaves rows of norm 0.01 beside rows of norm 8. One scale for the table, as in model2vec's own
    int8, rounds the small ones to nothing: "1" and "3" would be the same vector.

    A scale is max|row| / 127, rounded up to 8 significant bits. Then 8 bits of scale, 7 of cell and 9 of a
    count up to 512 fill the 24 of a float32: a token repeated through a whole text adds up exactly, in
    any order, so that model2vec's running mean and our sum agree. It costs 1 % of the squared error.
    """
    # The floor keeps a row of zeros, or of subnormal numbers, from a division by zero.
    least = np.maximum(np.abs(table).max(axis=1) / np.float32(127), np.finfo(np.float32).tiny)
    fraction, exponent = np.frexp(least)
    scales: NDArray[np.float32] = np.ldexp(np.ceil(fraction * 256) / 256, exponent)
    return np.rint(table / scales[:, np.newaxis]).astype(np.int8), scales


def digest(path: Path) -> dict[str, Any]:
    """Return size, SHA-256 and BLAKE3 of a file."""
    body = path.read_bytes()
    return {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest(), "blake3": blake3.blake3(body).hexdigest()}


def check_target(out: Path) -> None:
    """Raise UsageError unless `out` can be made, or is empty or a model folder that holds nothing foreign."""
    hint = "name a new folder, or one that `recall model fit` wrote"
    parent = next(folder for folder in out.absolute().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise UsageError(f"{out} cannot be made: {parent} is not a folder you can write to", hint=hint)
    if not out.exists():
        return
    if not out.is_dir():
        raise UsageError(f"{out} is not a folder", hint=hint)
    names = {item.name for item in out.iterdir()} - {"__pycache__"}
    foreign = sorted(names - {*MODEL_FILES, *KEPT, DIGESTS})
    if foreign:
        raise UsageError(f"{out} is no model folder: it holds {foreign[0]}", hint=hint)
    if names and not (names >= set(MODEL_FILES) or names <= set(KEPT)):
        raise UsageError(f"{out} is no model folder: some of {', '.join(MODEL_FILES)} are missing", hint=hint)


def write_folder(
    out: Path, tensors: dict[str, Any], tokenizer: Any, config: dict[str, Any], record: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Write everything into a folder beside `out`, then rename it into place; return the digests."""
    from safetensors.numpy import save_file

    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        fresh = work / "new"
        fresh.mkdir()
        # The names under which model2vec looks for the rows and for what it multiplies them by.
        save_file(tensors, fresh / "model.safetensors")
        tokenizer.save(str(fresh / "tokenizer.json"), pretty=False)
        (fresh / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        files = {name: digest(fresh / name) for name in MODEL_FILES}
        record = {"files": files, **record}
        (fresh / DIGESTS).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        for name in KEPT:
            if (out / name).exists():
                shutil.copy2(out / name, fresh / name)
        for path in fresh.iterdir():
            path.chmod(0o644)  # safetensors creates its file readable by the owner alone
        if out.exists():
            out.rename(work / "old")
        try:
            fresh.rename(out)
        except OSError:
            if (work / "old").exists():
                (work / "old").rename(out)
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return files
