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
        try:
            # Latin-1 maps every byte: the few letters beyond ASCII must not stop a build.
            lines = (folder / name).read_text(encoding="latin-1").splitlines()
        except OSError as error:
            raise InputError(f"WordNet's {name} cannot be read in {folder}: {error.strerror}", hint=HINT) from error
        # The licence stands in front, each line of it indented.
        yield from (_synset(line) for line in lines if line and not line.startswith(" "))


def _synset(line: str) -> Synset:
    """Read `offset file type count word id word id ... | gloss; "example"`; the count is hexadecimal."""
    head, _, text = line.partition("|")
    parts = head.split()
    names = [parts[4 + 2 * i] for i in range(int(parts[3], 16))]
    # An adjective may carry its position, as in "galore(ip)".
    words = tuple(name.split("(")[0].replace("_", " ") for name in names)
    return Synset(words, QUOTED_PART.sub("", text).strip(" ;"), tuple(QUOTED.findall(text)))


def sentences(folder: Path) -> Iterator[str]:
    """Yield of each meaning its first word with the gloss, its examples, and its words in a row."""
    for synset in synsets(folder):
        yield f"{synset.words[0]}: {synset.gloss}"
        yield from synset.examples
        if len(synset.words) > 1:
            yield ", ".join(synset.words)
