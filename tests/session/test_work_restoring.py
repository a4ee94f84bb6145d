"""What a version has, put into the working copy of an open volume: then it is there, and the rest
is as it was; and so it is in the version that a commit makes."""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from cowfs.api.access import file_session
from cowfs.base.ids import VersionId
from cowfs.blocking import ROVolume, RWVolume, Store, Volume
from cowfs.control.messages import Restoration
from cowfs.errors import ConflictError, CorruptError, NotFoundError
from cowfs.native import Caller
from cowfs.native.constants import ROOT_INO
from cowfs.session import work_restoring
from cowfs.session.session import Session
from cowfs.session.work_restoring import APART, Stale, restore
from tests.api.conftest import place

__all__ = ["place"]

NAMES = [b"a", b"b", b"c", b"a/a", b"a/b", b"b/a", b"b/b", b"a/a/a", b"a/a/b"]


@contextmanager
def session_of(volume: RWVolume) -> Iterator[Session]:
    with volume._handle.open_files().used() as session:
        yield session


def change(session: Session, some: random.Random) -> None:
    """Whatever can be done to a name, if it can be done."""
    files, engine, name = session.files, session.engine, some.choice(NAMES)
    other = some.choice(NAMES)
    what = some.randrange(13)
    try:
        if what == 0:
            files.mkdir(name)
        elif what <= 3:
            files.write(name, some.randbytes(some.choice([0, 5, 3000, 600_000])))
        elif what == 4:
            files.write(name, b"x" * some.randrange(50_000), some.randrange(500_000))
        elif what == 5:
            files.move(name, other)
        elif what == 6:
            files.remove(name)
        elif what == 7:
            files.new_symlink(name, other)
        elif what == 8:
            files.ask(engine.set_xattr, files.stat(name).ino, b"user.a", some.randbytes(3), 0)
        elif what == 9:
            files.chmod(name, some.choice([0o600, 0o640, 0o755]))
        elif what == 10:  # as `cp -p` to a temporary name, and `mv`
            attr = files.stat(name)
            files.write(b"copied", files.read(name))
            files.chmod(b"copied", stat.S_IMODE(attr.mode))
            ino = files.stat(b"copied").ino
            files.ask(engine.setattr, ino, Caller(0, 0, os.getpid(), 0, None, None), mtime_ns=attr.mtime_ns)
            files.move(b"copied", some.choice([name, other]))
        else:
            parent, last = files.place(other)
            engine.forget(files.ask(engine.link, files.stat(name).ino, parent, last).ino, 1)
    except OSError:
        pass


def state(session: Session, top: bytes = b"") -> dict[bytes, Any]:
    """Everything below, but for numbers of inodes; of files the names that they have below."""
    files, engine = session.files, session.engine
    found: dict[bytes, Any] = {}
    names: dict[int, set[bytes]] = {}
    for path, attr in files.walk(top):
        names.setdefault(attr.ino, set()).add(path)
    for path, attr in files.walk(top):
        kind = stat.S_IFMT(attr.mode)
        content = files.read(path) if kind == stat.S_IFREG else files.readlink(path) if kind == stat.S_IFLNK else None
        xattrs = {name: files.ask(engine.get_xattr, attr.ino, name) for name in files.ask(engine.list_xattrs, attr.ino)}
        found[path] = (attr.mode, attr.uid, attr.mtime_ns, content, xattrs, frozenset(names[attr.ino]))
    return found


def restored(session: Session, version: ROVolume, path: bytes = b"", to: bytes | None = None) -> list[tuple[str, str]]:
    wanted = Restoration(VersionId.from_hex(version.id), os.fsdecode(path), os.fsdecode(path if to is None else to))
    return [(each.path, each.kind) for each in restore(session, wanted, Stale()).paths]


@pytest.mark.parametrize("seed", range(8))
def test_a_working_copy_is_rolled_back_to_any_version(place: Path, seed: int) -> None:
    some = random.Random(seed)
    volume = Volume.new("data")
    states, versions = [], []
    for _ in range(3):
        with session_of(volume) as session:
            for _ in range(some.randrange(5, 40)):
                change(session, some)
            states.append(state(session))
        versions.append(volume.commit())
    for at in (0, 2, 1, 1):
        with session_of(volume) as session:
            for _ in range(some.choice([0, 10])):
                change(session, some)
            before = list(volume.diff(versions[at], times=True))
            done = restored(session, versions[at])
            assert state(session) == states[at]
            assert list(volume.diff(versions[at], times=True)) == []
            assert not done or before
            assert restored(session, versions[at]) == []
            assert not [name for name, _ in session.files.list("") if name.startswith(APART)]
    made = volume.commit()
    assert list(versions[1].diff(made, times=True)) == []
    volume.finalize()


