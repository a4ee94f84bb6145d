"""Writers that go on while a purge runs lose nothing: what they have found, uploaded or kept is
stored anew or still there."""

from __future__ import annotations

from collections.abc import Callable, Set
from pathlib import Path

import pytest

from cowfs.base.ids import VersionId
from cowfs.errors import InvalidStateError, PurgedError
from cowfs.format import keys
from cowfs.maintain.purge.purging import Purge, PurgeOutcome
from cowfs.maintain.purge.target import Target
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader, load_purged
from cowfs.version.names.volumes import find_head
from tests.maintain.fixtures import either, store
from tests.maintain.stores import ME, age, collect, commit, random_bytes, stored
from tests.maintain.test_purging import decoded, plan, read
from tests.version.working_volume import ReadingVolume, WorkingVolume

__all__ = ["either", "store"]

SECRET = random_bytes(77, 400_000)
OTHER = random_bytes(78, 400_000)
OWN = random_bytes(79, 400_000)


def purge(
    store: ObjectStore, home: Path, ask: Callable[[Set[str]], bool] = lambda volumes: False, wait_s: float = 0.0
) -> PurgeOutcome:
    found = plan(store, home, Target("v", path=b"secret"))
    return Purge(store, home / "purger", ME, wait_s=wait_s, ask=ask).apply(found)


def upload(working: WorkingVolume, files: dict[bytes, bytes]) -> None:
    """They are stored, or found in the store, and in no version yet."""
    for path, data in files.items():
        working.write(path, data)
    working.publisher.chunks._known.wait_loaded(1 << 40)
    assert working.committer.upload_quiet(idle_s=0) == sum(map(len, files.values()))
    chunks = working.publisher.chunks
    chunks._claim(chunks._uploader.flush())


def require_gone(store: ObjectStore, first: VersionId, home: Path) -> None:
    with pytest.raises(PurgedError):
        read(store, first, home, b"secret")
    assert read(store, first, home, b"other") == OTHER


def test_what_was_just_found_is_stored_anew(either: ObjectStore, tmp_path: Path) -> None:
    first = commit(either, "v", tmp_path, {b"secret": SECRET, b"other": OTHER})
    with WorkingVolume(either, "w", tmp_path / "w") as working:
        upload(working, {b"again": SECRET, b"too": OTHER})
        asked: list[Set[str]] = []

        def acknowledge(volumes: Set[str]) -> bool:
            asked.append(volumes)
            working.publisher.acknowledge()
            return True

        assert purge(either, tmp_path, acknowledge, wait_s=30).is_done
        assert asked == [{"w"}]
        assert SECRET not in decoded(either)
        version = working.commit().version_id
        assert version is not None
    require_gone(either, first, tmp_path)
    for _ in range(2):
        assert read(either, version, tmp_path, b"again") == SECRET
        assert read(either, version, tmp_path, b"too") == OTHER
        age(tmp_path)
        collect(either, tmp_path)


def test_it_waits_for_a_writer_and_a_collection_goes_on(either: ObjectStore, tmp_path: Path) -> None:
    first = commit(either, "v", tmp_path, {b"secret": SECRET, b"other": OTHER})
    with WorkingVolume(either, "w", tmp_path / "w") as working:
        upload(working, {b"again": SECRET})
        outcome = purge(either, tmp_path)
        assert [pin.record.volume for pin in outcome.waits_for] == ["w"]
        assert not outcome.is_done
        assert SECRET in decoded(either)
        version = working.commit().version_id
        assert version is not None
        working.publisher.acknowledge()
        collect(either, tmp_path)
        assert load_purged(either).packs.isdisjoint(map(keys.parse_pack, stored(either)))
    require_gone(either, first, tmp_path)
    assert read(either, version, tmp_path, b"again") == SECRET


def test_a_commit_while_it_waits_is_whole(either: ObjectStore, tmp_path: Path) -> None:
    """The head comes after the list, and before it was acknowledged."""
    first = commit(either, "v", tmp_path, {b"secret": SECRET, b"other": OTHER})
    with WorkingVolume(either, "w", tmp_path / "w") as working:
        upload(working, {b"again": SECRET, b"own": OWN})
        made: list[VersionId | None] = []

        def commit_and_acknowledge(volumes: Set[str]) -> bool:
            working.write(b"more", OTHER)
            made.append(working.commit().version_id)
            working.publisher.acknowledge()
            return True

        outcome = purge(either, tmp_path, commit_and_acknowledge, wait_s=30)
        assert (outcome.is_done, outcome.stored_again) == (False, 1), "the writer's own copy"
    require_gone(either, first, tmp_path)
    assert made[0] is not None
    for path, data in [(b"again", SECRET), (b"own", OWN), (b"more", OTHER)]:
        assert read(either, made[0], tmp_path, path) == data


def test_what_was_uploaded_is_not_lost_with_the_pack(either: ObjectStore, tmp_path: Path) -> None:
    """The writer's own upload holds the secret, because the version that has it came later."""
    with WorkingVolume(either, "w", tmp_path / "w") as working:
        upload(working, {b"again": SECRET, b"own": OWN})
        first = commit(either, "v", tmp_path, {b"secret": SECRET, b"other": OTHER})

        def acknowledge(_: Set[str]) -> bool:
            working.publisher.acknowledge()
            return True

        assert purge(either, tmp_path, acknowledge, wait_s=30).is_done
        assert SECRET not in decoded(either)
        version = working.commit().version_id
        assert version is not None
    require_gone(either, first, tmp_path)
    assert read(either, version, tmp_path, b"own") == OWN
    assert read(either, version, tmp_path, b"again") == SECRET


