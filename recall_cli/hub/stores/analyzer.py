"""What a word is, to every engine of a hub: the same text gives the same words, and a question finds them.

Runs of letters and digits, folded to lower case without accents, reduced to their English stems. A question's stop
words count only where it has no others.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from itertools import islice

from tantivy import Filter, TextAnalyzer, TextAnalyzerBuilder, Tokenizer

ANALYZER = "recall-english-1"
"""Name of the analyzer, kept with what was indexed: an index made with another is made anew."""

UNSPACED = re.compile(
    "[\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff]"
)
"""A letter of a script that puts no spaces between words (Chinese, Japanese): a word of its own."""
LONGEST_WORD = 80
"""Bytes of a word that is indexed: longer ones are data."""
MOST_TERMS = 256
"""Distinct words of a question that are looked for, from its beginning."""


class Analyzer:
    """Cuts texts into words. Any thread may use it."""

    def __init__(self) -> None:
        self.plain = _analyzer(stop=False)
        """What texts are indexed with."""
        self._content = _analyzer(stop=True)

    def words(self, title: str, text: str) -> Counter[str]:
        """Return the words of a chunk and how often it has them, its document's title counted twice."""
        return Counter(self.plain.analyze(titled(title, text)))

    def asked(self, text: str) -> dict[str, int]:
        """Return the words of a question and how often it says them; stop words only if all are."""
        text = readable(text)
        words = Counter(self._content.analyze(text) or self.plain.analyze(text))
        return dict(islice(words.items(), MOST_TERMS))


def titled(title: str, text: str) -> str:
    """Return what a chunk is indexed by: its text, after its document's title twice.

    nDCG@10 on Cranfield / CISI: without the title .374 / .36, with it .424 / .372, with it twice .432 / .375.
    """
    return readable(f"{title}\n{title}\n{text}" if title else text)


def readable(text: str) -> str:
    """Return the text as the analyzer takes it, which knows words only as runs of letters and digits.

    A pattern for the words of all scripts would take it twice as long, also for the plain English of most texts.
    """
    if text.isascii():
        return text
    # Lone surrogates are a legal str, but not Unicode outside Python. Accents may stand apart from their letters.
    text = unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode())
    return UNSPACED.sub(r" \g<0> ", text)


def _analyzer(*, stop: bool) -> TextAnalyzer:
    builder = TextAnalyzerBuilder(Tokenizer.simple())
    builder = builder.filter(Filter.remove_long(LONGEST_WORD)).filter(Filter.lowercase()).filter(Filter.ascii_fold())
    if stop:
        builder = builder.filter(Filter.stopword("english"))
    return builder.filter(Filter.stemmer("english")).build()
