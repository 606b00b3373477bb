"""Going on with an earlier index measurement: only with the same options on the same files, and whole rows."""

from __future__ import annotations

from typing import Any

from recall_cli.errors import InputError, UsageError
from recall_cli.measure.ann.plan import Setting
from recall_cli.measure.result import plain
from recall_cli.types import Result

COLUMNS: dict[str, type | tuple[type, ...]] = {
    "data": str,
    "dims": int,
    "corpus": int,
    "engine": str,
    "params": dict,
    "p5_us": (int, float),
    "p50_us": (int, float),
    "p99_us": (int, float, type(None)),
    "cpu_us": (int, float),
    "speedup_vs_exact": dict,
    "recall_at_1": (int, float),
    "recall_at_1_interval": list,
    "n": int,
    "recall_at_1_near": (int, float, type(None)),
    "recall_at_1_near_interval": (list, type(None)),
    "near_n": int,
    "recall_at_1_planted": (int, float),
    "nearest_cosine_median": (int, float),
    "build_s": (int, float),
    "bytes_per_vector": (int, float),
}
"""What a row of an earlier run must hold to be taken over."""

Key = tuple[str, int, int]
"""A cell: data, dimensions, rows."""


def finished_cells(done: Result | None, params: dict[str, Any]) -> dict[Key, list[dict[str, Any]]]:
    """Return the rows of an earlier run by cell.

    Raises UsageError when it measured something else, InputError when its rows were damaged.
    """
    if done is None:
        return {}
    if done.command != "ann-bench" or done.params != plain(params):
        raise UsageError(
            "the result to resume was measured with other options or other files",
            hint="repeat the options, or leave --resume out",
        )
    cells: dict[Key, list[dict[str, Any]]] = {}
    for number, old in enumerate(done.rows if isinstance(done.rows, list) else [None]):
        bad = next((name for name, kind in COLUMNS.items() if not _has(old, name, kind)), None)
        if bad is not None:
            raise InputError(
                f"row {number} of the result to resume has no {bad} that can be read",
                hint="the file was changed or damaged: leave --resume out",
            )
        cells.setdefault((old["data"], old["dims"], old["corpus"]), []).append(old)
    return cells


def _has(row: Any, name: str, kind: type | tuple[type, ...]) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get(name, ...), kind):
        return False
    if name == "speedup_vs_exact":
        return isinstance(row[name].get("ratio"), (int, float))
    if isinstance(row[name], list):
        return len(row[name]) == 2 and all(isinstance(end, (int, float)) for end in row[name])
    return True


def is_whole(rows: list[dict[str, Any]], grid: list[Setting]) -> bool:
    """Return whether the rows are all the settings of a cell, and no others."""
    return [(row["engine"], row["params"]) for row in rows] == [(setting.engine, setting.params()) for setting in grid]
