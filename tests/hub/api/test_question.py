from __future__ import annotations

from typing import Any

import pytest

from recall_cli.hub.api.errors import ApiError
from recall_cli.hub.api.question import read_question
from recall_cli.hub.models import LONGEST_QUESTION, MOST, Level, Question


def test_a_question_alone_takes_the_contracts_defaults() -> None:
    assert read_question({"question": " why? \n"}) == Question("why?", k=10, level=Level.DOC, rerank=True)


def test_every_field_is_read() -> None:
    body = {"question": "q", "k": MOST, "level": "chunk", "rerank": False, "min_score": -1, "stream": True}
    assert read_question(body) == Question("q", k=MOST, level=Level.CHUNK, rerank=False, min_score=-1.0)


def test_the_longest_question_is_counted_after_trimming() -> None:
    assert len(read_question({"question": "x" * LONGEST_QUESTION + " " * 50}).text) == LONGEST_QUESTION


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "question"),
    ({"question": 3}, "question"),
    ({"question": None}, "question"),
    ({"question": "x" * (LONGEST_QUESTION + 1)}, "question"),
    *[({"question": "q", "k": k}, "k") for k in (0, MOST + 1, -1, 2.0, "3", True, None, [1])],
    *[({"question": "q", "level": level}, "level") for level in ("passage", "DOC", 1, None, [], {})],
    *[({"question": "q", "rerank": flag}, "rerank") for flag in (1, 0, "true", None)],
    *[({"question": "q", "stream": flag}, "stream") for flag in (1, "yes")],
    *[
        ({"question": "q", "min_score": score}, "min_score")
        for score in (1.01, -1.01, "0.5", True, float("nan"), float("inf"), 10**400)
    ],
    ({"question": "q", "threshold": 0.3}, "threshold"),
    ({"question": "q", "K": 3}, "K"),
]


@pytest.mark.parametrize(("body", "field"), WRONG)
def test_what_breaks_the_contract_is_refused_by_the_fields_name(body: dict[str, Any], field: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_question(body)
    assert (refused.value.status, refused.value.field) == (400, field)


@pytest.mark.parametrize("body", [None, [], "question", 3, True])
def test_a_body_that_is_no_object_is_refused(body: object) -> None:
    with pytest.raises(ApiError) as refused:
        read_question(body)
    assert refused.value.status == 400


@pytest.mark.parametrize("text", ["", "  \n\t", "\u2003"])
def test_an_empty_question_is_well_formed_and_cannot_be_answered(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_question({"question": text})
    assert (refused.value.status, refused.value.field) == (422, "question")


def test_a_stray_byte_of_a_command_line_is_no_question_of_its_own() -> None:
    assert read_question({"question": "re\udcffset"}).text == "re?set"


def test_no_limit_of_its_own_is_not_a_limit_of_zero() -> None:
    assert read_question({"question": "q", "min_score": None}).min_score is None
    assert read_question({"question": "q", "min_score": 0}).min_score == 0.0
