"""`recall explain`: why a prompt would, or would not, be answered from what is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from recall_cli.cache.answers import second_opinion
from recall_cli.cache.answers.second_opinion import opinion_of
from recall_cli.cache.decision import BELOW_CUTOFF, VETO, HitChecks, decide
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.evidence.evidence import check_vetoes, evidence
from recall_cli.cache.evidence.floor import NOT_TOLD_APART, UNREAD
from recall_cli.cache.evidence.text_features import facts, is_anaphoric
from recall_cli.cache.policy.registry import vetoes_of
from recall_cli.cache.policy.static import StaticPolicy, cosine, unknown_namespaces
from recall_cli.cache.request import differing_fields, parse_body, text_request
from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.cache.stores.sqlite_file import is_database
from recall_cli.errors import InputError, UsageError
from recall_cli.measure.inputs import Found, as_file, read_source, shown
from recall_cli.measure.result import new_result
from recall_cli.types import Bypass, Embedder, Evidence, Json, Policy, Request, Result, Warn

MEANINGS = {
    UNREAD: "the embedder does not hold its words, script or symbols; only an equal request may be answered",
    NOT_TOLD_APART: "the two texts differ in order, case, symbols, numbers or words that their vectors do not tell",
}


@dataclass(frozen=True, slots=True)
class ExplainPlan:
    """What to explain, against what."""

    prompt: str
    """A prompt, or a whole request body as JSON."""
    against: str
    """A store, a request log, or a file of prompts."""
    embedder: str = "static"
    tau: float = 0.8
    taus: Mapping[str, float] = field(default_factory=dict)
    """Cutoffs of single namespaces."""
    veto: tuple[str, ...] | None = None
    """None: those that `verify_on_hit` says."""
    verify_on_hit: str = "auto"
    k: int = 5
    show_text: bool = True


def run(plan: ExplainPlan) -> Result:
    """Return one row a candidate, nearest first: its evidence, and which gate would say no. Raises InputError."""
    policy = StaticPolicy(plan.tau, plan.taus)
    veto = vetoes_of(plan.verify_on_hit, policy) if plan.veto is None else check_vetoes(plan.veto)
    opinion = opinion_of(plan.verify_on_hit)
    if plan.k < 1:
        raise UsageError("-k must be at least 1", hint="5 candidates are the default")
    embedder = make_embedder(plan.embedder)
    checks = HitChecks(embedder, policy, veto)
    asked, body = _asked(plan.prompt)
    stored, warnings = _stored(plan.against, embedder)
    vectors = embedder.embed_many([s.request.text for s in stored])
    similarities = vectors @ embedder.embed(asked.text)
    order = np.argsort(-similarities, kind="stable").tolist()
    # A lookup sees its own partition alone, so nothing beyond a wall may stand before what it would be served.
    inside = [at for at in order if stored[at].request.partition == asked.partition]
    beyond = [at for at in order if stored[at].request.partition != asked.partition]
    near = [(cosine(float(similarities[at])), at) for at in (inside + beyond)[: plan.k]]

    result = new_result("explain", asdict(plan) | {"against_entries": len(stored)})
    query = facts(asked.text)
    for rank, (similarity, at) in enumerate(near):
        # One is told from its rivals, which are what the same lookup could find.
        others = [other for other in near if other[1] != at and _together(stored, other[1], at)]
        found = evidence(query, facts(stored[at].request.text), similarity, others, group=at)
        gate = _gate(asked, stored[at], body, policy, checks, found)
        said = opinion.logit(asked.text, stored[at].request.text) if opinion else None
        if opinion and said is not None and not gate and said > opinion.weights.limit:
            gate = f"second opinion: the logit of a wrong answer is {said:.2f}, over {opinion.weights.limit:g}"
        shown = {name: value for name, value in asdict(found).items() if name not in ("ticket", "history")}
        row: dict[str, Any] = {"rank": rank + 1, "where": stored[at].where, **shown, "gate": gate, "serves": not gate}
        if opinion:
            weighed = zip(second_opinion.FIELDS, opinion.row(asked.text, stored[at].request.text), strict=True)
            row |= {"second_opinion": dict(weighed), "second_opinion_logit": said}
        if plan.show_text:
            row["text"] = stored[at].request.text
        result.rows.append(row)
    first = result.rows[0]
    result.summary = {
        "outcome": _outcome(asked, stored, first),
        "namespace": asked.namespace,
        "cutoff": plan.taus.get(asked.namespace, plan.tau),
        "gate": first["gate"],
        "partition_entries": len(inside),
    }
    here = [asked.namespace, *(s.request.namespace for s in stored)]
    if not inside and body is None and any(s.body for s in stored):
        warnings.append(
            Warn(
                "BARE_PROMPT",
                "a bare prompt has no model, system prompt or parameters, so every entry of this log is behind a wall",
                'explain a request as the log has it: \'{"model": ..., "temperature": 0, "messages": [...]}\'',
            )
        )
    result.warnings += [*warnings, *unknown_namespaces(plan.taus, here)]
    return result


def _together(stored: Sequence[Found], one: int, other: int) -> bool:
    """Return whether two candidates are in the same partition."""
    return stored[one].request.partition == stored[other].request.partition


def _outcome(asked: Request, stored: Sequence[Found], first: dict[str, Any]) -> str:
    if any(s.request.identity == asked.identity for s in stored):
        return "EXACT"
    return "SEMANTIC" if first["serves"] else "MISS"


def _gate(
    asked: Request, candidate: Found, body: Json | None, policy: Policy, checks: HitChecks, found: Evidence
) -> str:
    """Return the first thing that forbids serving the candidate, "" when nothing does."""
    text, stored = asked.text, candidate.request.text
    if is_anaphoric(text):
        return "anaphoric: what it means hangs on what was said before"
    if asked.exact_only:
        return "exact_only: this request may be answered by an equal one alone"
    if not checks.floor.reads(text):
        return f"{UNREAD}: {MEANINGS[UNREAD]}"
    if candidate.request.partition != asked.partition:
        if body is None or candidate.body is None:
            return "partition: it belongs to another model, system prompt, conversation or tenant"
        return "partition: differs in " + ", ".join(differing_fields(body, candidate.body))
    choice = decide(policy, asked.namespace, found, lambda: (found, checks.refusal(text, stored, found)))
    if choice.reason == BELOW_CUTOFF:
        return f"cutoff: similarity {found.similarity:.4f} is under {choice.cutoff:g}"
    if choice.reason in MEANINGS:
        return f"{choice.reason}: {MEANINGS[choice.reason]}"
    return choice.reason.replace(VETO, "veto: ", 1)


def _asked(prompt: str) -> tuple[Request, Json | None]:
    body = _body(prompt)
    if body is None:
        return text_request(prompt), None
    parsed = parse_body(_provider(body), body)
    if isinstance(parsed, Bypass):
        raise UsageError(
            f"this request is never answered from a cache: {parsed.reason}", hint="explain a request that may be"
        )
    return parsed, body


def _body(text: str) -> Json | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return body if isinstance(body, dict) and "messages" in body else None


def _provider(body: Json) -> str:
    # Anthropic requires max_tokens and keeps the system prompt apart; OpenAI does neither.
    return "anthropic" if "system" in body or str(body.get("model", "")).startswith("claude") else "openai"


def _stored(against: str, embedder: Embedder) -> tuple[list[Found], list[Warn]]:
    """Return what could answer, and what a log or a file held beside it. Raises InputError when nothing could."""
    warnings: list[Warn] = []
    reasons = ""
    if against != "-" and is_database(Path(against)):
        found = _entries(against, embedder)
    else:
        with as_file(against) as path:
            read = read_source(path, shown(against))
        found, warnings, reasons = read.found, read.warnings(shown(against)), read.reasons()
    if not found:
        why = f" ({reasons})" if reasons else ""
        hint = "name a store, a log or a prompts file"
        raise InputError(f"{shown(against)} holds nothing to compare with{why}", hint=hint)
    # A cache keeps one entry for equal requests, however often they were logged.
    return list({entry.request.identity: entry for entry in reversed(found)}.values())[::-1], warnings


def _entries(path: str, embedder: Embedder) -> list[Found]:
    store = SqliteStore(path, embedder=embedder)
    try:
        return [
            Found(
                f"entry {entry.id}",
                Request(store.text(entry.id) or "", entry.identity, entry.partition, entry.namespace),
            )
            for entry in store.entries()
        ]
    finally:
        store.close()
