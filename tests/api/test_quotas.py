"""A volume grows no further than its quota, whichever way one writes to it, and never loses what it
has."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from cowfs.api import stores
from cowfs.blocking import Declared, RWVolume, Store, Volume
from cowfs.control import live_mount
from cowfs.errors import CorruptError, InvalidInputError, NoSpaceError, NotFoundError
from cowfs.integrations.fsspec import CowfsFileSystem
from cowfs.machine.registry import MountEntry
from cowfs.version.publish import seen

KIB = 1024


@pytest.fixture
def volume(place: Path) -> RWVolume:
    """10 KiB of at most 16."""
    made = Volume.new("v")
    made.files.write("/kept", bytes(10 * KIB))
    made.finalize("first")
    Store().set_quota("v", "16K")
    return Volume.new("v", exist_ok=True)


def refused(error: pytest.ExceptionInfo[OSError]) -> bool:
    return error.value.errno == errno.EDQUOT


@pytest.mark.mount
@pytest.mark.parametrize("fast_lane", [True, False])
def test_a_mount_refuses_what_is_too_much(volume: RWVolume, fast_lane: bool) -> None:
    path = volume.mount(fast_lane=fast_lane)
    found = os.statvfs(path)
    assert (found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize) == (16 * KIB, 4 * KIB)
    with pytest.raises(OSError, match="quota") as error:
        (path / "more").write_bytes(bytes(8 * KIB))
    assert refused(error)
    with pytest.raises(OSError, match="quota"), (path / "kept").open("r+b") as file:
        file.truncate(17 * KIB)
    (path / "more").write_bytes(bytes(6 * KIB))
    (path / "kept").write_bytes(bytes(9 * KIB))
    (path / "kept").rename(path / "moved")
    volume.commit("full")
    (path / "more").unlink()
    (path / "other").write_bytes(bytes(7 * KIB))
    volume.finalize()
    assert Store().quota("v") == 16 * KIB


@pytest.mark.mount
@pytest.mark.parametrize("fast_lane", [True, False])
def test_of_a_huge_sparse_file_as_much_counts_as_in_a_version(volume: RWVolume, fast_lane: bool) -> None:
    Store().set_quota("v", None)
    path = volume.mount(fast_lane=fast_lane)

    def used() -> int:
        found = os.statvfs(path)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    counted = [used()]
    with (path / "sparse").open("wb") as file:
        for tib in (4, 16, 9):
            file.truncate(tib << 40)
            counted.append(used())
    volume.commit()
    volume.unmount()
    volume.mount(path, fast_lane=fast_lane)
    counted.append(used())
    os.truncate(path / "sparse", 12 << 40)
    counted.append(used())
    (path / "sparse").unlink()
    counted.append(used())
    volume.discard()
    kept = counted[0]
    assert counted == [kept, kept + (4 << 40), *[kept + (8 << 40)] * 4, kept]


def test_files_without_a_mount_refuse_it_too(volume: RWVolume) -> None:
    with pytest.raises(OSError, match="quota") as error:
        volume.files.write("/more", bytes(7 * KIB))
    assert refused(error)
    volume.files.write("/less", bytes(6 * KIB))
    assert volume.commit("fits").files.read("/less") == bytes(6 * KIB)


def test_no_version_is_published_that_is_too_large(volume: RWVolume, place: Path) -> None:
    source = place / "source"
    source.mkdir()
    (source / "more").write_bytes(os.urandom(7 * KIB))
    with pytest.raises(NoSpaceError, match=r"may have 16\.0 KiB of files, and would have 17\.0 KiB"):
        volume.files.upload(source)
    volume.fork("w").files.upload(source)
    with pytest.raises(NoSpaceError):
        Store().merge("v", [Volume.version("w")])
    Store().set_quota("v", 17 * KIB)
    volume.files.upload(source)


def test_nothing_is_published_through_fsspec_that_is_too_large(volume: RWVolume) -> None:
    fs = CowfsFileSystem(skip_instance_cache=True)
    with pytest.raises(NoSpaceError, match=r"may have 16\.0 KiB of files, and would have 17\.0 KiB"):
        fs.pipe("v/more", bytes(7 * KIB))
    with pytest.raises(NoSpaceError):
        fs.pipe({f"v/{number}": bytes(3 * KIB) for number in range(3)})
    with pytest.raises(NoSpaceError):
        fs.cp("v/kept", "v/copied")
    assert fs.find("v") == ["v/kept"]
    with fs.transaction:  # only what it is in the end counts
        fs.pipe("v/more", bytes(12 * KIB))
        fs.rm("v/kept")
    Store().set_quota("v", "1K")
    fs.pipe("v/more", bytes(11 * KIB))
    assert [fs.info(path)["size"] for path in fs.find("v")] == [11 * KIB]


@pytest.mark.mount
def test_a_scratch_that_writes_to_a_volume_goes_by_its_quota(
    volume: RWVolume, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The volume has none when it is made."""
    adopt = live_mount.adopt

    def adopt_later(entry: MountEntry, name: str) -> None:
        Store().set_quota(name, quota)
        adopt(entry, name)

    monkeypatch.setattr(live_mount, "adopt", adopt_later)
    version = Volume.version("v")
    path = version.mount(place / "scratch", scratch=True)
    (path / "more").write_bytes(bytes(7 * KIB))
    quota = "16K"
    with pytest.raises(NoSpaceError, match="may have"):
        version.commit_scratch("first", name="w")
    quota = "20K"
    assert version.commit_scratch("second", name="x").stats.bytes == 17 * KIB
    with pytest.raises(OSError, match="quota"):
        (path / "again").write_bytes(bytes(7 * KIB))
    version.unmount()


