"""Read-only mounts: nothing changes, everybody may have one, and the store is all they need."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cowfs.errors import NotFoundError, ReadOnlyError
from tests.mount.daemons import Mount, Place

pytestmark = pytest.mark.mount


@pytest.fixture
def reader(place: Place, mount: Mount) -> Mount:
    (mount.path / "file").write_text("content")
    (mount.path / "dir" / "sub").mkdir(parents=True)
    os.setxattr(mount.path / "file", "user.a", b"b")
    return place.mount("v", version=mount.commit())


CHANGES: dict[str, Callable[[Path], object]] = {
    "create": lambda path: (path / "new").touch(),
    "write": lambda path: (path / "file").open("r+"),
    "append": lambda path: (path / "file").open("a"),
    "truncate": lambda path: os.truncate(path / "file", 1),
    "mkdir": lambda path: (path / "new").mkdir(),
    "rmdir": lambda path: (path / "dir" / "sub").rmdir(),
    "unlink": lambda path: (path / "file").unlink(),
    "rename": lambda path: (path / "file").rename(path / "other"),
    "link": lambda path: os.link(path / "file", path / "other"),
    "symlink": lambda path: os.symlink("x", path / "new"),
    "mknod": lambda path: os.mkfifo(path / "new"),
    "chmod": lambda path: (path / "file").chmod(0o777),
    "chown": lambda path: os.chown(path / "file", 1, 1),
    "utime": lambda path: os.utime(path / "file", ns=(1, 1)),
    "setxattr": lambda path: os.setxattr(path / "file", "user.b", b"c"),
    "removexattr": lambda path: os.removexattr(path / "file", "user.a"),
}


def test_every_change_is_refused_with_erofs(reader: Mount) -> None:
    for name, change in CHANGES.items():
        with pytest.raises(OSError, match="Read-only") as caught:
            change(reader.path)
        assert caught.value.errno == errno.EROFS, name
    assert (reader.path / "file").read_text() == "content"
    assert os.getxattr(reader.path / "file", "user.a") == b"b"
    assert sorted(os.listdir(reader.path)) == ["dir", "file"]


def test_reading_does_not_change_times(reader: Mount) -> None:
    before = os.stat(reader.path / "file")
    (reader.path / "file").read_text()
    os.listdir(reader.path / "dir")
    assert os.stat(reader.path / "file") == before


@pytest.mark.parametrize("op", ["commit", "discard"])
def test_what_only_writers_can_do_is_refused(reader: Mount, op: str) -> None:
    with pytest.raises(ReadOnlyError):
        reader.call(op)
    assert reader.call("ping")


def test_a_reader_beside_the_writer_keeps_its_version(mount: Mount, reader: Mount) -> None:
    (mount.path / "file").write_text("changed")
    mount.commit()
    assert (reader.path / "file").read_text() == "content"


def test_many_readers_of_one_version(place: Place, reader: Mount) -> None:
    others = [place.mount("v", version=reader.spec.version) for _ in range(3)]
    assert [(other.path / "file").read_text() for other in others] == ["content"] * 3


def test_a_reader_needs_no_volume_and_no_lease(place: Place, mount: Mount, reader: Mount) -> None:
    mount.unmount()
    place.store.delete([info.key for info in place.store.list("volumes/")])
    other = place.mount("v", version=reader.spec.version, cache_dir=str(place.root / "c" / "empty"))
    assert (other.path / "file").read_text() == "content"


def test_a_read_only_store_is_enough(place: Place, mount: Mount, reader: Mount) -> None:
    keys = sorted(info.key for info in place.store.list(""))
    other = place.mount("v", version=reader.spec.version)
    (other.path / "file").read_text()
    other.unmount()
    after = sorted(info.key for info in place.store.list(""))
    assert [key for key in after if key not in keys] == []


def test_a_version_that_does_not_exist(place: Place) -> None:
    with pytest.raises(NotFoundError):
        place.mount("v", version="ab" * 32)
