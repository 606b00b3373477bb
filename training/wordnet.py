"""Princeton WordNet's database files, as Debian's package `wordnet-base` installs them: glosses, examples, synonyms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recall_cli.errors import InputError

FOLDER = Path("/usr/share/wordnet")
FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
HINT = "apt-get install wordnet-base, or name the folder of WordNet's data files with --wordnet DIR"
QUOTED = re.compile(r'"([^"]+)"')
QUOTED_PART = re.compile(r';?\s*"[^"]*"')


@dataclass(frozen=True, slots=True)
class Synset:
    """Words of one meaning."""

    words: tuple[str, ...]
    gloss: str
    examples: tuple[str, ...]


def synsets(folder: Path) -> Iterator[Synset]:
    """Yield the meanings in the order of the files. Raises InputError when one cannot be read."""
    for name in FILES:
        yield from map(_synset, _lines(folder, name))


def _synset(line: str) -> Synset:
    text = line.partition("|")[2]
    return Synset(tuple(_words(line)[0]), QUOTED_PART.sub("", text).strip(" ;"), tuple(QUOTED.findall(text)))


def antonyms(folder: Path) -> dict[str, str]:
    """Return words with the first word that WordNet calls their opposite. Raises InputError when none can be read."""
    found: dict[str, str] = {}
    for name in FILES:
        rows = {line.split(" ", 1)[0]: _pointers(line) for line in _lines(folder, name)}
        for words, pointers in rows.values():
            for symbol, offset, _, ends in pointers:
                if symbol != "!" or offset not in rows:
                    continue
                # Hexadecimal: which word of this meaning is opposed to which word of the other one.
                here, there = int(ends[:2], 16) - 1, int(ends[2:], 16) - 1
                found.setdefault(words[here], rows[offset][0][there])
    return found


def _pointers(line: str) -> tuple[list[str], list[list[str]]]:
    """Return the words of a line, and its pointers as (symbol, offset, part of speech, ends)."""
    words, rest = _words(line)
    return words, [rest[1 + 4 * i : 5 + 4 * i] for i in range(int(rest[0]))]


def _lines(folder: Path, name: str) -> list[str]:
    try:
        # Latin-1 maps every byte: the few letters beyond ASCII must not stop a build.
        lines = (folder / name).read_text(encoding="latin-1").splitlines()
    except OSError as error:
        raise InputError(f"WordNet's {name} cannot be read in {folder}: {error.strerror}", hint=HINT) from error
    # The licence stands in front, each line of it indented.
    return [line for line in lines if line and not line.startswith(" ")]


def _words(line: str) -> tuple[list[str], list[str]]:
    """Return the words of `offset file type count word id word id ...` and what follows them; count is hexadecimal."""
    parts = line.partition("|")[0].split()
    end = 4 + 2 * int(parts[3], 16)
    # An adjective may carry its position, as in "galore(ip)".
    return [name.split("(")[0].replace("_", " ") for name in parts[4:end:2]], parts[end:]


def sentences(folder: Path) -> Iterator[str]:
    """Yield of each meaning its first word with the gloss, its examples, and its words in a row."""
    for synset in synsets(folder):
        yield f"{synset.words[0]}: {synset.gloss}"
        yield from synset.examples
        if len(synset.words) > 1:
            yield ", ".join(synset.words)