@pytest.mark.parametrize("is_one_file", [True, False])
@pytest.mark.parametrize("is_open", [True, False])
def test_names_are_one_file_or_several_as_the_version_has_them(place: Path, is_one_file: bool, is_open: bool) -> None:
    """Equal files, so that nothing else differs."""
    volume = Volume.new("data")

    def put(session: Session, as_one_file: bool) -> None:
        files, engine = session.files, session.engine
        files.write(b"copied", files.read(b"a"))
        engine.forget(files.ask(engine.link, files.stat(b"a").ino, ROOT_INO, b"linked").ino, 1)
        for name in (b"a", b"copied"):
            files.ask(engine.setattr, files.stat(name).ino, Caller(0, 0, os.getpid(), 0, None, None), mtime_ns=7)
        files.move(b"linked" if as_one_file else b"copied", b"b")
        for name in {b"linked", b"copied"} & {name for name, _ in files.list("")}:
            files.remove(name)

    with session_of(volume) as session:
        session.files.write(b"a", b"same")
        put(session, is_one_file)
        wanted = state(session)
    version = volume.commit()
    with session_of(volume) as session:
        put(session, not is_one_file)
        assert {len(each[-1]) for each in state(session).values()} == {1 if is_one_file else 2}
    assert [(each.path, each.what) for each in volume.diff(version) if "names" in each.what]
    if is_open:
        with session_of(volume) as session:
            restored(session, version)
            assert state(session) == wanted
    else:
        volume.commit()
        Store().rollback(volume.name, version)
    with session_of(volume) as session:
        assert state(session) == wanted
    assert list(volume.diff(version)) == []
    volume.finalize()


@pytest.mark.parametrize("seed", range(6))
def test_one_path_is_as_the_version_has_it_and_the_rest_stays(place: Path, seed: int) -> None:
    some = random.Random(100 + seed)
    volume = Volume.new("data")
    with session_of(volume) as session:
        for _ in range(40):
            change(session, some)
        version_state = state(session)
    version = volume.commit()
    with session_of(volume) as session:
        for _ in range(40):
            change(session, some)
        for _ in range(6):
            path = some.choice(NAMES)
            to = some.choice([path, path, b"new"])
            before = state(session)
            try:
                restored(session, version, path, to)
            except (NotFoundError, ConflictError):
                assert state(session) == before
                continue
            after = state(session)
            assert inside(after, to) == inside(version_state, path)
            above = {to.rsplit(b"/", count)[0] for count in range(1, to.count(b"/") + 1)}
            assert outside(after, to, above) == outside(before, to, above)
    volume.discard()


def inside(states: dict[bytes, Any], top: bytes) -> dict[bytes, Any]:
    return {path[len(top) :]: each[:5] for path, each in states.items() if path == top or path.startswith(top + b"/")}


def outside(states: dict[bytes, Any], top: bytes, above: set[bytes]) -> dict[bytes, Any]:
    """What is above may be new, and its time is."""
    return {
        path: each[:5]
        for path, each in states.items()
        if path != top and not path.startswith(top + b"/") and path not in above
    }


def test_what_the_file_in_its_place_has_is_shared_and_open_files_stay(place: Path) -> None:
    volume = Volume.new("data")
    data = random.Random(1).randbytes(8 << 20)
    volume.files.write("large", data)
    version = volume.commit()
    with session_of(volume) as session:
        session.files.write("large", b"!" * 10, 5 << 20)
        with session.files.open("large", os.O_RDONLY) as opened:
            restored(session, version)
            staged = sum(
                each.length
                for each in session.engine.live_extents(session.files.stat("large").ino)[1]
                if each.chunk is None
            )
            assert 0 < staged < 4 << 20, "only the chunks that differ are staged"
            assert opened.read(5 << 20, 10) == b"!" * 10
        assert session.files.read("large") == data
    assert list(version.diff(volume.commit(), times=True)) == []
    volume.finalize()


def test_an_error_leaves_everything_as_it_was(place: Path) -> None:
    volume = Volume.new("data")
    volume.files.write("a", b"one")
    volume.files.write("b", random.Random(2).randbytes(100_000))
    version = volume.commit()
    volume.files.write("a", b"two")
    volume.files.remove("b")
    with session_of(volume) as session:
        before = state(session)
        for pack in (place / "store" / "packs").rglob("*"):
            if pack.is_file() and pack.stat().st_size > 50_000:
                pack.write_bytes(b"damaged")
        session.engine.trim_staging(0)
        session.engine.trim_cache(0)
        with pytest.raises(CorruptError):
            restored(session, version)
        assert state(session) == before
    volume.discard()


