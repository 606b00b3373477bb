"""`recall bench`: what a lookup costs, which half of it you pay for, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import BinaryIO, cast

import numpy as np

from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.registry import make_embedder, reference_model
from recall_cli.cache.embed.static import TableEmbedder
from recall_cli.cache.index.auto import AutoIndex, index_maker
from recall_cli.cache.policy.registry import vetoes_of
from recall_cli.cache.policy.static import DEFAULT_TAU, StaticPolicy
from recall_cli.cache.request import text_request
from recall_cli.cache.stores.sqlite import SqliteStore
from recall_cli.errors import GateFailed, UsageError
from recall_cli.measure import inputs, prompts, workload
from recall_cli.measure.bench import correctness
from recall_cli.measure.bench.policy import (
    ADAPTIVE,
    STATIC,
    Teacher,
    decision_arms,
    lesson_warnings,
    over_static,
    prepared,
)
from recall_cli.measure.bench.rows import REFERENCE, Case, ratios, reference_row, row, warnings
from recall_cli.measure.result import new_result
from recall_cli.measure.timing import Arm, interleave, one_thread, sketch, timer_floor_ns
from recall_cli.types import Embedder, Progress, Put, Result, Vector, Warn

NAMESPACE = "recall-bench"
"""Bench entries have a partition of their own, also in a store that holds others."""

BATCH_PROMPTS = 2_000
BATCH_ROUNDS = 9

MAX_DIFFERENCE = 1e-6
"""How far our vectors may lie from model2vec's before the comparison of their times is refused."""


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """What to measure; `embedders` empty means hash-v1 and static (with a store: static)."""

    embedders: tuple[str, ...] = ()
    entries: tuple[int, ...] = (1_000,)
    index: str = "auto"
    tau: float = DEFAULT_TAU
    policy: str = STATIC
    """"adaptive" measures a policy that has learned, beside the static one at tau."""
    target: float = 0.01
    """What adaptive promises: the share of its semantic hits that may be wrong."""
    lookups: int = 2_000
    warmup: int = 200
    prompts: str | None = None
    reference: bool = False
    verify_on_hit: str = "auto"
    """What a hit must pass beside the policy (`cache.policy.registry.CHECKS`); model also measures the local second
    opinion."""
    store: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse combinations that cannot be measured."""
        if self.policy not in (STATIC, ADAPTIVE):
            raise UsageError(f"there is no policy named {self.policy!r} to bench", hint="choose static or adaptive")
        if self.lookups < 1 or self.warmup < 0:
            raise UsageError(
                "--lookups must be at least 1 and --warmup at least 0", hint="the defaults are 2000 and 200"
            )
        if self.store and (len(self.embedders) > 1 or len(self.entries) > 1):
            raise UsageError(
                "--store holds the vectors of one embedder and one size",
                hint="give one --embedder and one --entries with --store",
            )

    def names(self) -> tuple[str, ...]:
        """Return the embedders to measure, each once, in the order given."""
        return tuple(dict.fromkeys(self.embedders)) or (("static",) if self.store else ("hash-v1", "static"))


def run(plan: BenchPlan, *, progress: Progress | None = None, stdin: BinaryIO | None = None) -> Result:
    """Measure and return one row an embedder and size.

    :raises GateFailed: when an arm answers wrongly; nothing is timed then.
    """
    teacher = Teacher(plan.policy, plan.tau, plan.target, plan.seed)
    work = inputs.asked(plan.prompts, stdin or prompts.standard_input()) if plan.prompts else workload.bundled()
    opinion = prepared(work, plan.verify_on_hit)
    result = new_result(
        "bench", {**asdict(plan), "embedders": list(plan.names()), "workload": work.source, "threads": 1}
    )
    cases: list[Case] = []
    try:
        with one_thread():
            solo, fresh = _prepare(plan, teacher, work, cases, progress)
            reference = _reference_arms(work, fresh) if plan.reference else {}
            timed, floor = _time(plan, cases, solo, reference, progress)
    finally:
        for case in cases:
            _put_away(case.cache, plan)

    result.rows = [row(case, solo[case.embedder.name]) | over_static(case, plan.seed) for case in cases]
    if reference:
        result.rows.append(reference_row(reference))
        result.summary["ratios"] = ratios(cases, solo, reference, plan.seed)
    result.summary |= {
        "timer_floor_us": floor / 1_000,
        "workload": {"name": work.name, "version": work.version, "source": work.source, "skipped": dict(work.skipped)},
        "cutoff_alone": {case.name: correctness.rates(case.alone) for case in cases if case.alone is not None},
        "by_kind": {case.name: correctness.by_kind(case.tally) for case in cases},
        "samples": {
            f"{name}.{arm.name}": sketch(arm)
            for name, group in [*solo.items(), (REFERENCE, reference), *((case.name, case.arms) for case in cases)]
            for arm in group.values()
        },
    }
    if opinion is not None:
        result.summary["second_opinion"] = opinion()
    if teacher.lessons:
        result.summary["lessons"] = teacher.lessons
    result.warnings += _raised(plan, work) + lesson_warnings(teacher) + warnings(result.rows, work, timed, floor)
    return result


def _time(
    plan: BenchPlan,
    cases: list[Case],
    solo: dict[str, dict[str, Arm]],
    reference: dict[str, Arm],
    progress: Progress | None,
) -> tuple[list[Arm], float]:
    """Time all arms in the same rounds; return those of single calls, and the clock's floor in nanoseconds."""
    arms = [arm for group in (*solo.values(), reference, *(case.arms for case in cases)) for arm in group.values()]
    timed = [arm for arm in arms if arm.name != "batch"]
    floor = timer_floor_ns()
    interleave(timed, calls=plan.lookups, warmup=plan.warmup, seed=plan.seed, progress=progress)
    batches = [arm for arm in arms if arm.name == "batch"]
    interleave(batches, calls=BATCH_ROUNDS, warmup=1, seed=plan.seed, block=1)
    return timed, floor


