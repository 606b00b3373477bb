"""The public evaluation sets, laid out under the names that the recorded results go by.

    python benchmarks/evaluation_sets.py ../shared/data FOLDER

DATA holds clinc150/data_full.json and domains.json, banking77/train.csv and test.csv, fow-cache-dev/ and ir/. Nothing
is changed but the form: pairs and talks in one file each, the first 300 questions out of CLINC150's scope, and
retrieval sets out of both sets of intents.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import intent_sets

FOREIGN = 300
"""Everyday questions that no hub of documents answers."""
TALKS = ("conv-long", "conv-parts")


def lay_out(data: Path, folder: Path) -> None:
    """Write everything into a new folder."""
    folder.mkdir(parents=True)
    pairs = data / "fow-cache-dev"
    shutil.copyfile(pairs / "pairs.jsonl", folder / "fow-pairs.jsonl")
    for name in TALKS:
        files = sorted((pairs / name).glob("*.jsonl"))
        (folder / f"{name}.jsonl").write_bytes(b"".join(file.read_bytes() for file in files))
    (folder / "clinc150").mkdir()
    # Beside the texts the domains of their intents, which `recall eval` takes for namespaces.
    for name in ("data_full.json", "domains.json"):
        shutil.copyfile(data / "clinc150" / name, folder / "clinc150" / name)
    train, test = ((data / "banking77" / f"{split}.csv").read_bytes() for split in ("train", "test"))
    (folder / "banking77.csv").write_bytes(train + test.partition(b"\n")[2])
    strange = [{"text": text} for text, _ in intent_sets.clinc(data, "oos_test")[:FOREIGN]]
    (folder / "clinc150-oos-test.jsonl").write_bytes(b"\n".join(map(orjson.dumps, strange)))
    intent_sets.lay_out(data, folder / "intents")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    lay_out(given.data, given.folder)


if __name__ == "__main__":
    main()