def left_by_a_killed_restore(session: Session, name: str) -> None:
    assert session.writer is not None
    session.writer.working_copy.note_restore(name)
    session.files.mkdir(name)
    session.files.write(f"{name}/0", b"half")


def noted(session: Session) -> tuple[str, ...]:
    assert session.writer is not None
    return session.writer.working_copy.state.restoring


@pytest.mark.parametrize("is_committed", [True, False])
def test_what_a_killed_restore_leaves_is_in_no_version(
    place: Path, is_committed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    volume = Volume.new("data")
    if is_committed:
        volume.files.write("before", b"1")
        volume.commit()
    left, own = ".cowfs-restore-0123abcd", ".cowfs-restore-of-mine"
    with session_of(volume) as session:
        left_by_a_killed_restore(session, left)
        session.files.mkdir(own)
        session.files.write(f"{own}/0", b"half")
    file_session._end_all()
    volume.files.write("more", b"2")
    assert f"removed /{left} from data" in caplog.text
    with session_of(volume) as session:
        assert noted(session) == ()
    version = volume.commit()
    assert {entry.path for entry in version.files.ls("/")} >= {"/more", "/" + own}
    assert not version.files.exists(left)
    assert version.files.read(f"{own}/0") == b"half"
    volume.finalize()


def test_somebodys_own_directory_of_such_a_name_stays(place: Path) -> None:
    volume = Volume.new("data")
    own = ".cowfs-restore-0123abcd"
    volume.files.mkdir(own)
    volume.files.write(f"{own}/mine", b"1")
    version = volume.commit()
    volume.files.write("more", b"2")
    with session_of(volume) as session:
        restored(session, version)
    for _ in range(2):
        file_session._end_all()
        assert volume.files.read(f"{own}/mine") == b"1"
        volume.files.write("more", b"3")
    assert volume.commit().files.read(f"{own}/mine") == b"1"
    volume.finalize()


@pytest.mark.parametrize("fails", [True, False])
def test_a_restore_that_ends_leaves_no_note(place: Path, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = Volume.new("data")
    volume.files.write("a", b"1")
    version = volume.commit()
    volume.files.write("a", b"2")
    seen: list[tuple[str, ...]] = []

    def made(self: work_restoring._Restoring) -> None:
        seen.append(noted(session))
        session.files.stat(seen[0][0])
        if fails:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(work_restoring._Restoring, "_fetch", made)
    with session_of(volume) as session:
        with pytest.raises(OSError, match="Input/output error") if fails else nullcontext():
            restored(session, version)
        assert len(seen[0]) == 1
        assert noted(session) == ()
    volume.discard()


def test_work_is_there_although_what_a_killed_restore_left_cannot_be_removed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is removed once it can be, even if a version has it by then."""
    volume = Volume.new("data")
    left = ".cowfs-restore-0123abcd"
    with session_of(volume) as session:
        left_by_a_killed_restore(session, left)
        session.files.write("work", b"1")
    file_session._end_all()

    def refused(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(work_restoring, "_remove", refused)
        assert volume.files.read("work") == b"1"
    assert volume.commit().files.exists(left)
    file_session._end_all()
    volume.files.write("work", b"2")  # opens the volume again
    assert not volume.files.exists(left)
    volume.finalize()


@pytest.mark.parametrize("size", [300_000, 3 << 20])
def test_a_file_that_goes_while_its_earlier_content_is_taken_from_it(
    place: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = Volume.new("data")
    data = random.Random(3).randbytes(size)
    volume.files.write("large", data)
    version = volume.commit()
    shared = work_restoring._Restoring._share

    def share(self: work_restoring._Restoring, *arguments: Any) -> Any:
        self._files.remove("large")
        return shared(self, *arguments)

    monkeypatch.setattr(work_restoring._Restoring, "_share", share)
    with session_of(volume) as session:
        session.files.write("large", b"!", 5)
        restored(session, version)
        assert session.files.read("large") == data
    volume.discard()


@pytest.mark.parametrize("gone", [("b",), ("a", "b")])
def test_names_of_one_file_are_that_again(place: Path, gone: tuple[str, ...]) -> None:
    volume = Volume.new("data")
    with session_of(volume) as session:
        session.files.write("a", b"one file")
        parent, name = session.files.place("b")
        session.engine.forget(session.engine.link(session.files.stat("a").ino, parent, name).ino, 1)
        before = state(session)
    version = volume.commit()
    with session_of(volume) as session:
        if len(gone) == 2:
            session.files.move("a", "c")
            session.files.remove("b")
        else:
            session.files.remove("b")
        restored(session, version)
        assert state(session) == before
        assert session.files.stat("a").nlink == 2
    volume.finalize()
