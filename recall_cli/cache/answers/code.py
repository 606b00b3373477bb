"""Answers that are code or a formula: compared token by token.

Layout and, in SQL, the case of words do not matter. An operator, a literal or a keyword does. A name that was
changed throughout is the same program, so names prove a difference only in SQL and in commands, where they name
what is there.
"""

from __future__ import annotations

import re

from recall_cli.cache.answers.verdict import Comparison, different, same, unsure
from recall_cli.cache.evidence.lexicon import in_order, listed

MOST_CHARS = 50_000

_TOKEN = re.compile(
    r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`[^`\n]*`|\d[\w.]*|[^\W\d]\w*|"
    r"===|!==|\*\*|<=|>=|==|!=|<>|&&|\|\||\+\+|--|->|=>|:=|\+=|-=|\*=|/=|<<|>>|//|::|\n|[^\s\w]"
)
_LINE_COMMENT = re.compile(r"(?m)^\s*(?:#|//|--)\s.*$")
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_SQL = re.compile(
    r"^\s*(?:with\s+\w+\s+as\s*\(|select\s.+\bfrom\s|insert\s+into\s|update\s+\S+\s+set\s|delete\s+from\s|"
    r"create\s+(?:table|index|view)\s|alter\s+table\s|drop\s+table\s)",
    re.IGNORECASE | re.DOTALL,
)
_CODE = re.compile(
    r"(?m)^\s*(?:def \w+\(|class \w+[:({]|import \w|from \w[\w.]* import |return\b.+|(?:const|let|var) \w+\s*=|"
    r"function\s*\w*\(|#include\s*<|public |private |fn \w+\(|func \w+\(|if\s*\(.+\)\s*\{|for\s*\(.+\)\s*\{|"
    r"while\s*\(.+\)\s*\{|\w[\w.\[\]]*\s*(?:=|\+=|-=)\s*\S.*;?\s*$|print\(.*\)|console\.log\(|\w[\w.]*\(.*\);?\s*$)"
)
_COMMAND = re.compile(r"^\s*(?:\$ )?[a-z][\w.-]*(?: [\w./=:@-]+)* (?:-{1,2}[A-Za-z][\w-]*)")
_FORMULA = re.compile(r"^[\w\s.()\[\]]*(?:\*\*|[<>]=?|==|!=|[-+*/^=%&|])[\w\s.()\[\]*/^+<>=!%&|-]*$")
KEYWORDS = listed(
    "and or not if else elif for while return break continue true false none null in is select distinct where from "
    "join left right inner outer on group order by having limit offset asc desc union all any exists between like "
    "insert update delete set values count sum avg min max abs len range sorted reversed append pop add remove"
)
_OPERATORS = frozenset(in_order("+ - * / % ** // < > <= >= == != === !== <> && || & | ^ ! = += -= *= /= << >> ~"))
_ONE_WAY = frozenset(in_order("- / % ** // < > <= >= ^ << >>"))
"""Operators whose value another order of the operands changes."""


def is_code(text: str) -> bool:
    """Return True when an answer is code and no prose."""
    if len(text) > MOST_CHARS:
        return False
    if _SQL.match(text):
        return True
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return False
    if len(lines) == 1:
        strange = re.search(r"[(){}=;\[\]]", text) and not text.rstrip().endswith((".", "!", "?"))
        return bool(_COMMAND.match(text)) or bool(strange and _CODE.match(text))
    odd = sum(1 for line in lines if _CODE.match(line) or line[:1] in " \t}])" or line.rstrip()[-1] in "{}();:,")
    return odd >= 0.6 * len(lines) and any(_CODE.match(line) for line in lines)


def is_formula(text: str) -> bool:
    """Return True for a short line of names and operators: x > y, a - b, 2**3."""
    text = text.strip().rstrip(".")
    if len(text) > 60 or "\n" in text or not _FORMULA.match(text):
        return False
    words = re.findall(r"[^\W\d]\w*", text)
    plain = all(len(word) <= 2 or "_" in word or any(c.isdigit() for c in word) for word in words)
    # "Paris - France" is no difference of two names.
    return plain or bool(re.search(r"\s(?:\*\*|[<>]=?|==|!=|[+*^=])\s", text))


def compare_code(a: str, b: str, *, fenced: bool = False) -> Comparison | None:
    """Compare two answers that are code or formulas; None when they are not.

    :param fenced: both stood in a fence, which says that they are code.
    """
    formula = is_formula(a) and is_formula(b)
    if not (fenced or formula or (is_code(a) and is_code(b))) or max(len(a), len(b)) > MOST_CHARS:
        return None
    sql = bool(_SQL.match(a) and _SQL.match(b))
    real = sql or bool(_COMMAND.match(a) and _COMMAND.match(b))
    one, two = _tokens(a, sql), _tokens(b, sql)
    if one == two:
        return same("the same code") if sql or _indents(a) == _indents(b) or formula else unsure("another indentation")
    if len(one) != len(two):
        return unsure("other code")
    apart = [(x, y) for x, y in zip(one, two, strict=True) if x != y]
    for x, y in apart:
        kinds = _kind(x), _kind(y)
        if "operator" in kinds and kinds[0] == kinds[1] and len(apart) <= 2:
            return different("another operator")
        if kinds == ("literal", "literal") and len(apart) <= 2:
            return different("another literal") if _literal(x) != _literal(y) else unsure("other code")
        if kinds == ("keyword", "keyword") and len(apart) <= 2:
            return different("another keyword")
        if "name" in kinds and real and len(apart) == 1:
            return different("another name")
    if formula and sorted(one) == sorted(two) and _turns(one, two):
        return different("exchanged operands")
    if formula and all(_kind(token) == "name" for pair in apart for token in pair):
        return different("another name")
    return unsure("other code")


def _turns(one: list[str], two: list[str]) -> bool:
    """Return True when exchanging the operands changes the value: a - b, x > y, but not a + b."""
    return one != two and not _ONE_WAY.isdisjoint(one)


def _tokens(text: str, sql: bool) -> list[str]:
    text = _BLOCK_COMMENT.sub(" ", _LINE_COMMENT.sub("", text)).strip().rstrip(";")
    tokens = [token for token in _TOKEN.findall(text) if token not in ("\n", ";")]
    if sql:
        tokens = [token if token[0] in "\"'`" else token.lower() for token in tokens]
        return ["!=" if token == "<>" else token for token in tokens]
    return [_literal(token) if _kind(token) == "literal" else token for token in tokens]


def _indents(text: str) -> list[int]:
    """Return how deep each line stands, as places in the order of depths: four spaces or a tab, it is one deeper."""
    lines = [line.expandtabs(8) for line in _LINE_COMMENT.sub("", text).splitlines() if line.strip()]
    depths = [len(line) - len(line.lstrip()) for line in lines]
    if any("{" in line for line in lines):
        return []
    ranks = {depth: at for at, depth in enumerate(sorted(set(depths)))}
    return [ranks[depth] for depth in depths]


def _kind(token: str) -> str:
    if token[0] in "\"'" or token[0].isdigit():
        return "literal"
    if token in _OPERATORS:
        return "operator"
    if token.lower() in KEYWORDS:
        return "keyword"
    return "name" if token[0].isalpha() or token[0] == "_" else "sign"


def _literal(token: str) -> str:
    if token[0] in "\"'":
        return f'"{token[1:-1]}"'
    try:
        return f"{float(token):.12g}"
    except ValueError:
        return token
