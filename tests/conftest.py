"""What all tests share: the evaluation data's folder, and the dial for property tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from recall_cli.cache.embed import registry
from recall_cli.cache.embed.static import TableEmbedder
from tests.postgres.server import Cable, Server

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"

settings.register_profile(
    "recall",
    max_examples=int(os.environ.get("RECALL_MAX_EXAMPLES", "50")),
    # Deadlines are timing assertions, and shared machines break those.
    deadline=None,
    # CI tells whether a change broke something: the same examples each time. Developers' runs explore.
    derandomize=bool(os.environ.get("CI")),
)
settings.load_profile("recall")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden from what is printed now")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if SHARED.is_dir():
        return
    skip = pytest.mark.skip(reason="the evaluation data (../shared/data) is not beside this checkout")
    for item in items:
        if "shared" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session", autouse=True)
def bundled_model_read_once() -> Iterator[None]:
    """Load the bundled model once a process, a tenth of a second each time, and several hundred tests ask for it.

    Nothing that a test sees hangs on whose memory of words an embedder has; how it is loaded has tests of its own, in
    folders of their own, which are read.
    """
    load = registry._bundled
    kept: dict[tuple[Path, str], TableEmbedder] = {}

    def once(tokens: str) -> TableEmbedder:
        key = (registry.bundled_folder(), tokens)
        if key not in kept:
            kept[key] = load(tokens)
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_bundled", once)
        yield


@pytest.fixture
def shared_data() -> Path:
    return SHARED


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """Return a running PostgreSQL with pgvector: it takes some seconds to start, and only where it is asked for."""
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def database(postgres: Server) -> str:
    """Return the URL of an empty database."""
    return postgres.new_url()


@pytest.fixture
def cable(postgres: Server) -> Iterator[Cable]:
    """Return a connection to the server that can be cut."""
    made = Cable(postgres)
    yield made
    made.close()
