"""`recall doctor`: what is broken here, what is slow and why, and what to do about it.

It looks at the machine (interpreter, processors and their quota, memory, descriptors), the libraries (that they answer
rightly and are built for this processor), and the files and variables that recall reads. Nothing is changed and no
network is asked. A check that raises is a check that failed, with the exception as its finding.
"""

from __future__ import annotations

import difflib
import platform
import re
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from importlib import metadata
from pathlib import Path
from time import thread_time_ns
from typing import TYPE_CHECKING, Any

from recall_cli import __version__
from recall_cli.cache.stores.sqlite_file import connect, read_facts
from recall_cli.errors import REINSTALL, RecallError, extra_hint
from recall_cli.measure.result import environment, new_result
from recall_cli.postgres.open import read_shared_facts
from recall_cli.postgres.urls import is_database_url
from recall_cli.types import Result

if TYPE_CHECKING:
    from recall_cli.types import Vector


class State(StrEnum):
    """How something is."""

    OK = "ok"
    ABSENT = "absent"
    """Not there, and nothing needs it."""
    SLOW = "slow"
    """Works, and costs more than it should."""
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: how it is, what was seen, and, unless it is well, what to do."""

    check: str
    state: State
    found: str
    hint: str = ""


LEAST_FREE = 1 << 28
"""Bytes free beside a store: SQLite needs as much again as a transaction writes, and a full disk loses writes."""
LIKE = 0.8
"""How like a known name an unread one must be to be called its misspelling; all of them begin alike."""
LONG_LOG = 1 << 28
"""Bytes of write-ahead log that no reader should have to walk: it is folded in at 4 MB when nobody holds it open."""


def settings(files: Sequence[str]) -> Iterator[Finding]:
    """Yield which settings files are in force; each was read, and its names checked, before this runs."""
    if files:
        yield Finding("settings", State.OK, ", ".join(files))
    else:
        yield Finding("settings", State.ABSENT, "no recall.toml here or in the user's folder")


def variables(found: Sequence[str], known: Sequence[str], links: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield which RECALL_* variables are set, by name, and which of them nothing reads.

    :param links: those of them that link to a network service.
    """
    if not found:
        yield Finding("variables", State.ABSENT, "no RECALL_* variable is set")
        return
    if links:
        said = f"{', '.join(links)}: links to a network service, which nothing reads"
        hint = "Kubernetes sets them for a Service called recall: `enableServiceLinks: false` leaves them out"
        yield Finding("variables", State.ABSENT, said, hint)
        found = [name for name in found if name not in links]
    unread = [name for name in found if name not in known]
    for name in unread:
        near = difflib.get_close_matches(name, known, 1, cutoff=LIKE)
        said = f"{name} is set, and nothing reads it"
        if near:
            yield Finding("variables", State.BROKEN, said, f"did you mean {near[0]}?")
        else:
            yield Finding("variables", State.ABSENT, said, "another program's, perhaps: recall knows no such name")
    read = [name for name in found if name not in unread]
    if read:
        yield Finding("variables", State.OK, ", ".join(read))


def store(path: str | None, embedder: str) -> Iterator[Finding]:
    """Yield what a store holds, whether it is whole, and whether its vectors are the embedder's."""
    if path is None:
        yield Finding("store", State.ABSENT, "none was named (--store FILE)")
        return
    from recall_cli.cache.embed.registry import make_embedder

    shared = is_database_url(path)
    facts, namespaces = read_shared_facts(path) if shared else read_facts(Path(path))
    damage = "" if shared else _damage(Path(path))
    if damage:
        hint = "bring back a copy, or carry over what can be read with recall cache export"
        yield Finding("store", State.BROKEN, f"{path} is damaged: {damage}", hint)
        return
    found = (
        f"{path}: {facts['entries']:,} entries, {facts['vectors']:,} vectors of {facts['embedder'] or 'no embedder'}, "
        f"{len(namespaces):,} namespaces, {facts['bytes'] / 1e6:.1f} MB"
    )
    if facts["fingerprint"] and facts["fingerprint"] != make_embedder(embedder).fingerprint:
        hint = f"name that embedder with -e, or move the store: recall cache reembed {path} -e {embedder}"
        yield Finding("store", State.BROKEN, f"{found}; they are not {embedder}'s", hint)
    else:
        yield Finding("store", State.OK, found)
    if not shared:
        yield from _room(Path(path))


