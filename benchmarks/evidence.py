"""What the prior weights are worth on sets that they were not fitted to, without writing them.

    python benchmarks/evidence.py ../shared/data --out results/evidence.json

`python -m recall_cli.measure.prior_fit` makes the same report when it fits the weights that are shipped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from recall_cli.measure import prior_fit
from recall_cli.measure.result import to_json


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    _, result = prior_fit.run(given.data)
    given.out.write_bytes(to_json(result))
    sys.stdout.write(prior_fit.table(result) + "\n")


if __name__ == "__main__":
    main()
