"""Labelled questions of a hub: `--queries FILE` and `--qrels FILE`, as evaluation sets of retrieval come.

Questions are JSON Lines or CSV with an id and a text. Judgements are rows of question, document and gain, with a
header, or as TREC writes them (`question 0 document gain`, without one). No row is dropped unsaid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recall_cli.errors import InputError
from recall_cli.measure.evaluate.pairs_rows import finite, first, insist, left_out, rows_of
from recall_cli.measure.prompts import read_text, standard_input
from recall_cli.types import Warn

ID = ("_id", "id", "qid", "query-id", "query_id")
TEXT = ("text", "question", "query")
QUESTION = ("query-id", "query_id", "qid", "question_id", "query", "question")
DOCUMENT = ("corpus-id", "corpus_id", "doc_id", "docid", "doc", "document")
GAIN = ("score", "relevance", "rel", "gain", "label")
TREC = ("query-id", "iteration", "corpus-id", "score")

QUERIES_HINT = 'Give one question a line: {"_id": "1", "text": "..."}.'
QRELS_HINT = "Give columns query-id, corpus-id, score (tab-separated, with that header), or TREC's four columns."


@dataclass(frozen=True, slots=True)
class Judged:
    """A question and what is known to answer it."""

    id: str
    text: str
    gains: Mapping[str, float]
    """By document: how well it answers, above 0. A document that is not here does not answer."""


@dataclass(frozen=True, slots=True)
class Judgements:
    """The questions that have an answer, and what was left out on the way to them."""

    questions: tuple[Judged, ...]
    warnings: tuple[Warn, ...]


def load_judgements(queries: str, qrels: str) -> Judgements:
    """Return the questions that at least one document answers. Raises InputError when there is none."""
    odd_questions: Counter[str] = Counter()
    odd_gains: Counter[str] = Counter()
    asked, gains = _questions(queries, odd_questions), _gains(qrels, odd_gains)
    said = [*left_out(odd_questions, queries), *left_out(odd_gains, qrels)]
    questions = tuple(Judged(id, text, gains[id]) for id, text in asked.items() if id in gains)
    if not questions:
        raise InputError(
            f"no question of {queries} has a judgement above 0 in {qrels}", hint="the ids of both must be the same"
        )
    if unjudged := len(asked) - len(questions):
        said.append(Warn("UNJUDGED", f"{unjudged:,} questions of {queries} have no judgement above 0: left out"))
    if unknown := len(gains.keys() - asked.keys()):
        said.append(Warn("UNKNOWN_QUESTION", f"{unknown:,} questions of {qrels} are not in {queries}: left out"))
    return Judgements(questions, tuple(said))


def load_foreign(path: str) -> tuple[list[str], list[Warn]]:
    """Return the texts of questions that a hub cannot answer; they need no id. Raises InputError."""
    text, source = read_text(path, standard_input(), "questions")
    skipped: Counter[str] = Counter()
    rows = rows_of(text, source, skipped, QUERIES_HINT, lambda names: not names.isdisjoint(TEXT))
    texts = [found for row in rows if (found := _text(row, skipped))]
    insist(texts, source, skipped, "question", QUERIES_HINT)
    return texts, [*left_out(skipped, source)]


def _questions(path: str, skipped: Counter[str]) -> dict[str, str]:
    text, source = read_text(path, standard_input(), "questions")
    found: dict[str, str] = {}
    for row in rows_of(text, source, skipped, QUERIES_HINT, lambda n: not n.isdisjoint(ID) and not n.isdisjoint(TEXT)):
        id, question = first(row, ID), _text(row, skipped)
        if id is None:
            skipped["without an id"] += 1
        elif str(id) in found:
            skipped["with an id that came before"] += 1
        elif question:
            found[str(id)] = question
    insist(found, source, skipped, "question", QUERIES_HINT)
    return found


def _gains(path: str, skipped: Counter[str]) -> dict[str, dict[str, float]]:
    text, source = read_text(path, standard_input(), "judgements")
    found: dict[str, dict[str, float]] = {}
    for row in rows_of(_with_header(text), source, skipped, QRELS_HINT, _is_qrels_header):
        question, document, gain = first(row, QUESTION), first(row, DOCUMENT), finite(first(row, GAIN))
        if question is None or document is None:
            skipped["without a question and a document"] += 1
        elif gain is None:
            skipped["without a gain that is a number"] += 1
        elif gain > 0:
            found.setdefault(str(question), {})[str(document)] = gain
    insist(found, source, skipped, "judgement above 0", QRELS_HINT)
    return found


def _is_qrels_header(names: set[str]) -> bool:
    return not any(names.isdisjoint(known) for known in (QUESTION, DOCUMENT, GAIN))


def _with_header(text: str) -> str:
    """Return judgements with a header: TREC's have none, and any white space between their four columns."""
    line = text.lstrip().split("\n", 1)[0].split()
    if len(line) != len(TREC) or finite(line[-1]) is None:
        return text
    return "\n".join("\t".join(row.split()) for row in ("\t".join(TREC), *text.splitlines()))


def _text(row: Mapping[str, Any], skipped: Counter[str]) -> str:
    text = first(row, TEXT)
    if isinstance(text, str) and text.strip():
        return text.strip()
    skipped["without a text"] += 1
    return ""
