"""What is moved out of the way and back, and what is deleted whatever it is."""

from __future__ import annotations

import errno
import os
import signal
import stat
import traceback
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from cowfs.machine import aside

NAME = b".cowfs-aside-0123456789abcdef"


def opened_in(folder: Path) -> aside.OpenDirectory:
    """Beside the folder."""
    return aside.OpenDirectory(folder.parent / "opened")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    (folder / "dir" / "sub").mkdir(parents=True)
    (folder / "dir" / "old").write_text("old")
    (folder / "dir" / "sub" / "deep").write_text("deep")
    (folder / "file").write_text("before")
    (folder / "dir").chmod(0o750)
    return folder


def bring_back(folder: Path) -> list[tuple[bytes, bytes]]:
    return aside.bring_back(os.fsencode(folder), NAME, opened_in(folder), sets_attributes=True)


def test_everything_comes_back(folder: Path) -> None:
    before = os.lstat(folder)
    assert aside.set_aside(os.fsencode(folder), NAME, opened_in(folder)) == {}
    away = folder / os.fsdecode(NAME)
    assert sorted(os.listdir(away)) == ["dir", "file"]
    assert bring_back(folder) == []
    assert sorted(os.listdir(folder)) == ["dir", "file"]
    assert os.lstat(folder).st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("is_known", [True, False])
