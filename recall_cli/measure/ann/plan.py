"""What an index measurement walks: the plan people give, and the grid of settings it stands for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product

from recall_cli.cache.embed.registry import DEFAULT_EMBEDDER
from recall_cli.cache.index.auto import make_index
from recall_cli.cache.policy.static import DEFAULT_TAU, check_tau
from recall_cli.errors import UsageError
from recall_cli.measure.ann.data import Clusters

ENGINES = ("exact", "scan", "hnsw")
KINDS = ("random", "clustered")
FASTER_EF_SEARCH = 64
"""Stands beside the graph's default, for those who would give recall for time."""

Build = tuple[str, tuple[tuple[str, int], ...]]
"""What tells one built index from another."""


@dataclass(frozen=True, slots=True)
class AnnPlan:
    """The grid to measure."""

    dims: tuple[int, ...] = (32, 256)
    corpus: tuple[int, ...] = (10_000,)
    data: tuple[str, ...] = ("random",)
    """"random", "clustered", the path of a file of vectors or texts, or "-" for standard input."""
    engines: tuple[str, ...] = ENGINES
    M: tuple[int, ...] = ()
    """Empty here and below: the engine's own default, or, when tuning, what tuning walks."""
    ef_construction: tuple[int, ...] = ()
    ef_search: tuple[int, ...] = ()
    codes: tuple[int, ...] = ()
    """Codes a vector of the scan; 0 is its default for the dimension."""
    refine: tuple[int, ...] = ()
    top_k: tuple[int, ...] = (1,)
    tau: float = DEFAULT_TAU
    near: tuple[float, float] = (0.8, 0.99)
    queries: int = 1_000
    lookups: int = 1_000
    clusters: Clusters = field(default_factory=Clusters)
    embedder: str = DEFAULT_EMBEDDER
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        unknown = [engine for engine in self.engines if engine not in ENGINES]
        if unknown:
            raise UsageError(f"there is no engine {unknown[0]!r}", hint=f"choose from {', '.join(ENGINES)}")
        twice = [name for name in self.data if self.data.count(name) > 1]
        if twice:
            raise UsageError(f"--data {twice[0]} is given twice", hint="name each kind of data once")
        check_tau(self.tau)
        low, high = self.near
        if not -1 <= low <= high <= 1:
            raise UsageError(f"near-duplicates at cosine {low:g} to {high:g} cannot be made", hint="--near 0.8,0.99")
        if min(*self.dims, *self.corpus, self.queries, self.lookups) < 1 or min(self.dims) < 2:
            raise UsageError(
                "--dims needs at least 2; --corpus, --queries and --lookups at least 1",
                hint="for instance --dims 256 --corpus 10000",
            )


@dataclass(frozen=True, slots=True)
class Setting:
    """One engine with its options, as `make_index` takes them, and how many neighbours are asked for."""

    engine: str
    options: tuple[tuple[str, int], ...] = ()
    top_k: int = 1

    def params(self) -> dict[str, int]:
        """Return the options as people write them."""
        return dict(self.options) | ({"top_k": self.top_k} if self.top_k > 1 else {})

    def build(self) -> Build:
        """Return what must be built for it: the breadth of a graph's search is not part of the graph."""
        return self.engine, tuple(option for option in self.options if option[0] != "ef_search")


def filled(plan: AnnPlan) -> AnnPlan:
    """Return the plan with the engines' own defaults where it gives no list. Raises UsageError as `make_index` does."""
    for engine in plan.engines:
        make_index(engine, 2)  # An engine that cannot be imported is a sentence, not a traceback.
    if "scan" in plan.engines:
        from recall_cli.cache.index.scan import REFINE

        plan = replace(plan, refine=plan.refine or (REFINE,))
    if "hnsw" in plan.engines:
        from recall_cli.cache.index.hnsw import EF_CONSTRUCTION, EF_SEARCH, LINKS

        plan = replace(
            plan,
            M=plan.M or (LINKS,),
            ef_construction=plan.ef_construction or (EF_CONSTRUCTION,),
            ef_search=plan.ef_search or (FASTER_EF_SEARCH, EF_SEARCH),
        )
    return plan


def settings(plan: AnnPlan, dim: int) -> list[Setting]:
    """Return the grid of settings for one dimension; the first is always plain exact search, the yardstick."""
    grid = [Setting("exact", (), k) for k in dict.fromkeys((1, *plan.top_k)) if k == 1 or "exact" in plan.engines]
    if "scan" in plan.engines:
        codes = dict.fromkeys(m if m <= dim else 0 for m in plan.codes or (0,))
        for m, refine, k in product(codes, plan.refine, plan.top_k):
            grid.append(Setting("scan", (*((("m", m),) if m else ()), ("refine", refine)), k))
    if "hnsw" in plan.engines:
        for links, construction, ef, k in product(plan.M, plan.ef_construction, plan.ef_search, plan.top_k):
            options = (("M", links), ("ef_construction", construction), ("ef_search", ef))
            grid.append(Setting("hnsw", options, k))
    return grid
