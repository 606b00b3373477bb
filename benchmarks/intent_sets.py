"""Retrieval sets out of labelled questions: a question's right documents are those of the same intent.

    python benchmarks/evaluation_sets.py ../shared/data FOLDER
    python benchmarks/hub_quality.py FOLDER/intents/banking77 FOLDER/intents/clinc150 --out results/hub-unseen.json

Documents are the training questions of BANKING77 and CLINC150, one line each; 400 test questions of each, drawn with a
seed, are asked. It is another task than finding the passage that answers, and texts are short: a check of settings
that were chosen elsewhere.
"""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import orjson

ASKED = 400

Labelled = tuple[str, str]
"""A text and its intent."""


def banking(data: Path, split: str) -> list[Labelled]:
    """Return one split of BANKING77."""
    with (data / "banking77" / f"{split}.csv").open(encoding="utf-8", newline="") as file:
        return [(row["text"], row["category"]) for row in csv.DictReader(file)]


def clinc(data: Path, split: str) -> list[Labelled]:
    """Return one split of CLINC150; what is out of scope is in splits of its own, such as "oos_test"."""
    return [(text, intent) for text, intent in orjson.loads((data / "clinc150/data_full.json").read_bytes())[split]]


def write(folder: Path, documents: Sequence[Labelled], questions: Sequence[Labelled]) -> None:
    """Write a set as `hub_quality` reads it."""
    folder.mkdir(parents=True)
    of: dict[str, list[int]] = defaultdict(list)
    for number, (_, intent) in enumerate(documents):
        of[intent].append(number)
    corpus = [{"_id": f"d{number}", "title": "", "text": text} for number, (text, _) in enumerate(documents)]
    queries = [{"_id": f"q{number}", "text": text} for number, (text, _) in enumerate(questions)]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    judged = [f"q{asked}\td{found}\t1" for asked, (_, intent) in enumerate(questions) for found in of[intent]]
    (folder / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]), encoding="utf-8")


def lay_out(data: Path, folder: Path) -> None:
    """Write both sets below a folder."""
    chance = random.Random(0)
    for name, read in (("banking77", banking), ("clinc150", clinc)):
        asked = chance.sample(read(data, "test"), ASKED)
        write(folder / name, read(data, "train"), asked)
