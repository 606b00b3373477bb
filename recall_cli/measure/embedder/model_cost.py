"""What an embedder costs: microseconds a prompt, one at a time on one thread, and bytes on the disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recall_cli.cache.embed.registry import MODEL_FILES, model_folder
from recall_cli.measure.timing import Arm, interleave, microseconds, one_thread, ratio
from recall_cli.types import Embedder

WORDS = range(8, 17)
"""Words of the prompts that are timed: the length of a question, about 12."""
CALLS = 1_000
ROUND = 25


def rows(embedders: Mapping[str, Embedder], *, seed: int = 0, calls: int = CALLS) -> list[dict[str, Any]]:
    """Return one row an embedder, all timed in turns; `time_ratio` is its median over the first one's."""
    from recall_cli.measure.workload import bundled

    texts = [query.text for query in bundled().queries if len(query.text.split()) in WORDS]
    with one_thread():
        arms = {name: Arm(name, embedder.embed, texts) for name, embedder in embedders.items()}
        interleave(list(arms.values()), calls=calls, warmup=len(texts), seed=seed, block=ROUND)
    base = next(iter(arms.values()))
    return [
        {
            "measure": "cost",
            "data": "bundled prompts of 8 to 16 words",
            "embedder": name,
            "embed_us": microseconds(arm),
            "time_ratio": None if arm is base else ratio(arm, base, seed),
            "bytes": disk_bytes(name, embedders[name]),
        }
        for name, arm in arms.items()
    ]


def disk_bytes(name: str, embedder: Embedder) -> int | None:
    """Return the bytes of a model's files; None when nobody knows where they are."""
    if name == "hash-v1":
        return 0
    known: int | None = getattr(embedder, "bytes", None)
    folder = model_folder(name)
    if known is not None or not folder.is_dir():
        return known
    return sum((folder / file).stat().st_size for file in MODEL_FILES if (folder / file).is_file())