def _prepare(
    plan: BenchPlan, teacher: Teacher, work: prompts.Workload, cases: list[Case], progress: Progress | None
) -> tuple[dict[str, dict[str, Arm]], list[str]]:
    """Fill `cases` with caches and their arms; return each embedder's own arms, and texts nobody has seen."""
    sizes = sorted({max(size, work.preloaded) for size in plan.entries})
    fresh_each = plan.lookups + plan.warmup
    asked = {query.text for query in work.queries} | set(work.seeds)
    spare = workload.filler(sizes[-1] + fresh_each * (1 + len(sizes)), plan.seed, asked)
    filler, fresh = spare[: sizes[-1]], spare[sizes[-1] :]
    solo: dict[str, dict[str, Arm]] = {}
    for name in plan.names():
        embedder = make_embedder(name)
        solo[name] = _embed_arms(embedder, work, fresh[:fresh_each])
        for position, size in enumerate(sizes, start=1):
            if progress is not None:
                progress(len(cases), len(plan.names()) * len(sizes), f"filling {size:,} entries for {name}")
            texts = [*work.seeds[: work.preloaded], *filler[: size - work.preloaded]]
            case = _case(plan, teacher, embedder, work, texts)
            case.arms = _lookup_arms(case, plan, work, fresh[fresh_each * position : fresh_each * (position + 1)])
            cases.append(case)
    return solo, fresh[:fresh_each]


