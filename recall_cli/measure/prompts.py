"""Prompts files: one prompt a line or JSON Lines, with or without labels that say what is right.

The bundled workload is labelled: each query says which entry, if any, has its answer. A user's
own prompts rarely are; they are replayed as they come, and claim only what is known about them.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from recall_cli.errors import InputError

TEXT_FIELDS = ("text", "prompt", "question", "input")
"""Where the prompt of a JSON line is looked for, in this order."""
LABEL_FIELDS = ("paraphrases", "lookalikes", "new")
"""A line with any of these is labelled: it follows the schema of `workloads/prompts.jsonl`."""
JSON_START = re.compile(r'\s*(\{|\[\s*[{"]|".*"\s*$)', re.MULTILINE)
"""What a file without a telling name begins with when it is JSON; "[INST]" is a prompt."""
HEAD_BYTES = 64 << 10
"""Read first, to tell text from what has no end."""
FORMAT_HINT = 'Give one prompt a line in a .txt file, or JSONL objects with "text", "prompt", "question" or "input".'


@dataclass(frozen=True, slots=True)
class Prompt:
    """One line of a prompts file; an unlabelled one has no `labels`, and one without a prompt no `text`."""

    number: int
    text: str
    labels: tuple[tuple[str, Kind, str], ...] = ()
    """Each query of the line as (text, kind, trap), the line's own text first."""


class Kind(StrEnum):
    """How a query relates to the entries of the cache."""

    REPEAT = "repeat"
    PARAPHRASE = "paraphrase"
    LOOKALIKE = "lookalike"
    NEW = "new"
    UNLABELLED = "unlabelled"
    """Nobody said what is right: it counts in the hit rate, never in the false-hit rate."""


@dataclass(frozen=True, slots=True)
class Query:
    """One question to look up."""

    text: str
    kind: Kind
    seed: int | None
    """Index into `Workload.seeds`: the entry whose answer is right, or, for a look-alike, the tempting wrong one."""
    trap: str = ""
    """What makes a look-alike differ ("negation", "number", ...); bench.toml lists them."""

    @property
    def should_hit(self) -> bool | None:
        """Whether the cache ought to serve `seed`; None when no truth is known."""
        if self.kind is Kind.UNLABELLED:
            return None
        return self.kind in (Kind.REPEAT, Kind.PARAPHRASE)


@dataclass(frozen=True, slots=True)
class Workload:
    """Entries and queries, both in the order of the file."""

    name: str
    version: int
    seeds: tuple[str, ...]
    """Texts of the entries. The first `preloaded` are in the cache before any query runs; the others are
    the texts of the UNLABELLED queries, in order: each enters the cache after its own lookup."""
    queries: tuple[Query, ...]
    """A labelled workload may be asked in any order; with UNLABELLED queries this order is the replay."""
    source: str
    preloaded: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Lines that gave no query, counted by reason."""

    def compared(self) -> list[tuple[Query, str]]:
        """Return the paraphrases and the look-alikes, each with the text of the entry that it is labelled by."""
        kinds = (Kind.PARAPHRASE, Kind.LOOKALIKE)
        return [(q, self.seeds[q.seed]) for q in self.queries if q.seed is not None and q.kind in kinds]


def from_prompts(path_or_dash: str, stdin: BinaryIO | None) -> Workload:
    """Return a workload of the user's own prompts, from a file or, for "-", from standard input.

    One prompt a line, or JSONL: objects with one of TEXT_FIELDS, or bare strings. Lines in the schema of
    `workloads/prompts.jsonl` keep their labels. Of the others, a repeat of an identical earlier prompt is
    REPEAT and the rest are UNLABELLED. Lines without a prompt are counted in `skipped`.
    Raises InputError when the input cannot be read, is not UTF-8 text, has a malformed line or labels
    that contradict each other, or holds no prompt at all.
    """
    text, source = read_text(path_or_dash, stdin, "prompts")
    lines, skipped = read_prompts(text, source, as_json=_is_json(text, source))
    if not lines:
        raise InputError(f"{source} holds no prompt ({skipped.total()} lines skipped).", hint=FORMAT_HINT)
    return make_workload("prompts", 0, lines, source, skipped)


def standard_input() -> BinaryIO | None:
    """Return standard input as bytes, None when it is closed."""
    return None if sys.stdin is None else sys.stdin.buffer


def read_text(path_or_dash: str, stdin: BinaryIO | None, what: str) -> tuple[str, str]:
    """Return the text of a file, or of standard input for "-", and what to call it. Raises InputError."""
    if path_or_dash != "-":
        return decode(read_file(Path(path_or_dash)), path_or_dash), path_or_dash
    if stdin is None:
        raise InputError("standard input is closed", hint=f"pipe the {what} in, or name a file")
    return decode(stdin.read(), "standard input"), "standard input"


def read_file(path: Path) -> bytes:
    """Return a file's bytes. Raises InputError."""
    try:
        return text_bytes(path)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path} cannot be read: {reason}.", hint="Name a readable file; - is stdin.") from None