def sqlite_library() -> Iterator[Finding]:
    """Yield the SQLite that stores are written with: a write and its reader, in a file of a moment."""
    with tempfile.TemporaryDirectory() as folder, closing(connect(Path(folder) / "x.db")) as db:
        mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    found = f"{sqlite3.sqlite_version}, journal {mode}"
    if mode != "wal":
        hint = "files in the temporary folder take no write-ahead log: keep stores on a local disk"
        yield Finding("SQLite", State.SLOW, found, hint)
    else:
        yield Finding("SQLite", State.OK, found)


def _damage(path: Path) -> str:
    """Return what SQLite finds wrong in a file, "" for nothing."""
    # Not opened read-only: such a connection leaves its -wal and -shm files behind.
    with closing(connect(path)) as db:
        try:
            db.execute("PRAGMA query_only = ON")
            said = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
        except sqlite3.DatabaseError as error:
            return str(error)
    return "" if said == "ok" else said


def _room(path: Path) -> Iterator[Finding]:
    """Yield the disk under a store and the length of its write-ahead log."""
    free = shutil.disk_usage(path.parent).free
    if free < LEAST_FREE:
        hint = "answers are not stored when it is full: free some space, or move the store"
        yield Finding("disk", State.SLOW, f"{free / 1e6:,.0f} MB free beside {path}", hint)
    log = path.with_name(f"{path.name}-wal")
    length = log.stat().st_size if log.is_file() else 0
    if length > LONG_LOG:
        hint = "a process has held a read open for long: end it, and the log is folded in at the next write"
        yield Finding("store log", State.SLOW, f"{log} has {length / 1e6:,.0f} MB", hint)


QUOTA = Path("/sys/fs/cgroup/cpu.max")
CPU_INFO = Path("/proc/cpuinfo")
WIDE = ("avx2", "avx512f", "asimd")
"""Instruction sets with which the indexes compare eight numbers and more at once."""
LEAST_MEMORY = 1 << 30
"""A store of 100,000 entries with 256 dimensions serves in some 350 MB; below 1 GB there is no room beside it."""
LEAST_FILES = 4_096
"""`recall serve` takes 2,048 connections, and each may need one to the upstream."""


def python() -> Iterator[Finding]:
    """Yield which recall runs in which Python."""
    found = f"recall {__version__}, {platform.python_implementation()} {platform.python_version()} ({sys.platform})"
    yield Finding("python", State.OK, found)


def processor(quota: Path = QUOTA, cpu_info: Path = CPU_INFO) -> Iterator[Finding]:
    """Yield the processor, what a container may use of it, and how busy it is."""
    machine = environment()
    cores, load = machine["usable_cores"], machine["load_1m"]
    found = f"{machine['cpu']}, {machine['machine']}: {cores} of {machine['cores']} cores, load {load}"
    if load is not None and cores and load > cores:
        yield Finding("processor", State.SLOW, found, "more work waits than there are cores: times are not yours alone")
    else:
        yield Finding("processor", State.OK, found)
    share = _quota(quota)
    if share is not None and cores and share < cores:
        hint = f"threads beyond the quota make each other wait: set OMP_NUM_THREADS={max(1, int(share))}"
        yield Finding("cpu quota", State.SLOW, f"{share:g} cores' time on {cores} cores", hint)
    sets = _instructions(cpu_info)
    if sets is not None and not sets:
        hint = "indexes compare four numbers at once instead of eight: expect two to three times the search times"
        yield Finding("instructions", State.SLOW, f"none of {', '.join(WIDE)}", hint)


def memory() -> Iterator[Finding]:
    """Yield how much memory the machine has."""
    size = environment()["memory_bytes"]
    if size is None:
        return
    found = f"{size / (1 << 30):.1f} GiB"
    if size < LEAST_MEMORY:
        yield Finding("memory", State.SLOW, found, "a large store will not fit: bound it with --max-entries")
    else:
        yield Finding("memory", State.OK, found)


