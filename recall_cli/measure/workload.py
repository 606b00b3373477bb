"""The bundled workload: the questions `recall bench` asks, and the filler a cache is filled with around them."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np

from recall_cli.errors import REINSTALL, InputError, UsageError
from recall_cli.measure.prompts import Workload, decode, make_workload, read_file, read_prompts

PACKAGE = Path(__file__).resolve().parents[1]
DEFINITION = "bench.toml"

_Slots = tuple[tuple[str, tuple[str, ...]], ...]
"""A template cut up: each slot as (the literal before it, its values)."""


def workloads_dir() -> Path:
    """Return the folder of the definitions: inside the package once installed, beside it in a checkout.

    Raises InputError when neither is there.
    """
    for folder in (PACKAGE / "_workloads", PACKAGE.parent / "workloads"):
        # Any project may have a folder "workloads"; only ours holds the definition.
        if (folder / DEFINITION).is_file():
            return folder
    raise InputError(
        f"The workload definitions that ship with recall are missing from {PACKAGE}.",
        hint=REINSTALL,
    )


def bundled() -> Workload:
    """Return the labelled workload of `workloads/bench.toml`: every text of its prompts file is one query.

    Raises InputError when a definition cannot be read.
    """
    definition = toml(DEFINITION)
    path = workloads_dir() / definition["prompts"]
    # Named as in the project, not as on this machine: the name goes into results.
    source = f"workloads/{path.name}"
    lines, skipped = read_prompts(decode(read_file(path), source), source, as_json=True)
    return make_workload(definition["name"], definition["version"], lines, source, skipped)


def filler(n: int, seed: int, avoid: Collection[str]) -> list[str]:
    """Return n distinct texts made from `workloads/filler.toml`, none of them in `avoid`; case is ignored.

    The same seed gives the same texts, and fewer of them are a prefix of more.
    Raises UsageError when the templates do not yield n texts, InputError when the file cannot be read.
    """
    templates = _templates()
    most = sum(map(_size, templates))
    if n <= most:
        texts = list(islice(_unseen(_filler_texts(templates, seed), avoid), n))
        if len(texts) == n:
            return texts
        most = len(texts)
    raise UsageError(
        f"{n:,} filler entries were asked for, but the templates yield {most:,}.",
        hint=f"Ask for fewer entries, or add templates and values to {workloads_dir() / 'filler.toml'}.",
    )


def _unseen(texts: Iterator[str], avoid: Collection[str]) -> Iterator[str]:
    seen = {text.casefold() for text in avoid}
    for text in texts:
        key = text.casefold()
        if key not in seen:
            seen.add(key)
            yield text


def _filler_texts(templates: list[_Slots], seed: int) -> Iterator[str]:
    """Yield every combination once. The templates take turns, so that any prefix is a fair mix of them."""
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(_size(template)) for template in templates]
    for turn in range(max(map(len, orders))):
        for template, order in zip(templates, orders, strict=True):
            if turn < len(order):
                yield _fill(template, int(order[turn]))


def _fill(template: _Slots, number: int) -> str:
    """Return one combination: `number` written in the mixed base of the slots' sizes."""
    pieces: list[str] = []
    for literal, values in template:
        number, digit = divmod(number, len(values))
        pieces += (literal, values[digit])
    return "".join(pieces)


def _size(template: _Slots) -> int:
    return math.prod(len(values) for _, values in template)


def _templates() -> list[_Slots]:
    definition = toml(toml(DEFINITION)["filler"])
    slots = {name: tuple(values) for name, values in definition["slots"].items()} | {None: ("",)}
    return [
        # The text after the last slot comes without a slot name: one with a single empty value.
        tuple((literal, slots[name]) for literal, name, _, _ in Formatter().parse(template))
        for domain in definition["templates"].values()
        for template in domain
    ]


def toml(name: str) -> dict[str, Any]:
    """Return a definition that ships with recall. Raises InputError when it cannot be read."""
    path = workloads_dir() / name
    try:
        return tomllib.loads(decode(read_file(path), str(path)))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}.", hint=REINSTALL) from None
