"""Which streams `recall eval` replays: presets, the text world, and the user's own classes files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from recall_cli.cache.embed.registry import make_embedder
from recall_cli.errors import UsageError
from recall_cli.measure.evaluate.pairs import NO_NAMESPACE, ClassSet, Item, load_classes
from recall_cli.measure.evaluate.policies import Source
from recall_cli.measure.evaluate.streams import Classes, TextWorld
from recall_cli.measure.prompts import standard_input
from recall_cli.measure.synthetic import vectors
from recall_cli.types import Warn

DEFAULT_WORKLOAD = "mixed"
TEXT_WORLD = "text-world"


def presets(names: Sequence[str], *, embedder: str) -> list[Source]:
    """Return the workloads of these names; "all" is every preset. Raises UsageError for an unknown one."""
    sources: list[Source] = []
    for name in names:
        if name == TEXT_WORLD:
            sources.append(TextWorld(embedder=embedder))
        else:
            sources += list(vectors.presets().values()) if name == "all" else [vectors.preset(name)]
    return sources


def classes(files: Sequence[str], limits: Mapping[str, int], *, embedder: str) -> tuple[Source, list[Warn]]:
    """Return all files as one stream, and what is to be said of them.

    Of several files, one without namespaces is a namespace of its own, named after it.

    :param limits: prompts drawn from a namespace for one stream; "" is for those that are not named.
    Raises InputError when a file cannot be read, UsageError when a limit names no namespace.
    """
    sets = [load_classes(file, standard_input()) for file in files]
    items = [item for found in sets for item in (found.items if len(sets) == 1 else _named(found))]
    known = {item.namespace for item in items}
    unknown = sorted(limits.keys() - known - {""})
    if unknown:
        raise UsageError(
            f"--limit names {unknown[0]!r}, which is no namespace of the classes",
            hint=f"they are {', '.join(sorted(known))}",
        )
    everywhere = dict.fromkeys(known, limits[""]) if "" in limits else {}
    limit = everywhere | {name: count for name, count in limits.items() if name}
    name = "+".join(found.source for found in sets)
    return Classes.of(name, items, make_embedder(embedder), limit=limit), [
        warn for found in sets for warn in found.warnings
    ]


def _named(found: ClassSet) -> list[Item]:
    own = Path(found.source).stem
    return [
        Item(item.text, item.answer_class, own if item.namespace == NO_NAMESPACE else item.namespace)
        for item in found.items
    ]
