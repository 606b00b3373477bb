"""The folder of the hubs: names, making, finding, removing; and what other processes do to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from recall_cli.cache.embed.registry import HashEmbedder
from recall_cli.errors import StoreError, UsageError
from recall_cli.hub.models import NoSuchHub, Visibility
from recall_cli.hub.stores.folder import HubFolder, hub_names, make_hub, open_hub, remove_hub

EMBEDDER = HashEmbedder()


@pytest.mark.parametrize(
    "slug", ["", ".", "..", "a/b", "A", "-a", "a-", "a_b", "ä", "a" * 65, ".new-1", "a\x00", "a\n"]
)
def test_what_is_no_slug_is_no_hub(tmp_path: Path, slug: str) -> None:
    with pytest.raises(UsageError):
        make_hub(tmp_path, slug, EMBEDDER)
    with pytest.raises(NoSuchHub):
        open_hub(tmp_path, slug)
    with pytest.raises(NoSuchHub):
        remove_hub(tmp_path, slug)
    assert HubFolder(tmp_path).find(slug) is None
    assert list(tmp_path.iterdir()) == []


def test_hubs_are_made_listed_and_removed(tmp_path: Path) -> None:
    place = tmp_path / "new" / "folder"
    assert hub_names(place) == []
    for slug in ("b", "a-1", "a" * 64):
        make_hub(place, slug, EMBEDDER, visibility=Visibility.PRIVATE, owner="o")
    (place / "keys.db").write_bytes(b"")
    (place / "other").mkdir()
    assert hub_names(place) == ["a-1", "a" * 64, "b"]
    with pytest.raises(UsageError, match="already"):
        make_hub(place, "b", EMBEDDER)
    engine = open_hub(place, "b")
    assert (engine.info().visibility, engine.info().owner, engine.info().embedder) == ("private", "o", "hash-v1")
    engine.close()
    remove_hub(place, "b")
    assert hub_names(place) == ["a-1", "a" * 64]
    assert sorted(path.name for path in place.iterdir()) == ["a-1", "a" * 64, "keys.db", "other"]
    with pytest.raises(NoSuchHub):
        remove_hub(place, "b")


def test_a_file_that_is_no_hub_is_refused_and_left_alone(tmp_path: Path) -> None:
    for name, content in (("text", b"hello" * 300), ("empty", b"")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "hub.db").write_bytes(content)
        with pytest.raises(StoreError):
            open_hub(tmp_path, name)
        assert (tmp_path / name / "hub.db").read_bytes() == content


def test_a_found_hub_stays_open_until_it_is_another(tmp_path: Path) -> None:
    folder = HubFolder(tmp_path)
    assert folder.find("hub") is None
    make_hub(tmp_path, "hub", EMBEDDER)
    first = folder.find("hub")
    assert first is not None
    assert folder.find("hub") is first
    uid = first.info().uid
    remove_hub(tmp_path, "hub")
    assert folder.find("hub") is None
    make_hub(tmp_path, "hub", EMBEDDER)
    second = folder.find("hub")
    assert second is not None
    assert second.info().uid != uid
    assert folder.names() == ["hub"]
    folder.close()
