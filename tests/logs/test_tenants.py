"""Walls: two rows meet only when the log names one tenant for both."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.logs.read import read_log
from recall_cli.logs.report import ReadReport
from recall_cli.logs.tenants import TENANT, wall


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


APART: list[dict[str, Any]] = [
    {},
    *(
        {"tenant": value}
        for value in ("7", 7, 7.0, 8.0, 0, True, {"id": "a"}, {"id": "b"}, ["a"], "a", "A", " ", "null")
    ),
    {"user": "7"},
    {"team": "7"},
    {"tenant": "\ud800"},
    {"tenant": "\ud801"},
    # None at all, or none worth the name: the next field is a wall too.
    *({"tenant": hollow, "team": team} for hollow in (False, 0, [], {}) for team in ("red", "blue")),
    {"tenant": False},
]


def test_no_two_of_these_meet() -> None:
    keys = [wall(row, "log:1")[0] for row in APART]
    assert len(set(keys)) == len(APART)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"tenant": None, "team": "", "user": None}),
        ({"team": "red"}, {"tenant": None, "team": "red", "user": "ann"}),
        ({"tenant": {"a": 1, "b": 2}}, {"tenant": {"b": 2, "a": 1}}),
    ],
)
def test_these_meet(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert wall(one, "log:1") == wall(other, "log:2")


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 1e30, {"id": [1e30]}, deep(100_000), "caf\ufffd"],
    ids=["nan", "inf", "big", "inner", "deep", "bytes"],
)
def test_what_has_no_canonical_form_is_walled_off_alone(value: Any) -> None:
    keys = {wall({"tenant": value}, f"log:{line}")[0] for line in (1, 2)}
    assert len(keys) == 2


def test_the_deciding_field_is_told() -> None:
    assert wall({"tenant": False, "team": "red", "user": "ann"}, "log:1")[1] == "team"
    assert wall({"user": 0}, "log:1")[1] == "user"
    assert wall({}, "log:1") == ("", "")


def test_ids_that_become_one_when_read_do_not_meet(tmp_path: Any) -> None:
    """Two whole numbers beyond a float, two names in Latin-1."""
    row = {"request": {"messages": [{"role": "user", "content": "Hi"}]}, "tenant": "@"}
    line = json.dumps(row).encode()
    ids = [b"100000000000000000000000000000%d" % i for i in (1, 2)] + [b'"caf\xe9"', b'"caf\xe8"']
    path = tmp_path / "log"
    path.write_bytes(b"\n".join(line.replace(b'"@"', id) for id in ids))
    assert len({record.tenant for record in read_log(str(path), ReadReport())}) == 4


values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, 1.0, 2.5]), st.sampled_from(["", "a"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)),
    max_leaves=3,
)
rows = st.dictionaries(st.sampled_from(TENANT), values, max_size=3)


def said(row: dict[str, Any]) -> str:
    """Return all that a row says of its tenant, with 1, 1.0 and true apart."""
    return json.dumps([(k, row[k]) for k in TENANT if row.get(k) is not None and row[k] != ""], sort_keys=True)


@given(st.lists(rows, min_size=2, max_size=5))
def test_rows_that_meet_say_the_same_up_to_the_field_that_decides(log: list[dict[str, Any]]) -> None:
    for one, other in itertools.combinations(log, 2):
        key, decides = wall(one, "log:1")
        if key == wall(other, "log:2")[0]:
            upto = TENANT[: TENANT.index(decides) + 1] if decides else TENANT
            assert said({k: v for k, v in one.items() if k in upto}) == said(
                {k: v for k, v in other.items() if k in upto}
            )