def test_what_was_made_anew_meanwhile_stays_and_so_does_what_was_there(
    folder: Path, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a C library or a file system that does not know renames which replace nothing."""
    if not is_known:
        monkeypatch.setattr(aside, "_renameat2", None)
    aside.set_aside(os.fsencode(folder), NAME, opened_in(folder))
    (folder / "dir" / "sub").mkdir(parents=True)
    (folder / "dir" / "new").write_text("new")
    (folder / "dir" / "old").write_text("another")
    (folder / "file").mkdir()
    (folder / "file.cowfs-aside").write_text("somebody's")
    assert sorted(bring_back(folder)) == [
        (b"dir/old", b"dir/old.cowfs-aside"),
        (b"file", b"file.cowfs-aside-2"),
    ]
    found = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert found == {
        "dir/new": "new",
        "dir/old": "another",
        "dir/old.cowfs-aside": "old",
        "dir/sub/deep": "deep",
        "file.cowfs-aside": "somebody's",
        "file.cowfs-aside-2": "before",
    }
    assert (folder / "file").is_dir()
    assert (folder / "dir").stat().st_mode & 0o777 == 0o750


def test_only_a_directory_is_one_of_ours(folder: Path, tmp_path: Path) -> None:
    """Whatever is called so: a link leads out of the folder."""
    name, elsewhere = os.fsdecode(NAME), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / name).symlink_to(elsewhere)
    assert aside.those_in(os.fsencode(folder), NAME) == aside.those_in(os.fsencode(folder), b"") == []
    (folder / name).unlink()
    (folder / name).write_text("a file")
    assert aside.those_in(os.fsencode(folder), NAME) == aside.those_in(os.fsencode(folder), b"") == []
    (folder / name).unlink()
    (folder / name).mkdir()
    assert aside.those_in(os.fsencode(folder), NAME) == aside.those_in(os.fsencode(folder), b"") == [NAME]
    assert aside.is_name(name)
    assert not aside.is_name("../elsewhere")


@pytest.mark.parametrize("user", [0, 65534] if os.geteuid() == 0 else [os.geteuid()])
@pytest.mark.parametrize("calls", range(14))
def test_a_crash_leaves_modes_as_they_were(calls: int, user: int) -> None:
    """Between any two calls that change something, on the way out and back."""
    with TemporaryDirectory() as directory:
        os.chmod(directory, 0o777)
        folder = Path(directory) / "folder"

        def make() -> None:
            for name in ("dir", "closed", "open"):
                (folder / name).mkdir(parents=True)
            (folder / "dir").chmod(0o555)
            (folder / "closed").chmod(0)

        def settle() -> None:
            opened_in(folder).close_again()
            if aside.those_in(os.fsencode(folder), NAME):
                bring_back(folder)

        as_user(user, make)
        as_user(user, lambda: aside.set_aside(os.fsencode(folder), NAME, opened_in(folder)), calls)
        as_user(user, settle, calls)
        as_user(user, settle)
        found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
        assert found == {"dir": 0o555, "closed": 0, "open": 0o755}
        assert not (folder.parent / "opened").exists()


def test_a_full_disk_keeps_nothing_from_being_moved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "_is_closed", lambda path, mode: True)
    (folder.parent / "opened").mkdir()  # nothing can be written there
    monkeypatch.setattr(aside.OpenDirectory, "clear", lambda self: None)
    before = sorted(os.listdir(folder))
    aside.set_aside(os.fsencode(folder), NAME, opened_in(folder))
    bring_back(folder)
    assert sorted(os.listdir(folder)) == before


def as_user(user: int, does: Callable[[], object], calls: int | None = None) -> None:
    """In a process of its own, which is killed at that call."""
    if not (pid := os.fork()):
        try:
            os.setresuid(user, user, user)
            os.umask(0o022)
            if calls is not None:
                left = [calls]
                for name in ("chmod", "mkdir", "utime", "rmdir"):
                    setattr(os, name, counted(getattr(os, name), left))
                aside._rename = counted(aside._rename, left)
                for name in ("put", "clear"):
                    setattr(aside.OpenDirectory, name, counted(getattr(aside.OpenDirectory, name), left))
            does()
        except FileNotFoundError:  # nothing was set aside yet
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert ended in ((0,) if calls is None else (0, -signal.SIGKILL))


def counted(original: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return original(*arguments, **named)

    return call


def test_a_long_name_has_room_for_what_tells_it_apart(folder: Path) -> None:
    name = "x" * 255
    (folder / name).write_text("before")
    aside.set_aside(os.fsencode(folder), NAME, opened_in(folder))
    (folder / name).write_text("anew")
    [(path, beside)] = bring_back(folder)
    assert path == name.encode()
    assert (folder / os.fsdecode(beside)).read_text() == "before"
    assert (folder / name).read_text() == "anew"


def test_a_tree_goes_however_deep_and_whatever_its_modes(tmp_path: Path) -> None:
    """18 names of 250 bytes are more than the system takes for a path."""
    top = tmp_path / "tree"
    top.mkdir()
    (top / "link").symlink_to(tmp_path)
    fd = os.open(top, os.O_RDONLY)
    for number in range(18):
        name = f"{number:02}" + "x" * 248
        os.mkdir(name, dir_fd=fd)
        inner = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
        os.mkdir("beside", 0, dir_fd=inner)
        os.close(fd)
        fd = inner
    os.close(fd)
    aside.delete_tree(os.fsencode(top), remains := aside.Remains())
    assert remains.count == 0
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_deleted_stays_and_the_rest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that cannot be moved, as a snapshot on Btrfs, is emptied where it is."""
    top = tmp_path / "tree"
    for name in ("a/empty", "a/snapshot/b", "a/kept/deep"):
        (top / name).mkdir(parents=True)
    for name in ("file", "a/file", "a/snapshot/b/file", "a/kept/deep/kept", "a/kept/file"):
        (top / name).write_text(name)
    rename, unlink = os.rename, os.unlink

    def renamed(name: bytes, *arguments: Any, **named: Any) -> None:
        if name in (b"empty", b"snapshot", b"kept"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(name, *arguments, **named)

    def unlinked(name: bytes, **named: Any) -> None:
        if name == b"kept":
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        unlink(name, **named)

    monkeypatch.setattr(os, "rename", renamed)
    monkeypatch.setattr(os, "unlink", unlinked)
    aside.delete_tree(os.fsencode(top), remains := aside.Remains())
    monkeypatch.undo()
    left = [path for path in tmp_path.rglob("*") if not path.is_dir()]
    assert [path.read_text() for path in left] == ["a/kept/deep/kept"]
    assert (remains.count, Path(os.fsdecode(remains.path))) == (1, left[0])
    assert "not permitted" in remains.why


@pytest.mark.skipif(os.geteuid() != 0, reason="has files of another user")
def test_what_is_another_users_stays_where_it_is() -> None:
    with TemporaryDirectory() as directory:
        folder = Path(directory) / "folder"
        for name in ("theirs", "mine"):
            (folder / name).mkdir(parents=True)
            (folder / name / "file").write_text(name)
        for path in (Path(directory), folder, folder / "mine", folder / "mine" / "file"):
            os.chown(path, 65534, 65534)
        (folder / "theirs").chmod(0o555)

        def set_aside() -> None:
            stuck = aside.set_aside(os.fsencode(folder), NAME, opened_in(folder))
            assert {name: error.errno for name, error in stuck.items()} == {b"theirs": errno.EACCES}

        as_user(65534, set_aside)
        assert sorted(os.listdir(folder)) == [os.fsdecode(NAME), "theirs"]
        assert os.listdir(folder / os.fsdecode(NAME)) == ["mine"]
        assert not (folder.parent / "opened").exists()