@pytest.mark.mount
def test_a_mount_is_rolled_back_to_what_fits_though_both_do_not(volume: RWVolume) -> None:
    first = Volume.version("v")
    path = volume.mount()
    (path / "kept").write_bytes(b"y" * 10 * KIB)
    (path / "more").write_bytes(b"y" * 5 * KIB)
    second = volume.commit("full")
    Store().rollback("v", first)
    assert (path / "kept").read_bytes() == bytes(10 * KIB)
    assert not (path / "more").exists()
    (path / "other").write_bytes(bytes(5 * KIB))
    with pytest.raises(OSError, match="quota"):
        (path / "beyond").write_bytes(bytes(2 * KIB))
    with pytest.raises(NoSpaceError, match="may have"):
        Store().restore("v", Volume.version(f"v@{second.id}:/more"))
    assert sorted(each.name for each in path.iterdir()) == ["beyond", "kept", "other"]


@pytest.mark.mount
def test_a_program_at_the_limit_takes_no_room_from_a_restore(volume: RWVolume) -> None:
    """It writes all the time, and the folder needs its room twice meanwhile."""
    limit = 400 * KIB
    Store().set_quota("v", limit)
    path = volume.mount()
    (path / "folder").mkdir()
    for _ in range(2):
        for number in range(100):
            (path / "folder" / str(number)).write_bytes(os.urandom(2 * KIB))
        volume.commit()
    first = volume.history()[1]
    ends, refused = threading.Event(), threading.Event()

    def append() -> None:
        with (path / "log").open("ab", buffering=0) as file:
            while not ends.is_set():
                try:
                    file.write(bytes(KIB))
                except OSError as error:
                    assert error.errno == errno.EDQUOT
                    refused.set()

    writer = threading.Thread(target=append)
    writer.start()
    try:
        assert refused.wait(60)
        Store().restore("v", Volume.version(f"v@{first.id}:/folder"))
    finally:
        ends.set()
        writer.join()
    assert [(path / "folder" / str(n)).read_bytes() for n in (0, 99)] == [
        first.files.read(f"folder/{n}") for n in (0, 99)
    ]
    version = volume.commit()
    assert version.stats.bytes == (path / "log").stat().st_size + 210 * KIB <= limit


def test_a_push_is_refused_that_is_too_large(volume: RWVolume, place: Path) -> None:
    Store().push("v", place / "mirror")
    Store(place / "mirror").set_quota("v", "12K")
    volume.files.write("/more", bytes(5 * KIB))
    volume.commit("15 KiB")
    with pytest.raises(NoSpaceError, match="may have"):
        Store().push("v", place / "mirror")


def test_what_is_there_stays_when_the_quota_is_lowered(volume: RWVolume) -> None:
    Store().set_quota("v", 1)
    volume.files.chmod("/kept", 0o600)
    volume.commit("as large")
    with pytest.raises(OSError, match="quota"):
        volume.files.write("/more", b"xx")
    volume.finalize()
    Store().set_quota("v", None)
    assert Store().quota("v") is None
    again = Volume.new("v", exist_ok=True)
    again.files.write("/more", b"xx")
    again.finalize("more")


