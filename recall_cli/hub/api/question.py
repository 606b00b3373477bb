"""A request's body to a question, or to the refusal that its sender reads."""

from __future__ import annotations

from typing import Any

from recall_cli.hub.api.errors import impossible, malformed
from recall_cli.hub.models import LONGEST_QUESTION, MOST, Level, Question

FIELDS = ("question", "k", "level", "rerank", "min_score", "stream")


def read_question(body: object) -> Question:
    """Return the question of a decoded JSON body. Raises ApiError: 400 for a wrong shape, 422 for an empty question.

    `stream` says how to answer, not what is asked: it is checked here and read by whoever answers.
    """
    if not isinstance(body, dict):
        raise malformed("the body must be a JSON object")
    for name in body:
        if name not in FIELDS:
            raise malformed(f"there is no field {name!r}; the fields are {', '.join(FIELDS)}", field=str(name))
    _flag(body, "stream", False)
    return Question(
        text=_text(body),
        k=_k(body),
        level=_level(body),
        rerank=_flag(body, "rerank", True),
        min_score=_min_score(body),
    )


def _text(body: dict[str, Any]) -> str:
    if "question" not in body:
        raise malformed("the question is missing", field="question")
    text = body["question"]
    if not isinstance(text, str):
        raise malformed("the question must be a string", field="question")
    # A stray byte of a command line is a lone surrogate here, which no endpoint and no JSON could take.
    text = text.encode("utf-8", "replace").decode().strip()
    if len(text) > LONGEST_QUESTION:
        raise malformed(f"the question has {len(text):,} characters; {LONGEST_QUESTION:,} are allowed", "question")
    if not text:
        raise impossible("the question is empty", field="question")
    return text


def _k(body: dict[str, Any]) -> int:
    k = body.get("k", 10)
    # bool is an int to Python, and true is no number to anybody else.
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= MOST:
        raise malformed(f"k must be a whole number from 1 to {MOST}", field="k")
    return k


def _level(body: dict[str, Any]) -> Level:
    level = body.get("level", Level.DOC.value)
    if level not in tuple(Level):
        raise malformed("level must be doc or chunk", field="level")
    return Level(level)


def _flag(body: dict[str, Any], name: str, default: bool) -> bool:
    value = body.get(name, default)
    if not isinstance(value, bool):
        raise malformed(f"{name} must be true or false", field=name)
    return value


def _min_score(body: dict[str, Any]) -> float | None:
    value = body.get("min_score")
    if value is None:
        return None
    # NaN is in no range.
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not -1.0 <= value <= 1.0:
        raise malformed("min_score must be a number from -1 to 1: it is a cosine", field="min_score")
    return float(value)
