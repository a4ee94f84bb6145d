"""Opening beneath a root: no link is followed, no pipe waited for, nothing read past its limit."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from cowfs.base.beneath import DIRECTORY, READ, Root, UnexpectedEntry, rename_new

pytestmark = pytest.mark.quick


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "canary").write_text("canary")
    root = tmp_path / "root"
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "f").write_text("content")
    (root / "link").symlink_to("../outside")
    (root / "d" / "link").symlink_to("f")
    (root / "d" / "loop").symlink_to("loop")
    os.mkfifo(root / "d" / "pipe")
    return root


@pytest.mark.parametrize(
    "call",
    [
        lambda root, path: os.close(root.open_fd(path, READ)),
        lambda root, path: os.close(root.open_file(path)),
        lambda root, path: root.read(path, limit_bytes=10),
        lambda root, path: os.close(root.open_fd(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)),
    ],
)
def test_links_are_refused_wherever_they_stand(place: Path, call: Callable[[Root, str], object]) -> None:
    with Root.open(place) as root:
        for path in ("link", "link/canary", "d/link", "d/loop", "d/loop/x"):
            with pytest.raises(OSError, match="symbolic") as refused:
                call(root, path)
            assert (refused.value.errno, refused.value.filename) == (errno.ELOOP, os.fsencode(place / path))
        with pytest.raises(OSError, match="cross-device") as refused:
            call(root, "../outside/canary")
        assert refused.value.errno == errno.EXDEV
    assert (place.parent / "outside" / "canary").read_text() == "canary"


def test_what_is_behind_a_link_is_neither_removed_nor_made(place: Path) -> None:
    with Root.open(place) as root:
        for change in (lambda: root.unlink("link/canary"), lambda: root.make_directory("link/new", 0o777, exact=True)):
            with pytest.raises(OSError, match="symbolic"):
                change()
        with pytest.raises(UnexpectedEntry):
            root.make_directory("d/link")
        root.unlink("d/link")
        assert not root.exists("d/link")
        assert stat.S_ISLNK(root.stat("link").st_mode)
    assert os.listdir(place.parent / "outside") == ["canary"]


def test_the_root_may_be_a_link_and_is_resolved_once(place: Path) -> None:
    named = place.with_name("named")
    named.symlink_to(place)
    with Root.open(named) as root:
        named.unlink()
        named.symlink_to(place.parent / "outside")
        assert root.read("d/f", limit_bytes=7) == b"content"


def test_only_regular_files_are_read_and_only_to_their_limit(place: Path) -> None:
    with Root.open(place) as root:
        for path, number in (("d/pipe", errno.EINVAL), ("d", errno.EISDIR)):
            with pytest.raises(UnexpectedEntry) as refused:
                root.open_file(path)
            assert refused.value.errno == number
        with pytest.raises(UnexpectedEntry) as refused:
            root.read("d/f", limit_bytes=6)
        assert refused.value.errno == errno.EFBIG
        with open(place / "huge", "wb") as file:
            file.truncate(30 << 30)
        with pytest.raises(UnexpectedEntry):
            root.read("huge", limit_bytes=1 << 20)


def test_an_exact_mode_ignores_the_umask_and_an_existing_directory_keeps_its_own(place: Path) -> None:
    with Root.open(place) as root:
        before = os.umask(0o077)
        try:
            assert root.make_directory("new", 0o2775, exact=True)
        finally:
            os.umask(before)
        assert not root.make_directory("d", 0o777, exact=True)
        assert stat.S_IMODE(root.stat("new").st_mode) == 0o2775
        assert stat.S_IMODE(root.stat("d").st_mode) != 0o777
        with root.directory("new") as fd:
            assert os.listdir(fd) == []
        os.close(root.open_fd("d/e", DIRECTORY))


def test_a_private_directory_is_the_one_that_was_made(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = os.mkdir
    with Root.open(place) as root:
        with root.make_private("private") as private:
            assert stat.S_IMODE(os.fstat(private.fileno()).st_mode) == 0o700
        with pytest.raises(FileExistsError):
            root.make_private("private")

        def replaced(name: bytes, mode: int, *, dir_fd: int) -> None:
            mkdir(name, mode, dir_fd=dir_fd)
            os.rename(name, b"elsewhere", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
            os.symlink(place / "d", name, dir_fd=dir_fd)

        monkeypatch.setattr(os, "mkdir", replaced)
        with pytest.raises(OSError, match="symbolic links"):
            root.make_private("other")


def test_a_new_name_replaces_nothing(place: Path) -> None:
    for name in ("one", "two"):
        (place / name).write_text(name)
    with Root.open(place) as root:
        at = {"src_dir_fd": root.fileno(), "dst_dir_fd": root.fileno()}
        assert not rename_new(b"one", b"two", **at)
        assert rename_new(b"one", b"three", **at)
        with pytest.raises(FileNotFoundError):
            rename_new(b"one", b"four", **at)
    assert ((place / "two").read_text(), (place / "three").read_text()) == ("two", "one")


def test_no_descriptor_stays_open(place: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with Root.open(place) as root:
        for path in ("d/pipe", "d/link", "missing", "d/f"):
            try:
                root.read(path, limit_bytes=3)
            except OSError:
                continue
        root.sync_directory("d")
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_directory_has_its_mode_where_all_that_is_made_has_another_owner(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root's has on NFS."""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with Root.open(place) as root:
        assert root.make_directory("new", 0o777, exact=True)
        with pytest.raises(UnexpectedEntry):
            root.make_private("private")
    assert stat.S_IMODE((place / "new").stat().st_mode) == 0o777
    assert [path.name for path in place.iterdir() if "owner" in path.name] == []
