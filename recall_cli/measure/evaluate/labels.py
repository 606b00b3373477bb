"""Truth by comparison: whether two answers say the same, where nobody has sorted answers into classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from recall_cli.cache.answers.compare import JUDGED, Comparator
from recall_cli.cache.answers.llm_judge import Judge
from recall_cli.cache.answers.verdict import Comparison, Same
from recall_cli.stats import wilson
from recall_cli.types import Progress


class Verdicts:
    """Whether the answers to two questions say the same: symmetric, each pair of answers compared once."""

    def __init__(self, answers: Sequence[str], comparator: Comparator) -> None:
        self._answers: list[str] = list(dict.fromkeys(answers))
        places = {answer: place for place, answer in enumerate(self._answers)}
        self.answer = [places[answer] for answer in answers]
        self.comparator = comparator
        self._found: dict[tuple[int, int], Comparison] = {}
        self._pairs: set[tuple[int, int]] = set()

    def __call__(self, i: int, j: int) -> bool | None:
        """Return True for same, False for different, None for unsure."""
        self._pairs.add((i, j) if i < j else (j, i))
        key = self._key(i, j)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self.comparator(*(self._answers[place] for place in key))
        return found.label

    def ask(
        self,
        judge: Judge,
        comparator: Comparator,
        similarity: Callable[[int, int], float],
        progress: Progress | None = None,
    ) -> None:
        """Have the judge decide what is unsure so far, the most similar questions first; later pairs as they come.

        The calls are few: they go where a cache is most likely to serve.

        :param comparator: the same rules, with this judge behind them.
        :param similarity: cosine of two questions.
        """
        self.comparator = comparator
        asked: set[tuple[int, int]] = set()
        unsure = [pair for pair in self._pairs if self._found[self._key(*pair)].verdict is Same.UNSURE]
        unsure.sort(key=lambda pair: (-similarity(*pair), pair))
        for pair in unsure:
            key = self._key(*pair)
            if key in asked:
                continue
            asked.add(key)
            if progress is not None and not judge.spent:
                progress(judge.calls, min(len(unsure), judge.limit), f"asking {judge.name}")
            # A judge that is spent says None and counts the pair: not the rules again, which take longer.
            said = judge(*(self._answers[place] for place in key))
            if said is not None:
                self._found[key] = Comparison(Same.SAME if said else Same.DIFFERENT, JUDGED)

    def _key(self, i: int, j: int) -> tuple[int, int]:
        a, b = self.answer[i], self.answer[j]
        return (a, b) if a < b else (b, a)

    def examples(self, each: int, seed: int) -> list[tuple[int, int, Comparison]]:
        """Return up to `each` pairs of every verdict, and of the judge's by themselves, drawn at random."""
        kinds: dict[tuple[Same, bool], list[tuple[int, int, Comparison]]] = {}
        for i, j in sorted(self._pairs):
            found = self._found[self._key(i, j)]
            if self.answer[i] != self.answer[j]:
                kinds.setdefault((found.verdict, found.reason == JUDGED), []).append((i, j, found))
        rng = np.random.default_rng([seed, 6])
        return [
            kinds[kind][place] for kind in sorted(kinds) for place in rng.permutation(len(kinds[kind]))[:each].tolist()
        ]

    def counts(self) -> dict[str, Any]:
        """Return how many pairs of questions got which verdict, and by which rule."""
        found = [self._found[self._key(*pair)] for pair in self._pairs]
        verdicts = Counter(comparison.verdict for comparison in found)
        unsure = verdicts[Same.UNSURE]
        reasons = Counter((str(comparison.verdict), comparison.reason) for comparison in found)
        return {
            "comparator": self.comparator.name,
            "pairs": len(found),
            **{str(verdict): verdicts[verdict] for verdict in Same},
            "unsure_share": unsure / len(found) if found else None,
            "unsure_interval": list(wilson(unsure, len(found))),
            "reasons": [
                {"verdict": verdict, "reason": reason, "pairs": pairs}
                for (verdict, reason), pairs in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
            ],
        }
