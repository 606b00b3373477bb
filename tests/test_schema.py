"""What is persisted names its layout, docs/schema.md says which, and no layout changes under its old version."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from blake3 import blake3

from recall_cli.cache.answers import compare
from recall_cli.cache.cache import Cache
from recall_cli.cache.embed.registry import make_embedder
from recall_cli.cache.policy import adaptive
from recall_cli.cache.policy.adaptive import AdaptivePolicy
from recall_cli.cache.policy.static import StaticPolicy
from recall_cli.cache.request import text_request
from recall_cli.cache.stores import maintenance, sqlite_file
from recall_cli.hub.ingest import chunk
from recall_cli.hub.stores import catalog, signing_keys
from recall_cli.measure import result
from recall_cli.postgres import schema
from recall_cli.types import Completion

PAGE = Path(__file__).resolve().parents[1] / "docs" / "schema.md"
BLOCK = re.compile(r"(<!-- recall:versions -->\n).*?(<!-- /recall:versions -->)", re.S)
ROWS = (
    ("result document", "`schema_version`", result.SCHEMA_VERSION, "refused"),
    ("store of answers, SQLite", "`user_version`", sqlite_file.SCHEMA_VERSION, "refused"),
    ("store and hubs, PostgreSQL", "`recall.versions`", schema.VERSION, "an older one is brought up to date"),
    ("export of a store", "`recall_export`", maintenance.FORMAT, "refused"),
    ("adaptive policy", "`layout`", adaptive.LAYOUT, "starts cold"),
    ("comparison of answers", "`version` of the policy", compare.VERSION, "labels are left alone, starts cold"),
    ("hub's catalog", "`user_version`", catalog.SCHEMA_VERSION, "refused"),
    ("chunks of a hub", "digest of a chunk", chunk.CHUNKER, "cut and embedded again"),
    ("signing keys of hubs", "`user_version`", signing_keys.SCHEMA_VERSION, "refused"),
)


def test_the_page_says_the_versions_that_are_written(request: pytest.FixtureRequest) -> None:
    lines = ["| what | where its version stands | version | another one is |", "| --- | --- | --- | --- |"]
    lines += [f"| {what} | {where} | {version} | {other} |" for what, where, version, other in ROWS]
    text = PAGE.read_text(encoding="utf-8")
    fresh = BLOCK.sub(lambda found: found[1] + "\n".join(lines) + "\n" + found[2], text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(fresh, encoding="utf-8")
        text = fresh
    assert BLOCK.search(text)
    assert fresh == text, "docs/schema.md is stale: run pytest tests/test_schema.py --update-golden"


def exported_keys() -> list[list[str]]:
    """The keys of an export's head and of an entry."""
    embedder = make_embedder("hash-v1")
    cache = Cache(embedder=embedder, policy=StaticPolicy(0.9))
    cache.put(text_request("a"), Completion(b"b"))
    return [sorted(orjson.loads(line)) for line in maintenance.exported(cache.store, embedder)]


def digest(layout: Any) -> str:
    return blake3(orjson.dumps(layout)).hexdigest()[:16]


LAYOUTS = {
    "result document": (result.SCHEMA_VERSION, lambda: list(result.to_document(result.new_result("x", {})))),
    "store of answers, SQLite": (
        sqlite_file.SCHEMA_VERSION,
        lambda: [sqlite_file.APPLICATION_ID, sqlite_file.SCHEMA.split()],
    ),
    "store, PostgreSQL": (1, lambda: schema.MIGRATIONS[0].split()),
    "export of a store": (maintenance.FORMAT, exported_keys),
    "adaptive policy": (adaptive.LAYOUT, lambda: sorted(AdaptivePolicy().state())),
    "hub's catalog": (catalog.SCHEMA_VERSION, lambda: [catalog.APPLICATION_ID, catalog.SCHEMA.split()]),
    "signing keys of hubs": (
        signing_keys.SCHEMA_VERSION,
        lambda: [signing_keys.APPLICATION_ID, signing_keys.SCHEMA.split()],
    ),
}
PINNED = {
    ("result document", 1): "accb60659a46776a",
    ("store of answers, SQLite", 1): "1bbd8563c1315c8e",
    ("store, PostgreSQL", 1): "ac088cf6d585e8aa",
    ("export of a store", 1): "e3e8f67a44c6920a",
    ("adaptive policy", 1): "d3ad3f900b317de2",
    ("hub's catalog", 1): "2d023f991aedd6a7",
    ("signing keys of hubs", 1): "6dbcba4d0e83532b",
}
"""Digests of the layouts by version. A change of a layout takes a new version and a line here, never another digest."""


@pytest.mark.parametrize("name", LAYOUTS)
def test_no_layout_changes_under_its_version(name: str) -> None:
    version, layout = LAYOUTS[name]
    assert PINNED.get((name, version)) == digest(layout()), "raise its version, and say in CHANGELOG.md what is read"