def open_files() -> Iterator[Finding]:
    """Yield how many descriptors a process may have: each connection of the proxy takes one or two."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < LEAST_FILES:
        hint = f"recall serve may run out of them: raise the limit with ulimit -n {LEAST_FILES}"
        yield Finding("open files", State.SLOW, f"{soft:,} a process (at most {hard:,})", hint)
    else:
        yield Finding("open files", State.OK, f"{soft:,} a process")


def _quota(path: Path) -> float | None:
    """Return how many cores' time a container gets, None when there is no limit or no way to tell."""
    try:
        allowed, period = path.read_text().split()
        return None if allowed == "max" else int(allowed) / int(period)
    except (OSError, ValueError):
        return None


def _instructions(path: Path) -> list[str] | None:
    """Return the wide instruction sets there are, None when the system does not say."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), None)
    return None if flags is None else [name for name in WIDE if name in flags]


DISTRIBUTION = "recall-cli"
ROWS, DIM = 5_000, 256
PORTABLE_BUILD = 1.9
"""hnswlib compares all rows in 1.1 of numpy's time when it is built for the processor (AVX-512, 5,000 rows of 256) and
in 2.5 when it is built for any (HNSWLIB_NO_NATIVE=1): between the two."""
NEW_ENVIRONMENT = f"{REINSTALL}, into a new environment"


def blas() -> Iterator[Finding]:
    """Yield the BLAS under numpy, which exact search is made of, and its threads."""
    from threadpoolctl import threadpool_info

    from recall_cli.measure.result import environment

    build = environment()["blas"]
    loaded = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    if not loaded:
        found = f"numpy's is {build.get('name') or 'unknown'}, none that threadpoolctl knows"
        hint = "exact search may be many times slower: install numpy from a wheel (OpenBLAS, MKL or Accelerate)"
        yield Finding("BLAS", State.SLOW, found, hint)
        return
    named = dict.fromkeys(
        f"{pool['internal_api']} {pool['version']} ({pool.get('architecture', 'any processor')})" for pool in loaded
    )
    yield Finding("BLAS", State.OK, f"{', '.join(named)}; {loaded[0]['num_threads']} threads")


def openmp() -> Iterator[Finding]:
    """Yield the OpenMP runtimes in the process: two of them spin against each other."""
    import faiss  # noqa: F401  its runtime is the one that is looked for
    from threadpoolctl import threadpool_info

    pools = [pool for pool in threadpool_info() if pool["user_api"] == "openmp"]
    found = ", ".join(f"{pool['prefix']}, {pool['num_threads']} threads" for pool in pools) or "none is loaded"
    if len({pool["internal_api"] + pool["prefix"] for pool in pools}) > 1:
        yield Finding("OpenMP", State.SLOW, found, "two runtimes make their threads wait: set OMP_NUM_THREADS=1")
    else:
        yield Finding("OpenMP", State.OK, found)


def graph() -> Iterator[Finding]:
    """Yield whether the graph finds what is there, and whether hnswlib was built for this processor."""
    import numpy as np

    from recall_cli.cache.index.auto import make_index
    from recall_cli.cache.index.hnsw_library import HNSWLIB, INSTALL_HNSWLIB, WITHOUT_HNSWLIB, graph_library

    if graph_library() != HNSWLIB:
        yield Finding("hnswlib", State.ABSENT, WITHOUT_HNSWLIB, INSTALL_HNSWLIB)
        return
    import hnswlib

    version, rows = metadata.version("hnswlib"), _rows()
    index = make_index("hnsw", DIM)
    index.add(np.arange(500), rows[:500])
    if not _finds(index, rows[:500]):
        yield Finding("hnswlib", State.BROKEN, f"{version} does not find rows that are there", NEW_ENVIRONMENT)
        return
    full: Any = hnswlib.BFIndex(space="ip", dim=DIM)
    full.set_num_threads(1)  # a thread of its own would not be in this one's time
    full.init_index(max_elements=ROWS)
    full.add_items(rows)
    query = rows[0]
    ratio = _cpu_ratio(lambda: full.knn_query(query, k=1), lambda: rows @ query)
    found = f"{version}; compares {ROWS:,} rows in {ratio:.1f} of numpy's time"
    if ratio > PORTABLE_BUILD:
        hint = (
            "it is built for any processor, not for this one: two vectors take it twice as long to compare; rebuild "
            "it with pip install --force-reinstall --no-deps --no-cache-dir --no-binary hnswlib hnswlib"
        )
        yield Finding("hnswlib", State.SLOW, found, hint)
    else:
        yield Finding("hnswlib", State.OK, found)


def codes() -> Iterator[Finding]:
    """Yield whether the compressed scan finds what is there, and what faiss was built with."""
    import faiss
    import numpy as np

    from recall_cli.cache.index.auto import make_index

    rows = _rows()
    index = make_index("scan", DIM)
    index.add(np.arange(ROWS), rows)
    found = f"{faiss.__version__}, {faiss.get_compile_options().strip()}"
    if not _finds(index, rows[:200]):
        yield Finding("faiss", State.BROKEN, f"{found}: does not find rows that are there", NEW_ENVIRONMENT)
    elif not re.search("AVX2|AVX512|NEON|SVE", found):
        hint = "the compressed scan has no wide instructions to use: choose --index hnsw for large partitions"
        yield Finding("faiss", State.SLOW, found, hint)
    else:
        yield Finding("faiss", State.OK, found)


def word_index() -> Iterator[Finding]:
    """Yield whether tantivy, the hubs' index of words, finds what is there."""
    import tantivy

    schema = tantivy.SchemaBuilder().add_text_field("text", stored=True).build()
    index = tantivy.Index(schema)  # in memory
    writer = index.writer(heap_size=15_000_000, num_threads=1)
    writer.add_document(tantivy.Document(text="the doctor looks"))
    writer.commit()
    index.reload()
    hits = index.searcher().search(index.parse_query("doctor", ["text"])).hits
    version = metadata.version("tantivy")
    if len(hits) != 1:
        yield Finding("tantivy", State.BROKEN, f"{version} does not find words that are there", NEW_ENVIRONMENT)
    else:
        yield Finding("tantivy", State.OK, version)