def text_bytes(path: Path) -> bytes:
    """Return a file's bytes, or the first of them when they show that it is no text: /dev/zero has no end."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        return head if b"\0" in head else head + file.read()


def decode(data: bytes, source: str) -> str:
    """Return bytes as text. Raises InputError when they are not UTF-8 text."""
    try:
        text = data.decode("utf-8-sig")
        # A NUL is valid UTF-8, yet no prompt has one: it tells archives and UTF-16 from text.
        bad = data.find(b"\0")
    except UnicodeDecodeError as error:
        text, bad = "", error.start
    if bad >= 0:
        line = data.count(b"\n", 0, bad) + 1
        message = f"{source} is not UTF-8 text: line {line} has the byte 0x{data[bad]:02x}."
        raise InputError(message, hint="Save it as UTF-8 text, for instance with iconv -t UTF-8.")
    return text


def _is_json(text: str, source: str) -> bool:
    suffix = Path(source).suffix.lower()
    if suffix in (".jsonl", ".ndjson", ".json", ".txt"):
        return suffix != ".txt"
    return bool(JSON_START.match(text))


def read_prompts(text: str, source: str, *, as_json: bool) -> tuple[list[Prompt], Counter[str]]:
    """Return the lines that hold a prompt, and how many hold none, by reason."""
    lines: list[Prompt] = []
    skipped: Counter[str] = Counter()
    # Not splitlines(): a JSON string may hold U+2028 and other characters that it would cut at.
    for number, raw in enumerate(text.removesuffix("\n").split("\n"), 1):
        line = _json_line(number, raw, source) if as_json and raw.strip() else Prompt(number, raw.strip())
        if line.text:
            lines.append(line)
        else:
            skipped["without a prompt" if raw.strip() else "blank"] += 1
    return lines, skipped


def _json_line(number: int, raw: str, source: str) -> Prompt:
    """Return the line; its text is empty when the JSON is sound but holds no prompt."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{source}, line {number} is not valid JSON: {error}.", hint=FORMAT_HINT) from None
    record = value if isinstance(value, dict) else {"text": value}
    texts = (record.get(name) for name in TEXT_FIELDS)
    prompt = next((text for text in texts if isinstance(text, str) and text.strip()), "")
    try:
        return Prompt(number, prompt, _labels(prompt, record))
    except (TypeError, KeyError):
        raise InputError(
            f"{source}, line {number}: the labels do not follow the schema.",
            hint='"paraphrases" is a list of texts, "lookalikes" of {"text": ..., "trap": ...}; "new" is true.',
        ) from None


def _labels(prompt: str, record: Mapping[str, Any]) -> tuple[tuple[str, Kind, str], ...]:
    """Return the labels of a line. Raises TypeError or KeyError when they do not follow the schema."""
    if not any(name in record for name in LABEL_FIELDS):
        return ()
    if record.get("new") is True:
        return ((prompt, Kind.NEW, ""),)
    paraphrases, lookalikes = record.get("paraphrases", []), record.get("lookalikes", [])
    if not isinstance(paraphrases, list) or not isinstance(lookalikes, list):
        raise TypeError("not a list")
    labels = [(prompt, Kind.REPEAT, "")]
    labels += [(text, Kind.PARAPHRASE, "") for text in paraphrases]
    labels += [(item["text"], Kind.LOOKALIKE, item.get("trap", "")) for item in lookalikes]
    if not all(isinstance(text, str) and text.strip() and isinstance(trap, str) for text, _, trap in labels):
        raise TypeError("not a text")
    return tuple(labels)


def make_workload(name: str, version: int, lines: list[Prompt], source: str, skipped: Counter[str]) -> Workload:
    """Return the workload of the lines: the labelled ones fill the cache, the others are replayed."""
    entries: dict[str, int] = {}
    for line in lines:
        if line.labels and line.labels[0][1] is not Kind.NEW:
            entries.setdefault(line.text, len(entries))
    preloaded = len(entries)
    queries: list[Query] = []
    for line in lines:
        queries += _labelled(line, entries, source) if line.labels else [_replayed(line.text, entries)]
    return Workload(name, version, tuple(entries), tuple(queries), source, preloaded, dict(skipped))


def _replayed(text: str, entries: dict[str, int]) -> Query:
    if text in entries:
        return Query(text, Kind.REPEAT, entries[text])
    entries[text] = len(entries)
    return Query(text, Kind.UNLABELLED, None)


def _labelled(line: Prompt, entries: Mapping[str, int], source: str) -> list[Query]:
    queries = [
        Query(text, kind, None if kind is Kind.NEW else entries[line.text], trap) for text, kind, trap in line.labels
    ]
    for query in queries:
        answered = query.seed if query.should_hit else None
        # An entry of the very same text is served whatever the label says, so one of the two is wrong.
        if entries.get(query.text, answered) != answered:
            raise InputError(
                f'{source}, line {line.number}: "{query.text}" is labelled {query.kind} but is itself an entry.',
                hint="Correct the label, or remove one of the two lines.",
            )
    return queries