def test_who_opens_a_volume_asks_for_a_quota_only_where_there_may_be_one(volume: RWVolume) -> None:
    Volume.new("plain").commit("first")
    objects = stores.open_store(None).objects
    for name, quota_bytes in (("v", 16 * KIB), ("plain", 0)):
        head = seen.read_seen(objects, name, seen.list_objects(objects, name))
        assert head.seen is not None
        assert head.seen.settings is not None
        assert head.seen.settings.quota_bytes == quota_bytes


def test_a_volume_without_a_record_gets_two(volume: RWVolume, place: Path) -> None:
    """Nobody reads the first one for a quota."""
    meta = place / "store" / "volumes" / "v" / "meta"
    for record in meta.iterdir():
        record.unlink()
    Store().set_quota("v", "8K")
    objects = stores.open_store(None).objects
    head = seen.read_seen(objects, "v", seen.list_objects(objects, "v"))
    assert head.seen is not None
    assert head.seen.settings is not None
    assert head.seen.settings.quota_bytes == 8 * KIB


def test_a_damaged_record_keeps_nobody_from_his_files(volume: RWVolume, place: Path) -> None:
    newest = min((place / "store" / "volumes" / "v" / "meta").iterdir())
    newest.write_bytes(newest.read_bytes()[:-20])
    objects = stores.open_store(None).objects
    head = seen.read_seen(objects, "v", seen.list_objects(objects, "v"))
    assert head.seen is not None
    assert head.seen.settings is not None
    assert head.seen.settings.quota_bytes == 0
    volume.files.write("/more", bytes(7 * KIB))
    assert volume.commit("all the same").files.exists("/more")
    with pytest.raises(CorruptError):
        Store().quota("v")


def test_the_record_after_a_damaged_one_does_not_compress(volume: RWVolume, place: Path) -> None:
    """The damaged one may have said so."""
    newest = min((place / "store" / "volumes" / "v" / "meta").iterdir())
    newest.write_bytes(newest.read_bytes()[:-20])
    Store().set_quota("v", "8K")
    assert [(each.quota_bytes, each.is_compressed) for each in Store().volumes()] == [(8 * KIB, False)]


@pytest.mark.parametrize("size", ["much", 0, -1, True, "0", 1 << 63])
def test_what_is_no_size_is_refused(volume: RWVolume, size: int | str) -> None:
    with pytest.raises(InvalidInputError, match="is no quota"):
        Store().set_quota("v", size)
    assert Store().quota("v") == 16 * KIB


def test_a_volume_that_is_not_there_has_none(place: Path) -> None:
    Volume.new("v").commit("first")
    with pytest.raises(NotFoundError):
        Store().quota("x")
    with pytest.raises(NotFoundError):
        Store().set_quota("x", 1)


def test_a_declared_size_of_nothing_is_refused_with_its_line(place: Path) -> None:
    file = place / "cowfs.toml"
    for size in ("0", '"0GB"'):
        file.write_text(f'volumes = [\n  {{name = "v", path = "/v", read_only = false, size = {size}}},\n]\n')
        with pytest.raises(InvalidInputError, match=r"cowfs\.toml: .*leaves no room"):
            Declared.load(file)


def test_a_declared_size_is_the_quota(place: Path) -> None:
    file = place / "cowfs.toml"

    def apply(size: str) -> None:
        file.write_text(f'volumes = [{{name = "v", path = "/v", read_only = false{size}}}]\n')
        plan = Declared.load(file).plan(mounts=False)
        plan.apply()
        assert not Declared.load(file).plan(mounts=False).has_changes

    for said, quota_bytes in ((', size = "1KiB"', KIB), (', size = "2KiB"', 2 * KIB), ("", None)):
        apply(said)
        assert Store().quota("v") == quota_bytes
        if quota_bytes is not None:
            Store().set_quota("v", "8KiB")
            (step,) = Declared.load(file).plan(mounts=False).steps
            assert step.reason == f"quota {8 * KIB} → {quota_bytes}", "somebody has changed it by hand"
            apply(said)
            assert Store().quota("v") == quota_bytes
    Volume.new("v", exist_ok=True).commit("something to read")
    file.write_text(file.read_text().replace("false", 'true, size = "1KiB"'))
    Declared.load(file).plan(mounts=False).apply()
    assert Store().quota("v") is None
    apply(', size = "1KiB"')
    assert Store().quota("v") == KIB
    newest = min((place / "store" / "volumes" / "v" / "meta").iterdir())
    newest.write_bytes(newest.read_bytes()[:-20])
    assert not Declared.load(file).plan(mounts=False).has_changes, "a damaged record keeps nobody from the rest"