def _case(plan: BenchPlan, teacher: Teacher, embedder: Embedder, work: prompts.Workload, texts: list[str]) -> Case:
    """Fill a cache, then look every query up once: the rates, and the check before the clock."""
    store = SqliteStore(plan.store, embedder=embedder) if plan.store else None
    policy = teacher.policy()
    vetoes = vetoes_of(plan.verify_on_hit, policy)
    make_index = index_maker(plan.index, embedder.dim)
    cache = Cache(embedder=embedder, policy=policy, store=store, make_index=make_index, vetoes=vetoes)
    try:
        # After the cache is made: a user's store brings what its own policy has learned.
        teacher.teach(policy, embedder)
        _forget_entries(cache)
        vectors = embedder.embed_many(texts)
        seed_ids = _fill(cache, texts, vectors)[: work.preloaded]

        def exact() -> bool:
            return _kind(plan, cache) == "exact"

        tally = correctness.tally(cache, work.queries, seed_ids, NAMESPACE, vectors, exact=exact)
        # The replay of unlabelled prompts stored them all. Forget the later half again: those are what
        # the lookups are timed on, and a stored prompt would be an exact hit.
        replayed = seed_ids[work.preloaded :]
        cache.delete(replayed[len(replayed) // 2 :])
        alone = _alone(plan, work, cache, texts, vectors) if vetoes and plan.policy == STATIC else None
    except BaseException:
        _put_away(cache, plan)
        raise
    return Case(embedder, cache, size=len(texts), tally=tally, index=_label(plan, cache), alone=alone)


def _fill(cache: Cache, texts: Sequence[str], vectors: Vector) -> list[int]:
    """Store the texts; return the ids of their entries."""
    puts = [
        Put(text_request(text, NAMESPACE), correctness.BENCH_ANSWER, vector)
        for text, vector in zip(texts, vectors, strict=True)
    ]
    ids = []
    for put in puts:
        id = cache.put_many([put])[0]
        assert id is not None  # no byte cap is set
        ids.append(id)
    return ids


def _alone(
    plan: BenchPlan, work: prompts.Workload, beside: Cache, texts: Sequence[str], vectors: Vector
) -> correctness.AnswerCounts:
    """Return what the bare cutoff answers to the same queries: what it serves wrongly stays in sight."""
    cache = Cache(embedder=beside.embedder, policy=StaticPolicy(plan.tau), vetoes=frozenset())
    seed_ids = _fill(cache, texts, vectors)[: work.preloaded]
    return correctness.tally(cache, work.queries, seed_ids, NAMESPACE, vectors, exact=lambda: False)


def _kind(plan: BenchPlan, cache: Cache) -> str:
    """Return the kind of index now in service: auto grows from one into another."""
    index = cache.index_of(text_request("", NAMESPACE).partition)
    return index.kind if isinstance(index, AutoIndex) else plan.index.partition(":")[0]


def _label(plan: BenchPlan, cache: Cache) -> str:
    """Return the index as asked for; for auto, with the kind it has grown into."""
    asked, kind = plan.index.partition(":")[0], _kind(plan, cache)
    return plan.index if kind == asked else f"{plan.index} ({kind})"


def _embed_arms(embedder: Embedder, work: prompts.Workload, fresh: list[str]) -> dict[str, Arm]:
    texts = [query.text for query in work.queries]
    arms = {
        "embed": Arm("embed", embedder.embed, texts),
        "embed_first_seen": Arm("embed_first_seen", embedder.embed, fresh),
        "batch": Arm("batch", embedder.embed_many, [fresh[:BATCH_PROMPTS]]),
    }
    if isinstance(embedder, TableEmbedder):
        # Its own instance: forgetting words would make every other arm of the round pay for it.
        cold = cast(TableEmbedder, make_embedder(embedder.name))
        arms["embed_cold"] = Arm("embed_cold", cold.embed, texts, before=cold.tokens.forget)
    return arms


def _lookup_arms(case: Case, plan: BenchPlan, work: prompts.Workload, fresh: list[str]) -> dict[str, Arm]:
    cache = case.cache
    texts = list(dict.fromkeys([*work.seeds, *(query.text for query in work.queries)]))
    stored = [text for text in texts if cache.exact(text_request(text, NAMESPACE)) is not None]
    asked = [text for text in texts if text not in set(stored)] or fresh
    requests = [text_request(text, NAMESPACE) for text in asked]
    vectors = case.embedder.embed_many(asked)

    def lookup(text: str) -> object:
        return cache.get(text_request(text, NAMESPACE))

    return {
        "identity": Arm("identity", lambda text: text_request(text, NAMESPACE), asked),
        "search": Arm("search", lambda pair: cache.match(*pair), list(zip(requests, vectors, strict=True))),
        "lookup": Arm("lookup", lookup, asked),
        "lookup_first_seen": Arm("lookup_first_seen", lookup, fresh),
        **({"exact": Arm("exact", lookup, stored)} if stored else {}),
        **(
            decision_arms(case.cache, plan.tau, index_maker(plan.index, case.embedder.dim), requests, vectors)
            if plan.policy == ADAPTIVE
            else {}
        ),
    }


def _reference_arms(work: prompts.Workload, fresh: list[str]) -> dict[str, Arm]:
    """Return model2vec's own encode on the bundled table, after checking that it agrees with ours.

    The table is expanded to float32 for it too: that is its faster dtype, so the fairer rival.
    """
    model = reference_model()
    texts = [query.text for query in work.queries]
    embedder = make_embedder("static")
    difference = float(np.abs(embedder.embed_many(texts) - model.encode(texts)).max())
    if difference > MAX_DIFFERENCE:
        raise GateFailed(
            f"the static embedder differs from model2vec by {difference:.2g}",
            hint="this is a defect in recall, or a model2vec that changed: report both versions",
        )
    return {
        "embed": Arm("embed", model.encode, texts),
        "embed_first_seen": Arm("embed_first_seen", model.encode, fresh),
        "batch": Arm("batch", model.encode, [fresh[:BATCH_PROMPTS]]),
    }


def _raised(plan: BenchPlan, work: prompts.Workload) -> list[Warn]:
    small = [size for size in plan.entries if size < work.preloaded]
    if not small:
        return []
    return [
        Warn(
            "ENTRIES_RAISED",
            f"the workload itself has {work.preloaded:,} entries, so --entries {small[0]} became {work.preloaded:,}",
        )
    ]


def _forget_entries(cache: Cache) -> int:
    """Take bench entries out again, an earlier run's too; return how many there were."""
    return cache.delete([entry.id for entry in cache.store.entries() if entry.namespace == NAMESPACE])


def _put_away(cache: Cache, plan: BenchPlan) -> None:
    """Leave a user's store as it was: bench entries are not answers."""
    if plan.store and _forget_entries(cache):
        cache.store.compact()
    cache.close()
