"""Purging takes the bytes: no object of the store decodes to them afterwards, and everything else
reads as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from cowfs.base import clock
from cowfs.base.errors import CorruptError, PurgedError
from cowfs.base.ids import VersionId
from cowfs.format import codec, keys
from cowfs.format.pack import parse_pack
from cowfs.maintain.purge.planning import Planner, PurgePlan
from cowfs.maintain.purge.purging import Purge, PurgeOutcome
from cowfs.maintain.purge.target import Finder, Target
from cowfs.store import ObjectStore
from cowfs.store.packs import load_purged
from cowfs.store.sealed import sealing_of
from cowfs.version.history import open_version
from tests.maintain.fixtures import either, store
from tests.maintain.stores import ME, age, collect, commit, fork, prune, random_bytes, stored, tree
from tests.version.working_volume import ReadingVolume

__all__ = ["either", "store"]

SECRET = b"the password is hunter2, and nobody may know\n" * 40
"""Compressed in the store."""
OTHER = random_bytes(1)


def decoded(store: ObjectStore) -> bytes:
    """Every blob of every pack, opened and decompressed, and every other object as it is read."""
    sealing = sealing_of(store)
    found = []
    for info in store.list(""):
        pack, data = keys.parse_pack(info.key), store.get(info.key)
        if pack is None:
            found.append(data)
            continue
        blobs = sealing.pack(pack)
        for entry in parse_pack(data, what=info.key, blobs=blobs)[1]:
            stored = memoryview(data)[entry.offset : entry.offset + entry.stored_length]
            plain = blobs.open(stored, entry.offset, entry.codec, entry.raw_length, what=info.key)
            found.append(
                codec.decompress(plain, entry.codec, entry.raw_length, entry.hash, info.key, name=sealing.name)
            )
    return b"\n".join(found)


def plan(store: ObjectStore, home: Path, target: Target) -> PurgePlan:
    return Planner(store, home / "purger").plan(target)


def purge(store: ObjectStore, home: Path, target: Target) -> PurgeOutcome:
    found = plan(store, home, target)
    return Purge(store, home / "purger", ME, wait_s=0).apply(found)


def read(store: ObjectStore, version: VersionId, home: Path, path: bytes) -> bytes:
    with ReadingVolume(store, version, home / f"one-{clock.random_bytes(8).hex()}") as reader:
        return reader.read(path)


def test_a_path_is_gone_from_every_version_and_all_else_reads(either: ObjectStore, tmp_path: Path) -> None:
    first = commit(either, "v", tmp_path, {b"secret": SECRET, b"a": OTHER, b"b": b"few"})
    second = commit(either, "v", tmp_path, {b"secret": None, b"c": random_bytes(2)})
    fork(either, "v", "w", first)
    third = commit(either, "w", tmp_path, {b"d": random_bytes(3)})
    other = commit(either, "x", tmp_path, {b"copy": SECRET, b"e": random_bytes(4)})
    assert SECRET in decoded(either)
    found = plan(either, tmp_path, Target("v", path=b"secret"))
    assert {loss.version for loss in found.losses} == {first, third, other}
    assert {loss.version: loss.paths for loss in found.losses}[other] == (b"copy",)
    assert all(loss.kept_by for loss in found.losses)
    outcome = purge(either, tmp_path, Target("v", path=b"secret"))
    assert outcome.is_done
    assert SECRET not in decoded(either)
    assert tree(either, second, tmp_path) == {b"a": OTHER, b"b": b"few", b"c": random_bytes(2)}
    for version, path in [(first, b"secret"), (third, b"secret"), (other, b"copy")]:
        with pytest.raises(PurgedError):
            read(either, version, tmp_path, path)
    assert read(either, first, tmp_path, b"a") == OTHER
    assert read(either, first, tmp_path, b"b") == b"few"
    assert read(either, third, tmp_path, b"d") == random_bytes(3)
    assert read(either, other, tmp_path, b"e") == random_bytes(4)


def test_a_whole_version_loses_its_names_too(either: ObjectStore, tmp_path: Path) -> None:
    first = commit(either, "v", tmp_path, {b"a": OTHER, b"b": b"few"})
    second = commit(either, "v", tmp_path, {b"a-name-to-forget": SECRET})
    third = commit(either, "v", tmp_path, {b"a-name-to-forget": None, b"c": b"more"})
    assert b"a-name-to-forget" in decoded(either)
    assert purge(either, tmp_path, Target("v", second)).is_done
    left = decoded(either)
    assert SECRET not in left
    assert b"a-name-to-forget" not in left
    with pytest.raises(PurgedError):
        tree(either, second, tmp_path)
    for version, paths in [(first, [b"a", b"b"]), (third, [b"a", b"b"])]:
        for path in paths:  # all of what it shows is shared with the version that went
            with pytest.raises(PurgedError):
                read(either, version, tmp_path, path)
    assert read(either, third, tmp_path, b"c") == b"more"


def test_a_whole_volume_gives_its_room_back(either: ObjectStore, tmp_path: Path) -> None:
    for seed in range(3):
        commit(either, "v", tmp_path, {b"f": random_bytes(seed, 300_000)})
    kept = commit(either, "w", tmp_path, {b"own": OTHER})
    prune(either, "v", 2)
    before = sum(stored(either).values())
    outcome = purge(either, tmp_path, Target("v"))
    assert outcome.is_done
    assert sum(stored(either).values()) < before - 900_000
    assert tree(either, kept, tmp_path) == {b"own": OTHER}
    age(tmp_path)
    collect(either, tmp_path)
    assert tree(either, kept, tmp_path) == {b"own": OTHER}
    again = plan(either, tmp_path, Target("v"))
    assert again.is_empty


def test_the_same_content_can_be_stored_anew(either: ObjectStore, tmp_path: Path) -> None:
    commit(either, "v", tmp_path, {b"secret": SECRET, b"a": OTHER})
    purge(either, tmp_path, Target("v", path=b"secret"))
    again = commit(either, "w", tmp_path, {b"again": SECRET})
    assert read(either, again, tmp_path, b"again") == SECRET
    age(tmp_path)
    collect(either, tmp_path)
    assert read(either, again, tmp_path, b"again") == SECRET
    purge(either, tmp_path, Target("v", path=b"a"))
    assert read(either, again, tmp_path, b"again") == SECRET
    purge(either, tmp_path, Target("w", path=b"again"))
    assert SECRET not in decoded(either)


def test_what_was_repacked_before_and_is_garbage_goes_too(either: ObjectStore, tmp_path: Path) -> None:
    """The secret lies at a moved place, and a copy of it in a version that was pruned."""
    big = {b"f%d" % n: random_bytes(n + 10, 200_000) for n in range(10)}
    commit(either, "v", tmp_path, {b"secret": SECRET, **big})
    last = commit(either, "v", tmp_path, dict.fromkeys(big))
    prune(either, "v", 2)
    age(tmp_path)
    collect(either, tmp_path)
    assert any(keys.parse_moved(key) for key in stored(either))
    purge(either, tmp_path, Target("v", path=b"secret"))
    assert SECRET not in decoded(either)
    with pytest.raises(PurgedError):
        read(either, last, tmp_path, b"secret")


def test_what_cannot_be_read_stops_it(either: ObjectStore, tmp_path: Path) -> None:
    commit(either, "v", tmp_path, {b"secret": SECRET, b"a": OTHER})
    other = commit(either, "w", tmp_path, {b"b": random_bytes(2)})
    found = plan(either, tmp_path, Target("v", path=b"secret"))
    before = stored(either)
    key = next(iter(found.holdings))
    path = tmp_path / "store" / keys.pack(key)
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[40_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError):
        Purge(either, tmp_path / "purger", ME, wait_s=0).apply(found)
    assert stored(either) == before
    assert not load_purged(either)
    (tmp_path / "store" / keys.version(other)).unlink()
    with pytest.raises(Exception, match="version"):
        plan(either, tmp_path, Target("v", path=b"secret"))


def test_what_a_whole_version_shares_with_others_stays(either: ObjectStore, tmp_path: Path) -> None:
    """Most blocks of its index are theirs, too; the files are empty, so only names can be lost."""
    many: dict[bytes, bytes | None] = {b"f%05d" % n: b"" for n in range(3000)}
    first = commit(either, "v", tmp_path, many)
    second = commit(either, "v", tmp_path, {b"a-name-to-forget": SECRET})
    third = commit(either, "v", tmp_path, {b"a-name-to-forget": None})
    assert purge(either, tmp_path, Target("v", second)).is_done
    assert b"a-name-to-forget" not in decoded(either)
    [record] = load_purged(either).records
    finder = Finder(either, tmp_path / "finder", frozenset())
    for version in (first, third):
        assert tree(either, version, tmp_path) == many
        assert set(finder._index_blobs(open_version(either, version))).isdisjoint(record.hashes), (
            "a copy leaves these out"
        )
    with pytest.raises(PurgedError):
        tree(either, second, tmp_path)
    age(tmp_path)
    collect(either, tmp_path)
    for version in (first, third):
        assert tree(either, version, tmp_path) == many
