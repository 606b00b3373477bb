"""Every reason that reading a log can give has words: found in the source, so that a new one cannot be forgotten."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import recall_cli
from recall_cli.cache.request import parse_body
from recall_cli.logs.report import SKIPPED, told
from recall_cli.logs.rows import ODDITIES
from recall_cli.measure.savings.rows import FIRST_FLAWS, SAMPLED
from recall_cli.measure.savings.wording import REASONS, UNSEEN

SOURCE = Path(recall_cli.__file__).parent
READERS = sorted((SOURCE / "logs").rglob("*.py"))
FOUND = ("Found", "LogRecord | str", "dict[str, Any] | str", "Row]")
"""What the annotation of a function holds that returns or yields reasons why a row is no call."""
NAMED_FLAWS = ("_flaw", "_bypass_reason")
"""Functions that return the name of a flaw as a plain string."""

TREES = [ast.parse(path.read_text()) for path in (*READERS, SOURCE / "cache/request.py")]
NAMES = {
    target.id: node.value.value
    for tree in TREES
    for node in tree.body
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    for target in node.targets
    if isinstance(target, ast.Name)
}


def leaves(node: ast.expr | None) -> Iterator[str]:
    """Yield the strings that an expression may come to."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        yield node.value
    elif isinstance(node, ast.Name) and node.id in NAMES:
        yield NAMES[node.id]
    elif isinstance(node, ast.Tuple):
        for item in node.elts:
            yield from leaves(item)
    elif isinstance(node, ast.IfExp):
        yield from (*leaves(node.body), *leaves(node.orelse))
    elif isinstance(node, ast.BoolOp):
        for item in node.values:
            yield from leaves(item)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def skip_reasons() -> set[str]:
    found: set[str] = set()
    for tree in TREES[: len(READERS)]:
        for function in functions(tree):
            said = ast.unparse(function.returns) if function.returns else ""
            gives = any(kind in said for kind in FOUND)
            for node in ast.walk(function):
                if gives and isinstance(node, (ast.Return, ast.Yield)):
                    found.update(leaves(node.value))
                elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("skipped"):
                    found.update(leaves(node.slice))
                elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "record":
                    found.update(leaves(node.value))
    return found


def flaws() -> set[str]:
    found: set[str] = set()
    for tree in TREES:
        for node in ast.walk(tree):
            target = node.arg if isinstance(node, ast.keyword) else None
            if isinstance(node, ast.Assign):
                target = ast.unparse(node.targets[0]).rpartition(".")[2]
            if target == "flaw" and isinstance(node, (ast.keyword, ast.Assign)):
                found.update(leaves(node.value))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "Bypass":
                found.update(leaf for argument in node.args for leaf in leaves(argument))
        for function in functions(tree):
            if function.name in NAMED_FLAWS:
                returned = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
                found.update(leaf for node in returned for leaf in leaves(node.value))
    return found


def test_every_reason_to_skip_a_row_has_words_and_no_words_are_left_over() -> None:
    assert skip_reasons() == set(SKIPPED)


def test_every_reason_to_exclude_a_call_has_words_and_no_words_are_left_over() -> None:
    assert flaws() | {SAMPLED, *FIRST_FLAWS} == set(REASONS)
    assert set(UNSEEN) <= set(REASONS)


def test_every_oddity_of_a_line_has_words() -> None:
    (function,) = (f for tree in TREES for f in functions(tree) if f.name == "_oddity")
    assert {leaf for n in ast.walk(function) if isinstance(n, ast.Return) for leaf in leaves(n.value)} == set(ODDITIES)


def test_words() -> None:
    assert told({}) == ""
    assert told({"no_tokens": 1, "malformed_json": 1200}) == "1,200 no JSON, 1 without token counts"
    assert told({"of_next_year": 2}) == "2 of next year"


@pytest.mark.parametrize("words", [*SKIPPED.values(), *REASONS.values(), *ODDITIES.values()])
def test_words_are_the_end_of_a_sentence(words: str) -> None:
    assert "_" not in words
    assert not words.endswith(".")


def test_bypasses_that_happen_are_among_the_reasons_found() -> None:
    """The walk knows `parse_body`'s reasons by its source; here by what it does."""
    for body in ({"tools": [1]}, {"store": True}, {"web_search_options": {}}, {"modalities": ["audio"]}, {}):
        assert getattr(parse_body("openai", body), "reason", "") in flaws()
