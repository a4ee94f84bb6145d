"""Work that is in no version, asked for through a mount's control socket; by both servers."""

from __future__ import annotations

import mmap
import os
import signal

import pytest

from cowfs.errors import UnavailableError
from tests.mount.daemons import WAIT_S, Mount, Place

pytestmark = pytest.mark.mount


@pytest.fixture(params=[True, False], ids=["lane", "pyfuse"])
def mount(place: Place, request: pytest.FixtureRequest) -> Mount:
    return place.mount("v", fast_lane=request.param)


def test_work_is_compared_with_versions_while_it_goes_on(mount: Mount) -> None:
    def told(**wanted: object) -> list[tuple[str, str]]:
        return [(each["kind"], each["path"]) for each in mount.call("compare", **wanted)["changes"]]

    (mount.path / "f").write_bytes(b"x" * 8192)
    assert told() == [("added", "/f")], "before the first version"
    first = mount.commit()
    assert told() == []
    with (mount.path / "f").open("r+b") as file, mmap.mmap(file.fileno(), 0) as stored:
        stored[0] = 1
        (mount.path / "d").mkdir()
        (mount.path / "d/g").write_text("g")
        assert told() == [("added", "/d"), ("added", "/d/g"), ("changed", "/f")], (
            "what is stored through a mapping, too"
        )
        assert told(path="d/g") == [("added", "/d/g")]
        mount.commit()
        assert told() == []
        assert len(told(version=first)) == 3
    for number in range(3000):
        (mount.path / "d" / f"{'long' * 50}{number}").touch()
    assert len(told(version=first)) == 3003, "more than a line holds"
    assert len(os.listdir(mount.path / "d")) == 3001


def test_what_is_restored_is_there_at_once_and_open_files_stay(mount: Mount) -> None:
    def restored(path: str = "") -> list[tuple[str, str]]:
        done = mount.call("restore", version=first, path=path, to=path)
        return [(each["kind"], each["path"]) for each in done["paths"]]

    root = mount.path
    (root / "d").mkdir()
    (root / "d/f").write_text("one")
    (root / "gone").write_text("was there")
    os.utime(root / "d/f", ns=(1, 2))
    first = mount.commit()
    (root / "gone").unlink()
    assert not (root / "gone").exists(), "and the kernel knows it"
    (root / "d/f").write_text("not committed")
    (root / "d/new").mkdir()
    (root / "d/new/g").touch()
    (root / "x").symlink_to("d")
    listed = sorted(os.listdir(root / "d"))
    assert listed == ["f", "new"]
    with (root / "d/f").open("r+") as opened:
        os.fstat(opened.fileno())
        assert restored("gone") == [("added", "/gone")]
        assert (root / "gone").read_text() == "was there"
        assert (root / "x").is_symlink(), "the rest stays"
        assert sorted(restored()) == [
            ("changed", "/d/f"),
            ("removed", "/d/new"),
            ("removed", "/d/new/g"),
            ("removed", "/x"),
        ]
        assert sorted(os.listdir(root)) == ["d", "gone"]
        assert os.listdir(root / "d") == ["f"]
        assert not (root / "x").is_symlink()
        assert not (root / "d/new/g").exists()
        assert ((root / "d/f").read_text(), (root / "d/f").stat().st_mtime_ns) == ("one", 2)
        assert opened.read() == "not committed"
        assert os.fstat(opened.fileno()).st_nlink == 0
        opened.write(", and of nobody any more")
        opened.flush()
    assert mount.call("compare")["changes"] == []
    assert restored() == []
    (root / "d/f").write_text("goes on")
    mount.kill()


def test_what_was_restored_survives_the_daemon(place: Place, mount: Mount) -> None:
    (mount.path / "f").write_bytes(os.urandom(300_000))
    data = (mount.path / "f").read_bytes()
    first = mount.commit()
    (mount.path / "f").unlink()
    mount.commit()
    mount.call("restore", version=first, path="f", to="again")
    mount.kill()
    again = place.mount("v")
    assert (again.path / "again").read_bytes() == data
    stored = again.unmount(commit=True)
    assert stored["stats"]["added_bytes"] == 0, "the store had all of it"


def test_a_daemon_that_is_killed_in_a_restore_leaves_the_volume_as_it_was(place: Place) -> None:
    mount = place.start(place.spec(), environment={"COWFS_FAILPOINT": "restore-made"})
    own = ".cowfs-restore-0123abcd"
    (mount.path / own).mkdir()
    (mount.path / own / "mine").write_text("mine")
    (mount.path / "f").write_text("first")
    first = mount.commit()
    (mount.path / "f").write_text("second")
    with pytest.raises(UnavailableError):
        mount.call("restore", version=first, path="", to="")
    assert mount.process.wait(WAIT_S) == -signal.SIGKILL
    again = place.mount("v", mount_path=str(mount.path))
    assert sorted(os.listdir(again.path)) == [own, "f"]
    assert (again.path / own / "mine").read_text() == "mine"
    assert (again.path / "f").read_text() == "second"
    assert "removed /.cowfs-restore-" in again.log()
    again.unmount(commit=True)