def test_kept_work_keeps_the_rest_of_what_it_uploaded(either: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(either, "w", tmp_path / "w") as working:
        upload(working, {b"again": SECRET, b"own": OWN})
        [pack] = working.publisher.chunks.list_uploaded_packs()
        first = commit(either, "v", tmp_path, {b"secret": SECRET, b"other": OTHER})
        working.publisher.hold()
    before = len(PackReader(either).directory(pack))
    assert purge(either, tmp_path).is_done
    for _ in range(2):
        left = decoded(either)
        assert SECRET not in left
        assert OWN[:1000] in left
        assert 0 < len(PackReader(either).directory(pack)) < before
        age(tmp_path)
        collect(either, tmp_path)
    require_gone(either, first, tmp_path)


def test_a_writer_goes_on_with_a_file_that_was_purged(either: ObjectStore, tmp_path: Path) -> None:
    first = commit(either, "v", tmp_path, {b"secret": SECRET, b"other": OTHER})
    with WorkingVolume(either, "v", tmp_path / "w") as working:
        working.write(b"new", OWN)

        def acknowledge(_: Set[str]) -> bool:
            working.publisher.acknowledge()
            return True

        assert purge(either, tmp_path, acknowledge, wait_s=30).is_done
        second = working.commit().version_id
        assert second is not None
        with pytest.raises(PurgedError):
            working.read(b"secret")
        working.write(b"secret", b"not any more")
        third = working.commit().version_id
        assert third is not None
    require_gone(either, first, tmp_path)
    assert read(either, second, tmp_path, b"new") == OWN
    with pytest.raises(PurgedError):
        read(either, second, tmp_path, b"secret")
    assert read(either, third, tmp_path, b"secret") == b"not any more"


def test_what_was_written_over_itself_is_stored_anew(either: ObjectStore, tmp_path: Path) -> None:
    """The new bytes of the file equal those of its base, which it then named again."""
    first = commit(either, "v", tmp_path, {b"secret": SECRET, b"other": OTHER})
    with WorkingVolume(either, "v", tmp_path / "w") as working:
        assert working.read(b"secret") == SECRET
        upload(working, {b"secret": SECRET})

        def acknowledge(_: Set[str]) -> bool:
            working.publisher.acknowledge()
            return True

        assert purge(either, tmp_path, acknowledge, wait_s=30).is_done
        version = working.commit().version_id
        assert version is not None
    require_gone(either, first, tmp_path)
    assert read(either, version, tmp_path, b"secret") == SECRET


@pytest.mark.parametrize("is_written", [False, True])
def test_a_file_that_was_purged_in_part_can_be_committed(
    either: ObjectStore, tmp_path: Path, *, is_written: bool
) -> None:
    """It keeps the chunks that were not overwritten, purged ones included."""
    commit(either, "v", tmp_path, {b"secret": SECRET, b"big": OWN * 10 + SECRET})
    with WorkingVolume(either, "v", tmp_path / "w") as working:
        if is_written:
            working.write(b"big", OTHER, 0)

        def acknowledge(_: Set[str]) -> bool:
            working.publisher.acknowledge()
            return True

        assert purge(either, tmp_path, acknowledge, wait_s=30).is_done
        if not is_written:
            working.write(b"big", OTHER, 0)
        version = working.commit().version_id
        assert version is not None
    with ReadingVolume(either, version, tmp_path / "r") as reader:
        assert reader.files.read(b"big", 0, 400_000) == OTHER


def test_nothing_is_published_on_what_was_purged_as_a_whole(either: ObjectStore, tmp_path: Path) -> None:
    """The writer opened the version before, or from a cache: its own would be unreadable."""
    first = commit(either, "v", tmp_path, {b"secret": SECRET, b"other": OTHER})
    with WorkingVolume(either, "v", tmp_path / "w") as working:
        working.write(b"new", OWN)
        found = plan(either, tmp_path, Target("v"))
        with pytest.raises(InvalidStateError, match="uncommitted work"):
            Purge(either, tmp_path / "purger", ME, wait_s=0).apply(found)

        def acknowledge(_: Set[str]) -> bool:
            working.publisher.acknowledge()
            return True

        Purge(either, tmp_path / "purger", ME, wait_s=30, ask=acknowledge).apply(found, lose_work=True)
        for _ in range(2):
            with pytest.raises(PurgedError, match="as a whole"):
                working.commit()
        assert working.read(b"new") == OWN
        head = find_head(either, "v")
        assert head is not None
        assert head.version == first


def test_what_a_writer_stores_again_meanwhile_is_found(either: ObjectStore, tmp_path: Path) -> None:
    """Its bytes are its own, so they are not purged; but then the purge is not done."""
    commit(either, "v", tmp_path, {b"secret": SECRET, b"other": OTHER})
    with WorkingVolume(either, "w", tmp_path / "w") as working:
        upload(working, {b"again": SECRET})

        def acknowledge(_: Set[str]) -> bool:
            working.publisher.acknowledge()
            working.commit()
            working.publisher.acknowledge()
            return True

        outcome = purge(either, tmp_path, acknowledge, wait_s=30)
        assert (outcome.is_done, outcome.stored_again > 0) == (False, True)
        assert SECRET in decoded(either)
        assert plan(either, tmp_path, Target("v", path=b"secret")).losses
        again = purge(either, tmp_path, acknowledge, wait_s=30)
        assert (again.is_done, again.stored_again) == (True, 0)
        assert SECRET not in decoded(either)
