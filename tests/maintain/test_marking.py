"""Marking finds what a reader of a version may ask for, no more and no less."""

from __future__ import annotations

from pathlib import Path

import pytest

from cowfs.base.ids import PackId, VersionId
from cowfs.errors import CowfsError
from cowfs.format import keys
from cowfs.maintain.collect.blob_places import MovedRecords, Places
from cowfs.maintain.collect.marking import Marker
from cowfs.maintain.collect.planning import Listing
from cowfs.store import ObjectStore
from tests.maintain.fixtures import either, store
from tests.maintain.stores import commit, fork, random_bytes
from tests.simulation.roots import closure
from tests.version.repacking import move

__all__ = ["either", "store"]


def marked(store: ObjectStore, home: Path, versions: list[VersionId]) -> tuple[Marker, set[str]]:
    marker = Marker(store, home / "marking")
    marker.mark(versions)
    return marker, {keys.pack(pack) for pack in marker.live} | {keys.version(version) for version in marker.versions}


def test_what_is_marked_is_what_versions_need(either: ObjectStore, tmp_path: Path) -> None:
    versions = [commit(either, "v", tmp_path, {b"f%d" % n: random_bytes(n) for n in range(20)})]
    for n in range(4):
        changes: dict[bytes, bytes | None] = {b"f%d" % n: random_bytes(100 + n), b"new%d" % n: b"x" * n}
        versions.append(commit(either, "v", tmp_path, changes))
    versions.append(commit(either, "v", tmp_path, {b"f9": None}))
    marker, found = marked(either, tmp_path, versions)
    assert found == set().union(*(closure(either, version, tmp_path / "closures") for version in versions))
    before = marker.pages_read
    marker.mark(versions)
    assert marker.pages_read == before
    for version in versions:
        assert marked(either, tmp_path, [version])[1] == closure(either, version, tmp_path / "closures")


def test_equal_pages_of_two_forks_name_packs_of_their_own(store: ObjectStore, tmp_path: Path) -> None:
    """Both forks write the same to the same place, each into a pack of its own that has the same
    number: their pages of extents are equal, byte for byte."""
    base = commit(store, "v", tmp_path, {b"f": random_bytes(1)})
    fork(store, "v", "a", base)
    fork(store, "v", "b", base)
    data: dict[bytes, bytes | None] = {b"f": random_bytes(2)}
    ours = commit(store, "a", tmp_path, data)
    hidden = {keys.pack(pack): store.get(keys.pack(pack)) for pack in packs_of(store, tmp_path, ours)}
    moved = {key: store.get(key) for key in hidden if key not in packs_keys(store, tmp_path, base)}
    store.delete(moved)  # so that the other fork cannot find it again
    theirs = commit(store, "b", tmp_path, data)
    for key, whole in moved.items():
        store.put(key, whole)
    needed = closure(store, ours, tmp_path / "closures") | closure(store, theirs, tmp_path / "closures")
    assert marked(store, tmp_path, [ours, theirs])[1] == needed
    assert len(needed) > len(closure(store, ours, tmp_path / "closures"))


def packs_of(store: ObjectStore, home: Path, version: VersionId) -> set[PackId]:
    found = (keys.parse_pack(key) for key in closure(store, version, home / "closures"))
    return {pack for pack in found if pack is not None}


def packs_keys(store: ObjectStore, home: Path, version: VersionId) -> set[str]:
    return {keys.pack(pack) for pack in packs_of(store, home, version)}


def _bytes(marker: Marker, pack: PackId) -> int:
    return sum(length for _, length in marker.live.of(pack))


def test_live_bytes_are_those_of_the_chunks(store: ObjectStore, tmp_path: Path) -> None:
    first = commit(store, "v", tmp_path, {b"a": random_bytes(1, 60_000), b"b": random_bytes(2, 50_000)})
    marker, _ = marked(store, tmp_path, [first])
    data = [pack for pack in marker.live if _bytes(marker, pack) > 100_000]
    assert [_bytes(marker, pack) for pack in data] == [110_000]
    second = commit(store, "v", tmp_path, {b"a": None})
    marker, _ = marked(store, tmp_path, [second])
    assert _bytes(marker, data[0]) == 50_000


def test_blobs_that_moved_are_needed_where_they_lie_now(either: ObjectStore, tmp_path: Path) -> None:
    version = commit(either, "v", tmp_path, {b"f": random_bytes(1)})
    old = packs_of(either, tmp_path, version)
    new = {move(either, pack, 1) for pack in old}
    marker, _ = marked(either, tmp_path, [version])
    listing = Listing.of_packs(either)
    places = Places([marker.live], listing.packs, listing.find_moved_numbers(), MovedRecords(either))
    assert places.list_needed() == new
    assert places.list_named() == places.superseded == old


def test_what_cannot_be_read_stops_it(store: ObjectStore, tmp_path: Path) -> None:
    """Whatever of the index is lost or altered: an error, never less that is needed."""
    version = commit(store, "v", tmp_path, {b"f": random_bytes(1)})
    index_packs = [pack for pack in packs_of(store, tmp_path, version) if store.get(keys.pack(pack))[10] == 2]
    for key in (keys.version(version), *map(keys.pack, index_packs)):
        whole = store.get(key)
        store.delete([key])
        with pytest.raises(CowfsError):
            Marker(store, tmp_path / "nothing" / key).mark([version])
        store.put(key, whole[:60] + bytes([whole[60] ^ 1]) + whole[61:])
        with pytest.raises(CowfsError):
            Marker(store, tmp_path / "altered" / key).mark([version])
        store.put(key, whole)
    Marker(store, tmp_path / "whole").mark([version])
