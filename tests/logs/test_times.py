"""Times as people log them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_cli.logs.times import Moment, clock, parse_time

T = 1_729_464_476.0  # 2024-10-20 22:47:56 UTC


@pytest.mark.parametrize(
    "text",
    [
        "2024-10-20T22:47:56Z",
        "2024-10-20t22:47:56z",
        "2024-10-20T22:47:56.000000000Z",
        "2024-10-21 00:47:56+02:00",
        "2024-10-21 00:47:56 +0200",
        "2024-10-20 22:47:56 UTC",
        "Sun, 20 Oct 2024 22:47:56 GMT",
        "Sunday, 20-Oct-24 22:47:56 GMT",
        T,
        int(T),
        T * 1e3,
        T * 1e6,
        int(T) * 10**9,
        "1729464476",
        " 1729464476000 ",
    ],
)
def test_zoned(text: object) -> None:
    assert parse_time(text) == Moment(T)


@pytest.mark.parametrize("text", ["2024-10-20T22:47:56", "2024-10-20 22:47:56.000", "Sun Oct 20 22:47:56 2024"])
def test_a_missing_zone_is_utc_and_said(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "America/New_York")
        time.tzset()
        assert parse_time(text) == Moment(T, naive=True)
    time.tzset()


def test_fractions_are_kept() -> None:
    assert parse_time("2024-10-20T22:47:56.25Z") == Moment(T + 0.25)
    assert parse_time(1729464476250) == Moment(T + 0.25)


@pytest.mark.parametrize(
    "value",
    [None, True, "", "yesterday", "12", 0, 12.5, -T, float("nan"), float("inf"), "nan", 10**400, [], {},
     "0001-01-01T00:00:00Z", "2024-13-45T00:00:00Z"],
)  # fmt: skip
def test_no_time(value: object) -> None:
    assert parse_time(value) is None


@given(st.one_of(st.text(), st.floats(), st.integers()))
def test_never_raises(value: object) -> None:
    found = parse_time(value)
    assert found is None or 1e9 <= found[0] < 1e10


@pytest.mark.parametrize("text", ["2024-10-20", "2024-W42-7", " 2024-10-20 "])
def test_a_day_without_a_time_of_day(text: str) -> None:
    assert parse_time(text) == Moment(T - T % 86_400, naive=True, day_only=True)
    assert parse_time("2024-10-20T00:00") == Moment(T - T % 86_400, naive=True)


@pytest.mark.parametrize(
    ("value", "shown"),
    [("12:00:07", "12:00:07"), (" 9:05 ", "09:05"), ("12:00:07.25Z", "12:00:07.25Z"), ("12:00:07 UTC", "12:00:07 UTC"),
     ("23:59:59,5 +02:00", "23:59:59,5 +02:00"), ("2024-10-20T12:00:07", ""), ("noon", ""), ("", ""), (1207, ""),
     (None, ""), ("123:00", ""), ("12:00:07 and on", "")],
)  # fmt: skip
def test_a_time_of_day_without_a_day(value: object, shown: str) -> None:
    assert clock(value) == shown