def bundled_model() -> Iterator[Finding]:
    """Yield whether the files of the bundled model are the ones that were published."""
    import orjson
    from blake3 import blake3

    from recall_cli.cache.embed.registry import bundled_folder

    folder = bundled_folder()
    listed = orjson.loads((folder / "digests.json").read_bytes())["files"]
    other = [name for name, facts in listed.items() if _digest(folder / name, blake3) != facts["blake3"]]
    if other:
        found = f"{', '.join(other)} in {folder} differ from what was published, or are missing"
        yield Finding("bundled model", State.BROKEN, found, REINSTALL)
    else:
        size = sum(facts["bytes"] for facts in listed.values())
        yield Finding("bundled model", State.OK, f"{len(listed)} files, {size / 1e6:.1f} MB, as published")


def embedder(name: str) -> Iterator[Finding]:
    """Yield whether the embedder loads and gives unit vectors, by which tokenizer, and what one text takes."""
    import numpy as np

    from recall_cli.cache.embed.registry import make_embedder

    made = make_embedder(name)
    vector = made.embed("How do I reset my password?")
    if vector.shape != (made.dim,) or abs(float(np.linalg.norm(vector)) - 1) > 1e-3:
        hint = "its files are damaged, or of a model that model2vec does not know"
        yield Finding("embedder", State.BROKEN, f"{name} gives no unit vectors of {made.dim} dimensions", hint)
        return
    taken = _cpu_us(lambda: made.embed("How do I reset the password of my other account?"))
    way = getattr(getattr(made, "tokens", None), "way", None)
    found = f"{name}: {made.dim} dimensions, {made.fingerprint[:12]}, {taken:.0f} us a text"
    found += f", tokenised by {way}" if way else ""
    if way == "plain":
        hint = "its tokenizer looks across spaces, so no word is remembered: each text is tokenised in full"
        yield Finding("embedder", State.SLOW, found, hint)
    else:
        yield Finding("embedder", State.OK, found)


