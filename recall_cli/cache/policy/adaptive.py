"""Serve as much as a promise allows: at most `target` of the served semantic hits are wrong.

A calibrated model (`cache.policy.risk_model`) turns the evidence into P(wrong); a certificate
(`cache.policy.risk_bound`) says up to which P(wrong) may be served. A miss is a free label: the fresh answer is
compared with the candidate's. Only labels of hits cost a call, so a small share of hits is audited. Nothing semantic is
served before the labels allow it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from recall_cli.cache.policy.risk_bound import NOTHING, BayesBound
from recall_cli.cache.policy.risk_model import (
    CHECKS,
    FEATURES,
    FIELDS,
    NEAR,
    START,
    Prior,
    checks,
    closeness,
    cutoff,
    fit,
    logits,
    row,
)
from recall_cli.cache.policy.state import (
    MARGIN_DECAY,
    RIGHT,
    UNKNOWN,
    UNSURE,
    WIDTH,
    WRONG,
    DecisionLog,
    NamespaceState,
    Promise,
)
from recall_cli.errors import UsageError
from recall_cli.types import Evidence, Verdict

LEARN_LEAST, LEARN_MOST, LEARN_SHARE = 60, 100, 0.6
"""Labels between two refits: at least, at most, and as a share of all labels so far.

A refit takes a few milliseconds, so often is affordable; after a change, the sooner the better.
"""
MAX_FIT = 2_500
"""Labelled rows of one refit, the latest: it stays at a few milliseconds."""
LAYOUT = 1
"""Version of the saved state's layout."""


