"""Collect distinct real sentences to measure indexes on, one a line, on standard output.

    python benchmarks/collect_text.py 60000 ../shared/data > real-sentences.txt
    recall ann-bench --dims 256 --corpus 10000,50000 --data real-sentences.txt

Takes the questions of CLINC150 and BANKING77 from the evaluation data folder, then fills up with
sentences from the docstrings of whatever Python packages are installed beside this interpreter.
"""

from __future__ import annotations

import ast
import csv
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'])")
WORDS = (4, 40)


def questions(data: Path) -> Iterator[str]:
    """Yield the utterances of both intent sets."""
    for split in json.loads((data / "clinc150" / "data_full.json").read_text(encoding="utf-8")).values():
        yield from (text for text, _ in split)
    for name in ("train.csv", "test.csv"):
        with (data / "banking77" / name).open(encoding="utf-8", newline="") as file:
            yield from (row["text"] for row in csv.DictReader(file))


def docstrings() -> Iterator[str]:
    """Yield the sentences of all docstrings under the import path, in a fixed order of files."""
    roots = [Path(root) for root in sys.path if root and Path(root).is_dir()]
    for path in sorted({file for root in roots for file in root.rglob("*.py")}):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, UnicodeDecodeError, ValueError, RecursionError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                for paragraph in re.split(r"\n\s*\n", text):
                    # Doctests, tables and parameter lists are not sentences.
                    if not re.search(r">>>|:param|---|===|\|", paragraph):
                        yield from SENTENCE.split(" ".join(paragraph.split()))


def main() -> None:
    """Print the sentences, each once (case ignored), shuffled with a fixed seed."""
    wanted, data = int(sys.argv[1]), Path(sys.argv[2])
    seen: dict[str, str] = {}
    for source in (questions(data), docstrings()):
        for text in source:
            line = " ".join(text.split())
            if WORDS[0] <= len(line.split()) <= WORDS[1]:
                seen.setdefault(line.casefold(), line)
            if len(seen) >= wanted:
                break
    lines = list(seen.values())
    random.Random(0).shuffle(lines)
    sys.stdout.write("\n".join(lines[:wanted]) + "\n")


if __name__ == "__main__":
    main()