def extras() -> Iterator[Finding]:
    """Yield for each extra whether its packages are there."""
    wanted: dict[str, list[str]] = {}
    for requirement in metadata.requires(DISTRIBUTION) or []:
        extra = re.search(r"""extra\s*==\s*['"]([^'"]+)""", requirement)
        package = re.match(r"[A-Za-z0-9._-]+", requirement)
        if extra and package and not extra[1].startswith("test"):
            wanted.setdefault(extra[1], []).append(package[0])
    for extra_name, packages in wanted.items():
        missing = [package for package in packages if not _installed(package)]
        if missing:
            absent = f"without {', '.join(missing)}"
            yield Finding(f"extra {extra_name}", State.ABSENT, absent, extra_hint(extra_name))
        else:
            yield Finding(f"extra {extra_name}", State.OK, ", ".join(packages))


def _installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _digest(path: Path, hasher: Any) -> str:
    return str(hasher(path.read_bytes()).hexdigest()) if path.is_file() else ""


def _rows() -> Vector:
    """Return random unit rows, shape (ROWS, DIM)."""
    import numpy as np

    rows = np.random.default_rng(0).standard_normal((ROWS, DIM), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def _finds(index: Any, rows: Vector) -> bool:
    """Return whether each row, asked for, comes back as the nearest of itself."""
    return all(int(index.search(row, 1)[0][0]) == number for number, row in enumerate(rows))


def _cpu_us(call: Callable[[], object], calls: int = 30) -> float:
    """Return the median processor time of a call, in microseconds: what others' load cannot raise."""
    from statistics import median

    taken = []
    for _ in range(calls):
        start = thread_time_ns()
        call()
        taken.append(thread_time_ns() - start)
    return median(taken) / 1_000


def _cpu_ratio(one: Callable[[], object], other: Callable[[], object]) -> float:
    from recall_cli.measure.timing import one_thread

    with one_thread():
        return _cpu_us(one) / _cpu_us(other)


Check = Callable[[], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class DoctorPlan:
    """What is looked at besides the machine and the installation."""

    embedder: str = "static"
    store: str | None = None
    settings: tuple[str, ...] = ()
    """Settings files that were read."""
    variables: tuple[str, ...] = ()
    """Names of the RECALL_* variables that are set; their values may be secrets."""
    links: tuple[str, ...] = ()
    """Names of those of them that link to a network service: the platform sets them, and nothing reads them."""
    known_variables: tuple[str, ...] = ()


def run(plan: DoctorPlan) -> Result:
    """Return a row a finding; `summary` counts them by state."""
    result = new_result("doctor", asdict(plan) | {"known_variables": len(plan.known_variables)})
    result.rows = [asdict(finding) | {"state": finding.state.value} for finding in _findings(plan)]
    counts = Counter(row["state"] for row in result.rows)
    result.summary = {state.value: counts[state.value] for state in State}
    return result


def check(result: Result) -> None:
    """Raise RecallError when something is broken."""
    broken = [row for row in result.rows if row["state"] == State.BROKEN]
    if broken:
        names = ", ".join(row["check"] for row in broken)
        raise RecallError(f"{names}: {broken[0]['found']}", hint=broken[0]["hint"])


def _findings(plan: DoctorPlan) -> list[Finding]:
    checks: Sequence[tuple[str, Check]] = (
        ("python", python),
        ("processor", processor),
        ("memory", memory),
        ("open files", open_files),
        ("BLAS", blas),
        ("OpenMP", openmp),
        ("hnswlib", graph),
        ("faiss", codes),
        ("tantivy", word_index),
        ("SQLite", sqlite_library),
        ("bundled model", bundled_model),
        ("embedder", partial(embedder, plan.embedder)),
        ("extras", extras),
        ("settings", partial(settings, plan.settings)),
        ("variables", partial(variables, plan.variables, plan.known_variables, plan.links)),
        ("store", partial(store, plan.store, plan.embedder)),
    )
    return [finding for name, look in checks for finding in _looked(name, look)]


def _looked(name: str, look: Check) -> list[Finding]:
    try:
        return list(look())
    except RecallError as error:
        return [Finding(name, State.BROKEN, str(error), error.hint)]
    except Exception as error:
        hint = f"{REINSTALL}, into a new environment; if it stays, report this line"
        return [Finding(name, State.BROKEN, f"{type(error).__name__}: {error}", hint)]
