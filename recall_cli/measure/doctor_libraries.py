"""The libraries recall stands on: that they answer rightly, and that they are built for this processor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from time import thread_time_ns
from typing import TYPE_CHECKING, Any

from recall_cli.errors import REINSTALL, extra_hint
from recall_cli.measure.findings import Finding, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from recall_cli.types import Vector

DISTRIBUTION = "recall-cli"
ROWS, DIM = 5_000, 256
PORTABLE_BUILD = 1.9
"""hnswlib compares all rows in 1.1 of numpy's time when it is built for the processor (AVX-512, 5,000 rows of 256) and
in 2.5 when it is built for any (HNSWLIB_NO_NATIVE=1): between the two."""
NEW_ENVIRONMENT = f"{REINSTALL}, into a new environment"


def blas() -> Iterator[Finding]:
    """Yield the BLAS under numpy, which exact search is made of, and its threads."""
    from threadpoolctl import threadpool_info

    from recall_cli.measure.environment import environment

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

    from recall_cli.cache.index.hnsw_library import HNSWLIB, INSTALL_HNSWLIB, WITHOUT_HNSWLIB, graph_library
    from recall_cli.cache.index.index import make_index

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

    from recall_cli.cache.index.index import make_index

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
