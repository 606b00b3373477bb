"""What the second opinion is worth on kinds of pairs that its weights were not learned from, without writing them.

    python -m benchmarks.opinion ../shared/data --out results/opinion.json

It needs WordNet's files, as Debian's package wordnet-base has them. `python -m recall_cli.measure.opinion_fit` makes
the same report when it fits the weights that are shipped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from recall_cli.measure import opinion_fit, wordnet
from recall_cli.measure.result import to_json


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--wordnet", type=Path, default=wordnet.FOLDER)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    _, result = opinion_fit.run(given.wordnet, given.data)
    given.out.write_bytes(to_json(result))
    sys.stdout.write(opinion_fit.table(result) + "\n")


if __name__ == "__main__":
    main()