class AdaptivePolicy:
    """Learns one cutoff a namespace that keeps P(wrong | served semantic hit) at or under the target.

    :param verify_sample: share of hits to audit.
    :param window: decisions remembered; what is older is forgotten, so that drift is.
    :param warmup: labels before anything may be served.
    :param version: whatever makes old labels worthless when it changes: embedder fingerprint, comparator.
    :param prior: weights to start from and to lean on while labels are few; nothing is served on their word.
    :param schedule: called with the refit to run; inline by default, a server hands it to a thread.
    """

    name = "adaptive"
    learns = True
    candidates = 8

    def __init__(
        self,
        *,
        target_false_hit: float = 0.01,
        confidence: float = 0.9,
        verify_sample: float = 0.05,
        window: int = 3_000,
        warmup: int = 100,
        prior: Prior | None = None,
        version: str = "",
        seed: int = 0,
        schedule: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self.promise = Promise(target_false_hit, confidence, verify_sample)
        if window < 100 or warmup < 1:
            raise UsageError(
                f"the window must be at least 100 and the warm-up at least 1, not {window} and {warmup}",
                hint="the defaults are 3000 decisions and 100 labels",
            )
        self.warmup = warmup
        self.version = version
        self._window = window
        self._schedule = schedule
        self._first = START if prior is None else (prior.level, *prior.weights)
        self._centre = np.zeros(len(START)) if prior is None else np.array(self._first)
        self._lock = threading.RLock()
        self._random = random.Random(seed).random
        self._start_cold()

    def _start_cold(self) -> None:
        self._certificate = BayesBound(self.promise.target, self.promise.confidence)
        self._ring = DecisionLog(self._window)
        self._spaces: dict[str, NamespaceState] = {}
        self._weights: tuple[float, ...] = self._first
        self._due = self.warmup
        self._learned = self._fitting = False
        self.labels = 0
        """Labels so far, also those that the window has forgotten."""
        self.theta = NOTHING
        """The highest logit of P(wrong) that is served."""

    def decide(self, namespace: str, evidence: Evidence) -> Verdict:
        """Return whether to serve; the evidence gets the ticket under which a label finds the decision."""
        # Drawn for every decision, so that two policies over one stream stay in step.
        chance = self._random()
        with self._lock:
            space = self._spaces.get(namespace) or self._new_space(namespace)
            x, rest, slope = self._score(space, evidence)
            z = rest + slope * x[0]
            limit = NOTHING if space.silent else self.theta - space.retreat
            serve = z <= limit
            audit, propensity = False, 1.0
            space.decisions += 1
            if serve:
                propensity = space.propensity(self.promise)
                audit = chance < propensity
                space.hits += 1
            evidence.ticket = self._keep(space, x, z, serve, propensity)
            _, _, _, _, _, w4, w5, w6, w7, w8, _ = self._weights
        failed = (
            w4 * evidence.numbers
            + w5 * evidence.negation
            + w6 * evidence.roles
            + w7 * evidence.detail
            + w8 * evidence.names
        )
        all_failed = w4 + w5 + w6 + w7 + w8
        rest -= checks(evidence.similarity, failed, all_failed)
        return Verdict(serve, cutoff(limit, rest, slope, failed, all_failed), audit)

    def observe(self, namespace: str, evidence: Evidence, *, same: bool) -> None:
        """Learn from a miss, or from an audited hit. A decision is labelled once; a label may come late.

        Evidence that this policy has not decided on (a log, another process) counts as a miss.
        """
        with self._lock:
            space = self._spaces.get(namespace) or self._new_space(namespace)
            if evidence.ticket < 0:
                x, rest, slope = self._score(space, evidence)
                evidence.ticket = self._keep(space, x, rest + slope * x[0], False, 1.0)
            slot = self._ring.slot(evidence.ticket)
            if slot is None or self._ring.labels[slot] not in (UNKNOWN, UNSURE):
                return
            wrong = RIGHT if same else WRONG
            self._compared(space, evidence, self._ring.labels[slot], wrong)
            self._ring.labels[slot] = wrong
            self._certificate.label(self._ring.bins[slot], wrong)
            self.labels += 1
            if self._ring.served[slot]:
                space.audited(self.promise, wrong)
            elif self._learned:
                x, rest, slope = self._score(space, evidence)
                space.missed(self.promise, rest + slope * x[0], self.theta - space.retreat, wrong)
            if self._learned:
                self.theta = self._certificate.threshold()
            if self.labels < self._due or self._fitting:
                return
            self._fitting = True
        if self._schedule is None:
            self.refit()
        else:
            self._schedule(self.refit)

    def unsure(self, namespace: str, evidence: Evidence) -> None:
        """Take in that nobody can tell whether this candidate's answer was right, of a miss or of an audited hit.

        It is no label. But where most of what would be served cannot be judged (`NamespaceState.silent`), labels of
        the rest say nothing of it, and the namespace serves nothing.
        """
        with self._lock:
            space = self._spaces.get(namespace) or self._new_space(namespace)
            if evidence.ticket < 0:
                x, rest, slope = self._score(space, evidence)
                evidence.ticket = self._keep(space, x, rest + slope * x[0], False, 1.0)
            slot = self._ring.slot(evidence.ticket)
            if slot is not None and self._ring.labels[slot] == UNKNOWN:
                self._compared(space, evidence, UNKNOWN, UNSURE)
                self._ring.labels[slot] = UNSURE

    def _compared(self, space: NamespaceState, evidence: Evidence, before: int, label: int) -> None:
        """Count a comparison between two refits, where it is of a decision that would be served."""
        x, rest, slope = self._score(space, evidence)
        if self._learned and rest + slope * x[0] <= self.theta:
            space.unsure += (label == UNSURE) - (before == UNSURE)
            space.told += label != UNSURE

    def drawn(self, ticket: int) -> tuple[bool, float]:
        """Return whether a decision was to serve, and with what chance it was to be audited."""
        with self._lock:
            slot = self._ring.slot(ticket)
            if slot is None or not self._ring.served[slot]:
                return False, 1.0
            return True, self._ring.read_propensity(self._ring.propensities, 4 * slot)[0]

    def adopt(self, namespace: str, evidence: Evidence, *, same: bool, served: bool, propensity: float) -> None:
        """Learn from a label of another process, whose decisions this one has not seen.

        One audited hit stands for all that were not drawn: they are counted as traffic, or the mix of hits and
        misses that the certificate weighs by would be of misses alone.
        """
        with self._lock:
            space = self._spaces.get(namespace) or self._new_space(namespace)
            x, rest, slope = self._score(space, evidence)
            for _ in range(round(1 / propensity) if served else 1):
                evidence.ticket = self._keep(space, x, rest + slope * x[0], served, propensity)
        self.observe(namespace, evidence, same=same)

    def refit(self) -> None:
        """Fit the weights to the labels in the window. The lock is held before and after, not during."""
        try:
            with self._lock:
                self._forget_spaces()
                ring, names = self._ring, list(self._spaces)
                x, labels, spaces = ring.x(), ring.column("labels"), ring.column("spaces")
                deviations = np.array([[space.level, space.slope] for space in self._spaces.values()])
                rows = np.flatnonzero(labels <= WRONG)
                age = (ring.next - 1 - rows) % ring.size
            if len(rows) == 0:
                return
            rows = rows[np.argsort(age, kind="stable")[:MAX_FIT]]
            weights, deviations = fit(
                x[rows],
                labels[rows].astype(np.float64),
                spaces[rows],
                np.array(self._weights),
                deviations,
                self._centre,
            )
            with self._lock:
                if self._ring is not ring:
                    return  # another state was loaded meanwhile
                self._weights = tuple(weights.tolist())
                for name, (level, slope) in zip(names, deviations.tolist(), strict=True):
                    space = self._spaces[name]
                    space.level, space.slope = level, slope
                    space.retreat *= MARGIN_DECAY
                self._due = self.labels + max(LEARN_LEAST, min(LEARN_MOST, int(LEARN_SHARE * self.labels)))
                self._learned = True
                self._rescore()
        finally:
            self._fitting = False

    def labels_needed(self) -> int | None:
        """Return how many more right labels it would take to serve anything; None when no number would."""
        with self._lock:
            if self.theta > NOTHING:
                return 0
            missing = max(0, self.warmup - self.labels)
            extra = 1
            while self._certificate.threshold(extra) == NOTHING:
                extra *= 2
                if extra > 1 << 16:
                    return missing or None
            return max(missing, extra)

    def cutoffs(self) -> dict[str, float]:
        """Return, by namespace, the similarity from which a typical right candidate is served; above 1: none.

        Typical: the other evidence is the median of the candidates that were served or turned out right.
        """
        with self._lock:
            x, spaces = self._ring.x(), self._ring.column("spaces")
            good = (self._ring.column("served") == 1) | (self._ring.column("labels") == RIGHT)
            found = {}
            for name, space in self._spaces.items():
                own = spaces == space.index
                rows = x[own & good] if (own & good).any() else x[own]
                middle = np.median(rows, axis=0) if len(rows) else np.zeros(len(FIELDS))
                # What the checks say is told by near candidates alone: of the others all are held to fail.
                near = rows[rows[:, 0] >= closeness(NEAR)][:, CHECKS]
                typical = np.median(near, axis=0) if len(near) else np.zeros(len(middle[CHECKS]))
                weights = np.array(self._weights[1:])
                others = middle[1:] @ weights[1:] - middle[CHECKS] @ weights[CHECKS]
                rest = self._weights[0] + space.level + float(others)
                failed, all_failed = float(typical @ weights[CHECKS]), float(weights[CHECKS].sum())
                limit = NOTHING if space.silent else self.theta - space.retreat
                found[name] = cutoff(limit, rest, weights[0] + space.slope, failed, all_failed)
            return found

    def spaces(self) -> dict[str, dict[str, float]]:
        """Return what is known of each namespace: its deviations, alarm and counts."""
        with self._lock:
            return {name: asdict(space) for name, space in self._spaces.items()}

    def state(self) -> dict[str, Any]:
        """Return everything learned, JSON-ready: about 150 KB."""
        with self._lock:
            return {
                "policy": self.name,
                "layout": LAYOUT,
                "features": [FEATURES, *FIELDS],
                "version": self.version,
                "certificate": "bayes",
                "weights": list(self._weights),
                "spaces": self.spaces(),
                "labels": self.labels,
                "learned": self._learned,
                "bets": {},
                "ring": self._ring.state(),
            }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state. Another policy, feature set, layout or version, or damage: start cold."""
        with self._lock:
            self._start_cold()
            ours = {"policy": self.name, "layout": LAYOUT, "features": [FEATURES, *FIELDS], "version": self.version}
            if any(state.get(key) != value for key, value in ours.items()):
                return
            try:
                self._ring = DecisionLog.load(state["ring"], self._window)
                self._weights = tuple(float(weight) for weight in state["weights"])
                self._spaces = {name: NamespaceState(**space) for name, space in state["spaces"].items()}
                self.labels, self._learned = int(state["labels"]), bool(state["learned"])
                if self._learned:
                    self._due = self.labels + LEARN_LEAST
                self._rescore()
            except (KeyError, TypeError, ValueError, IndexError):
                self._start_cold()

    def _score(self, space: NamespaceState, evidence: Evidence) -> tuple[tuple[float, ...], float, float]:
        """Return the features, the logit without closeness, and its slope: z = rest + slope * closeness."""
        x = row(evidence)
        level, w0, w1, w2, w3, w4, w5, w6, w7, w8, w9 = self._weights
        _, x1, x2, x3, x4, x5, x6, x7, x8, x9 = x
        # Spelt out: a sum over zip takes three times as long.
        rest = level + space.level + w1 * x1 + w2 * x2 + w3 * x3 + w4 * x4 + w5 * x5
        return x, rest + w6 * x6 + w7 * x7 + w8 * x8 + w9 * x9, w0 + space.slope

    def _keep(self, space: NamespaceState, x: tuple[float, ...], z: float, serve: bool, propensity: float) -> int:
        """Remember a decision in the place of the oldest; return its ticket."""
        ring = self._ring
        ticket = ring.next
        slot = ticket % ring.size
        if ticket >= ring.size:
            self._certificate.leave(ring.bins[slot], ring.labels[slot])
        bin = self._certificate.see(z)
        ring.next = ticket + 1
        ring.write_features(ring.features, 4 * WIDTH * slot, *x)
        ring.write_space(ring.spaces, 4 * slot, space.index)
        ring.write_propensity(ring.propensities, 4 * slot, propensity)
        ring.labels[slot] = UNKNOWN
        ring.served[slot] = serve
        ring.bins[slot] = bin
        return ticket

    def _rescore(self) -> None:
        """Put the window into the bins of today's weights, without retreats: those are for the moment."""
        deviations = np.array([[s.level, s.slope] for s in self._spaces.values()]).reshape(-1, 2)
        z = logits(self._ring.x(), self._ring.column("spaces"), np.array(self._weights), deviations)
        self._ring.put_column("bins", self._certificate.rebuild(z, self._ring.column("labels")))
        self.theta = self._certificate.threshold() if self._learned else NOTHING
        labels, spaces = self._ring.column("labels"), self._ring.column("spaces")
        served, n = z <= self.theta, len(self._spaces)
        told = np.bincount(spaces[served & (labels <= WRONG)], minlength=n).tolist()
        unsure = np.bincount(spaces[served & (labels == UNSURE)], minlength=n).tolist()
        for space in self._spaces.values():
            space.told, space.unsure = told[space.index], unsure[space.index]

    def _new_space(self, namespace: str) -> NamespaceState:
        space = self._spaces[namespace] = NamespaceState(len(self._spaces))
        return space

    def _forget_spaces(self) -> None:
        """Drop namespaces that the window no longer holds, once they are more than it could hold."""
        if len(self._spaces) <= self._ring.size:
            return
        spaces = self._ring.column("spaces")
        held = np.unique(spaces)
        self._spaces = {name: space for name, space in self._spaces.items() if space.index in set(held.tolist())}
        for space in self._spaces.values():
            space.index = int(np.searchsorted(held, space.index))
        self._ring.put_column("spaces", np.searchsorted(held, spaces))
