"""Uploads: what is published is what was in the source, whatever the volume had before; what was
there already is not moved; what is killed, or never stands still, publishes nothing."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cowfs.api.mounts import mount_transfer
from cowfs.api.transfers import tree_publishing, uploading
from cowfs.api.transfers.ignore_patterns import excluding
from cowfs.base import clock
from cowfs.base.beneath import Root
from cowfs.blocking import ROVolume, RWVolume, Store, TransferReport, Volume
from cowfs.control import MountOptions, SessionSpec
from cowfs.errors import (
    ConflictError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    LeaseHeldError,
    LeaseLostError,
    UnavailableError,
)
from cowfs.format import keys
from cowfs.format.locator import Locator
from cowfs.machine.working_copy import list_working_copies
from cowfs.session.opening import enter_session
from cowfs.session.session import Session
from cowfs.store import open_store
from cowfs.store.backends.directory.directory_store import DirectoryStore
from cowfs.store.refs.holder import current_holder
from cowfs.transfer.source_files import SourceExtent, SourceFile
from cowfs.version.commit import CommitRequest
from cowfs.version.names import deletion
from cowfs.writer import publishing
from tests.api.conftest import place

__all__ = ["place"]

BIG = random.Random(1).randbytes(9_000_000)
OLD_NS = 1_500_000_000_000_000_000


class Done(NamedTuple):
    """What an upload said, and the version that it said it of."""

    report: TransferReport
    version: ROVolume


def upload(volume: RWVolume, src: Path, dst: str = "/", **options: Any) -> Done:
    report = volume.files.upload(src, dst, **options)
    return Done(report, Volume.from_locator(report.locator))


@contextmanager
def machine() -> Iterator[Path]:
    """A place for each example of a test that has many; as the fixture `place`, without mounts."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="cowfs-test-") as made:
        root = Path(made)
        (root / "run").mkdir(mode=0o700)
        for name, value in {
            "HOME": root / "home",
            "XDG_RUNTIME_DIR": root / "run",
            "COWFS_CACHE_DIR": root / "c",
            "COWFS_STATE_DIR": root / "c" / "state",
            "COWFS_STORE": (root / "store").as_uri(),
        }.items():
            patch.setenv(name, str(value))
        yield root


@contextmanager
def reading(version: ROVolume) -> Iterator[Session]:
    at = Locator.parse(version.locator)
    options = MountOptions().resolved()
    with enter_session(
        SessionSpec(store_url=at.store_url, volume=at.volume, mode="ro", version=version.id, options=options)
    ) as s:
        yield s


@contextmanager
def writing(volume: RWVolume) -> Iterator[Session]:
    """As a mount would have it, without a kernel."""
    volume.resolve()
    spec = SessionSpec(
        store_url=volume._handle.opened.url,
        volume=volume.name,
        mode="rw",
        options=MountOptions().resolved(),
        working_copy=str(volume._handle.working_copy().path),
    )
    with enter_session(spec) as session:
        yield session


@dataclass
class Seen:
    """kind and permissions, time, content or target; the first path of the same inode."""

    mode: int
    mtime_ns: int
    content: bytes | None
    first: str = field(default="")


def in_source(root: Path) -> dict[str, Seen]:
    found: dict[str, Seen] = {}
    firsts: dict[int, str] = {}
    for path in sorted(root.rglob("*")):
        at, name = path.lstat(), str(path.relative_to(root))
        mode = stat.S_IFMT(at.st_mode) | (0o777 if path.is_symlink() else at.st_mode & 0o1777)
        content = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[name] = Seen(mode, at.st_mtime_ns, content, firsts.setdefault(at.st_ino, name))
    return found


def in_version(version: ROVolume, below: str = "") -> dict[str, Seen]:
    found: dict[str, Seen] = {}
    firsts: dict[int, str] = {}
    names: Counter[int] = Counter()
    claimed: dict[int, int] = {}
    with reading(version) as session:
        files = session.files
        for path, attr in sorted(files.walk("")):
            claimed[attr.ino] = attr.nlink
            if stat.S_ISDIR(attr.mode):
                names[attr.ino] += 2
                above = path.rpartition(b"/")[0]
                names[files.stat(above).ino] += 1
            else:
                names[attr.ino] += 1
            name = os.fsdecode(path)
            if below and not name.startswith(below + "/"):
                continue
            name = name[len(below) + 1 :] if below else name
            is_link, is_file = stat.S_ISLNK(attr.mode), stat.S_ISREG(attr.mode)
            content = files.readlink(path) if is_link else files.read(path) if is_file else None
            found[name] = Seen(attr.mode, attr.mtime_ns, content, firsts.setdefault(attr.ino, name))
        root = files.stat("")
        claimed[root.ino] = root.nlink
        names[root.ino] += 2
        stats = version.stats
    assert claimed == dict(names), "link counts are what names there are"
    assert stats.files == sum(1 for ino in firsts.values() if not stat.S_ISDIR(found[ino].mode)) or below
    return found


# -- any tree after any other

NAMES = st.sampled_from(["a", "b", "c", "é", "d" * 40])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


class Content(bytes):
    """Shown shortly: Hypothesis refuses to show a megabyte."""

    def __repr__(self) -> str:
        return f"Content({len(self)} bytes, {bytes(self[-3:])!r})"


CONTENTS = st.sampled_from(
    [Content(each) for each in (b"", b"x", b"y" * 70_000, BIG[:300_000], BIG[1:300_001], bytes(200_000) + b"end")]
)
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), PATHS, CONTENTS),
    st.tuples(st.just("mkdir"), PATHS),
    st.tuples(st.just("symlink"), PATHS, NAMES),
    st.tuples(st.just("link"), PATHS, PATHS),
    st.tuples(st.just("remove"), PATHS),
    st.tuples(st.just("move"), PATHS, PATHS),
    st.tuples(st.just("chmod"), PATHS, st.sampled_from([0o600, 0o755, 0o4711])),
    st.tuples(st.just("touch"), PATHS),
)
STEPS = st.lists(st.tuples(st.lists(OPERATIONS, max_size=8), st.booleans()), min_size=1, max_size=4)


class Changing:
    """A directory that is changed as operations say, as far as they make sense. Each write gives a
    time of its own: what has the same size and time counts as the same."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._now_ns = OLD_NS

    def apply(self, name: str, path: str, *more: object) -> None:
        at = self.root / path
        with contextlib.suppress(FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, OSError):
            if name == "write":
                if at.is_symlink():
                    return
                at.parent.mkdir(parents=True, exist_ok=True)
                at.write_bytes(more[0])  # type: ignore[arg-type]
            elif name == "mkdir":
                at.mkdir(parents=True)
            elif name == "symlink":
                at.symlink_to(str(more[0]))
            elif name == "link":
                os.link(at, self.root / str(more[0]), follow_symlinks=False)
            elif name == "remove":
                shutil.rmtree(at) if at.is_dir() and not at.is_symlink() else at.unlink()
            elif name == "move":
                at.rename(self.root / str(more[0]))
            elif name == "chmod" and not at.is_symlink():
                at.chmod(more[0])  # type: ignore[arg-type]
            if name in ("write", "touch", "symlink"):
                self._now_ns += 1
                os.utime(at, ns=(0, self._now_ns), follow_symlinks=False)


@settings(max_examples=25)
@example(steps=[([("symlink", "b", "a"), ("link", "b", "a")], True), ([("write", "b", b"x"), ("remove", "a")], True)])
@given(steps=STEPS)
def test_any_tree_after_any_other(steps: list[tuple[list[tuple[Any, ...]], bool]]) -> None:
    with machine() as place:
        (place / "tree").mkdir()
        changing = Changing(place / "tree")
        volume: RWVolume = Volume.new("data")
        known: dict[str, Seen] = {}
        for operations, delete in steps:
            for operation in operations:
                changing.apply(*operation)
            wanted = in_source(changing.root)
            clashes = {
                name
                for name, seen in wanted.items()
                if name in known and is_directory(seen) != is_directory(known[name])
            }
            if clashes and not delete:
                with pytest.raises(InvalidInputError):
                    upload(volume, changing.root)
                continue
            version = upload(volume, changing.root, delete=delete).version
            found = in_version(version)
            if delete:
                assert found == wanted
            else:
                merged = {**known, **wanted}
                assert bare(found).keys() == merged.keys()
                assert {name: bare(found)[name] for name in wanted} == bare(wanted)
                assert {name: seen.content for name, seen in found.items()} == {n: s.content for n, s in merged.items()}
            known = found


PATTERNS = st.lists(
    st.sampled_from(["a", "/a", "b/", "c", "a/b", "/b/c/", "é", "*", "!a", "!b/", "!c"]), min_size=1, max_size=3
)


def after_deleting(
    volume: dict[str, Seen], source: dict[str, Seen], patterns: list[str]
) -> tuple[dict[str, Seen], set[str]] | None:
    """What a volume is to have after an upload with delete and exclude, and what of that it had
    before; None: the upload is to fail."""
    excluded = excluding(patterns)

    def is_excluded(name: str, seen: Seen) -> bool:
        above = [f"{each}/" for each in list(map(str, Path(name).parents))[:-1]]
        return any(excluded(os.fsencode(each)) for each in (*above, f"{name}/" if is_directory(seen) else name))

    uploaded = {name: seen for name, seen in source.items() if not is_excluded(name, seen)}
    kept = {name for name, seen in volume.items() if is_excluded(name, seen)}
    leading = {str(each) for name in kept for each in list(Path(name).parents)[:-1]}
    for name in (kept | leading) & uploaded.keys():
        if is_directory(volume[name]) != is_directory(uploaded[name]):
            return None
    stays = (kept | leading) - uploaded.keys()
    return {name: volume[name] for name in stays} | uploaded, stays


@settings(max_examples=60)
@example(earlier=[("write", "a/b/c", b"x"), ("write", "a/b/d", b"y")], later=[], patterns=["c"], mounted=False)
@example(earlier=[("write", "a/b/c", b"x")], later=[("write", "a", b"y")], patterns=["c"], mounted=False)
@example(earlier=[("write", "b/a", b"x")], later=[("write", "b", b"y")], patterns=["b/"], mounted=False)
@example(earlier=[("write", "c", b"x")], later=[("mkdir", "c")], patterns=["*", "!b/", "!/c/"], mounted=False)
@example(earlier=[("write", "a/b/c", b"x"), ("write", "a/b/d", b"y")], later=[], patterns=["c"], mounted=True)
@example(earlier=[("write", "a/b/c", b"x")], later=[("write", "a", b"y")], patterns=["c"], mounted=True)
@example(earlier=[("write", "b/a", b"x")], later=[("write", "b", b"y")], patterns=["b/"], mounted=True)
@given(
    earlier=st.lists(OPERATIONS, max_size=10),
    later=st.lists(OPERATIONS, max_size=10),
    patterns=PATTERNS,
    mounted=st.booleans(),
)
def test_nothing_that_is_excluded_goes_and_all_else_is_as_in_the_source(
    earlier: list[tuple[Any, ...]], later: list[tuple[Any, ...]], patterns: list[str], mounted: bool
) -> None:
    """Also where a directory stands for the mount: what goes into one goes by its path."""
    with machine() as place:
        before, after = Changing(place / "before"), Changing(place / "after")
        for changing, operations in ((before, earlier), (after, later)):
            changing.root.mkdir()
            for operation in operations:
                changing.apply(*operation)
        old, source = in_source(before.root), in_source(after.root)
        wanted = after_deleting(old, source, patterns)
        expects = contextlib.nullcontext() if wanted is not None else pytest.raises(ConflictError, match="is excluded")
        if mounted:
            with expects, pytest.MonkeyPatch.context() as patch:
                patch.setattr(mount_transfer, "opened", lambda entry: Root.open(entry.mount_path))
                into: Any = SimpleNamespace(
                    mount_path=str(before.root), kind="folder", working_copy=None, id="0", volume="data"
                )
                plan = mount_transfer.Wanted(b"", delete=True, excluded=excluding(patterns))
                mount_transfer.upload(into, os.fsencode(after.root), plan, [], "", None)
            found = in_source(before.root)
        else:
            volume: RWVolume = Volume.new("data")
            upload(volume, before.root)
            with expects:
                upload(volume, after.root, delete=True, exclude=patterns)
            found = in_version(volume.history()[0])
        if wanted is None:
            assert contents(found) == contents(old), "nothing was changed"
        else:
            assert contents(found) == contents(wanted[0])
            times = {name: seen.mtime_ns for name, seen in found.items() if name not in wanted[1]}
            assert times == {name: source[name].mtime_ns for name in times}


def contents(tree: dict[str, Seen]) -> dict[str, tuple[int, bytes | None]]:
    return {name: (seen.mode, seen.content) for name, seen in tree.items()}


def is_directory(seen: Seen) -> bool:
    return stat.S_ISDIR(seen.mode)


def bare(tree: dict[str, Seen]) -> dict[str, Seen]:
    """Without which names are one file: with what the volume had before, they may be fewer."""
    return {name: replace(seen, first="") for name, seen in tree.items()}


# -- what becomes of one tree


@pytest.fixture
def tree(place: Path) -> Path:
    """One of everything that is kept."""
    root = place / "tree"
    (root / "sub" / "empty").mkdir(parents=True)
    (root / "big").write_bytes(BIG)
    (root / "sub" / "small").write_text("small")
    os.symlink("../big", root / "sub" / "link")
    os.symlink("nowhere", root / "dangling")
    os.link(root / "big", root / "sub" / "same")
    (root / "none").touch()
    with open(root / "sparse", "wb") as sparse:
        sparse.write(b"begin")
        sparse.truncate(64 << 20)
        sparse.seek(32 << 20)
        sparse.write(b"middle")
    (root / os.fsdecode(b"\xff\xfe")).touch()
    os.mkfifo(root / "fifo")
    os.chmod(root / "sub" / "small", 0o4751)
    os.chmod(root / "sub" / "empty", 0o2700)
    for number, path in enumerate(sorted(root.rglob("*"), reverse=True)):
        os.utime(path, ns=(0, OLD_NS + number), follow_symlinks=False)
    return root


def expected(root: Path) -> dict[str, Seen]:
    return {name: seen for name, seen in in_source(root).items() if not stat.S_ISFIFO(seen.mode)}


def test_a_version_is_what_was_in_the_source(place: Path, tree: Path) -> None:
    volume: RWVolume = Volume.new("data")
    done = upload(volume, tree, "in", message="uploaded")
    assert (done.report.files, done.report.directories, done.report.symlinks, done.report.skipped) == (6, 3, 2, 1)
    assert done.report.skipped_paths == ("fifo",)
    assert done.report.bytes == 2 * len(BIG) + 5 + (64 << 20)
    assert (done.version.message, done.report.is_new, volume.locator) == ("uploaded", True, done.version.locator)
    assert in_version(done.version, "in") == expected(tree)
    assert done.version.stats.added_bytes < len(BIG) + (1 << 20), "holes and links cost nothing"
    assert list_working_copies() == [], "nothing is left on this machine"


def test_what_is_there_is_neither_read_nor_moved(place: Path, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume: RWVolume = Volume.new("data")
    first = upload(volume, tree).version
    read: list[int] = []
    really_read = SourceFile.read

    def counted(self: SourceFile, extent: SourceExtent, first: int, length: int) -> bytes:
        read.append(length)
        return really_read(self, extent, first, length)

    def into(self: SourceFile, offset: int, target: memoryview) -> None:
        read.append(len(target))
        really_into(self, offset, target)

    really_into = SourceFile.read_into
    monkeypatch.setattr(SourceFile, "read", counted)
    monkeypatch.setattr(SourceFile, "read_into", into)
    again = upload(volume, tree)
    assert (again.version, again.report.is_new, again.report.unchanged, read) == (first, False, 5, [])

    changed = bytearray(BIG)
    changed[4_000_000:4_000_010] = b"0123456789"
    with open(tree / "big", "r+b") as big:
        big.write(changed)
    os.utime(tree / "sub" / "small", ns=(0, OLD_NS))
    second = upload(volume, tree).version
    assert in_version(second) == expected(tree)
    assert 0 < second.stats.added_bytes <= 4 << 20, "two chunks or three"
    assert in_version(first)["big"].content == BIG, "a version never changes"


def test_what_was_written_within_the_tick_of_the_upload_is_read_again(place: Path) -> None:
    (place / "tree").mkdir()
    volume: RWVolume = Volume.new("data")
    stamp = clock.now_ns()
    for content in ("one", "two"):
        (place / "tree" / "file").write_text(content)
        os.utime(place / "tree" / "file", ns=(stamp, stamp))
        version = upload(volume, place / "tree").version
        assert in_version(version)["file"].content == content.encode()


def stored_read_first(path: Path, data: bytes) -> None:
    """As programs do that update what they have mapped: a page is read, then stored to."""
    with path.open("r+b") as file, closing(mmap.mmap(file.fileno(), 0)) as mapped:
        assert len(mapped[: len(data)]) == len(data)
        mapped[: len(data)] = data


def test_what_was_stored_through_a_mapping_is_read_again(place: Path) -> None:
    """On a tmpfs, which hears nothing of it."""
    volume: RWVolume = Volume.new("data")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        path = Path(memory) / "file"
        path.write_bytes(b"zeroth")
        os.utime(path, ns=(0, OLD_NS))
        upload(volume, Path(memory))
        before = path.stat()
        stored_read_first(path, b"first-")
        assert (path.stat().st_mtime_ns, path.stat().st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)
        assert upload(volume, Path(memory)).version.files.read("file") == b"first-"
        again = upload(volume, Path(memory)).report
        assert (again.is_new, again.unchanged) == (False, 1)


def test_the_version_is_one_like_any_other(place: Path, tree: Path) -> None:
    volume: RWVolume = Volume.new("data")
    version = upload(volume, tree).version
    with writing(volume) as session:
        session.files.write("sub/small", b"written")
        session.files.write("sub/new", b"new")
        session.commit(CommitRequest("written"))
    third = upload(volume, tree).version
    wanted = expected(tree)
    found = in_version(third)
    assert found.pop("sub/new").content == b"new"
    assert found == wanted, "what differs comes from the source again"
    fork = upload(version.fork("fork"), tree / "sub", "more/sub", delete=True).version
    assert in_version(fork, "more/sub") == in_source(tree / "sub")
    assert [each.message for each in volume.history()][1] == "written"


@pytest.mark.parametrize("error", [UnavailableError, LeaseHeldError, InvalidStateError])
def test_a_volume_is_only_called_empty_by_who_made_it_and_found_nobody_in_it(
    place: Path, monkeypatch: pytest.MonkeyPatch, error: type[CowfsError]
) -> None:
    """Another one writes to it, or has uncommitted work of it, from the moment it was made."""

    def fail(*_: object, **__: object) -> None:
        raise error("no", hint="Wait.")

    monkeypatch.setattr(uploading, "publish_to", fail)
    (place / "source").mkdir()
    for name, is_made in (("new", True), ("new", False), ("created", False)):
        if name == "created":
            Volume.open(name, create=True).resolve()
        with pytest.raises(error) as said:
            Store().upload(place / "source", name)
        assert ("`cowfs delete new`" in said.value.hint) == (is_made and error is UnavailableError)
        assert ("and empty" in said.value.hint) == (is_made and error is UnavailableError)


def test_who_else_writes_is_told_of(place: Path, tree: Path) -> None:
    volume: RWVolume = Volume.new("data")
    upload(volume, tree)
    assert volume.files.read("sub/small") == b"small"
    assert upload(volume, tree).report.unchanged == 5, "a session of this process without work is in nobody's way"
    with writing(volume) as session:
        with pytest.raises(LeaseHeldError):
            upload(volume, tree / "sub")
        session.files.write("left", b"uncommitted")
    with pytest.raises(InvalidStateError, match="uncommitted work"):
        upload(volume, tree / "sub")
    with writing(volume) as session:
        assert session.files.read("left") == b"uncommitted"


def test_a_volume_that_may_have_its_version_is_not_said_to_be_empty(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to its head was lost, and the store with it: who deleted it would lose it."""
    (source := place / "source").mkdir()
    (source / "f").write_bytes(b"abc")
    put, get = DirectoryStore.put_if_absent, DirectoryStore.get
    is_down = False

    def lost(store: DirectoryStore, key: str, data: Any) -> None:
        nonlocal is_down
        put(store, key, data)
        if key == keys.head("new", 2):
            is_down = True
            raise UnavailableError("the answer was lost")

    def unanswered(store: DirectoryStore, key: str) -> bytes:
        if is_down and key == keys.head("new", 2):
            raise UnavailableError("no answer")
        return get(store, key)

    monkeypatch.setenv("COWFS_STORE_TIMEOUT", "1")
    with monkeypatch.context() as patched:
        patched.setattr(DirectoryStore, "put_if_absent", lost)
        patched.setattr(DirectoryStore, "get", unanswered)
        with pytest.raises(UnavailableError, match="unknown") as caught:
            Volume.new("new").files.upload(source)
    assert ("may be there already" in caught.value.hint, "empty" in caught.value.hint) == (True, False)
    assert Volume.version("new").files.read("f") == b"abc"


@pytest.mark.parametrize("is_deleted", [True, False])
def test_an_upload_that_was_overtaken_keeps_nothing_and_says_what_to_do(
    place: Path, tree: Path, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    volume: RWVolume = Volume.new("data")
    upload(volume, tree)
    publish_tree = tree_publishing.publish_tree

    def overtaken(*arguments: Any) -> Any:
        with closing(open_store(volume.store_url or "")) as store:
            deletion.delete_volume(store, "data", current_holder("elsewhere"), take_over=True)
            if not is_deleted:
                deletion.undelete_volume(store, "data")
        return publish_tree(*arguments)

    monkeypatch.setattr(tree_publishing, "publish_tree", overtaken)
    (tree / "more").write_bytes(b"more")
    with pytest.raises(LeaseLostError) as lost:
        upload(volume, tree)
    assert lost.value.hint.endswith("do it again." if is_deleted else "once no other process writes to the volume.")
    assert ("cowfs undelete data" in lost.value.hint) == is_deleted
    assert not re.search("working copy|fork", lost.value.hint, re.IGNORECASE)


def test_types_that_differ(place: Path) -> None:
    root = place / "tree"
    (root / "a" / "b").mkdir(parents=True)
    (root / "c").write_text("file")
    volume: RWVolume = Volume.new("data")
    before = upload(volume, root).version
    shutil.rmtree(root / "a")
    (root / "c").unlink()
    (root / "a").write_text("now a file")
    (root / "c" / "d").mkdir(parents=True)
    with pytest.raises(InvalidInputError, match="Is a directory"):
        upload(volume, root)
    assert volume.history()[0] == before
    done = upload(volume, root, delete=True)
    assert in_version(done.version) == in_source(root)


def test_what_is_excluded_is_neither_uploaded_nor_removed(place: Path) -> None:
    root = place / "tree"
    for name in ("keep/a.txt", "keep/a.log", "build/x", "keep/build/y"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    volume: RWVolume = Volume.new("data")
    exclude = ["*.log", "/build/"]
    first = upload(volume, root, exclude=exclude).version
    assert sorted(in_version(first)) == ["keep", "keep/a.txt", "keep/build", "keep/build/y"]
    upload(volume, root)
    (root / "keep" / "a.txt").unlink()
    done = upload(volume, root, exclude=exclude, delete=True)
    assert (done.report.removed, "keep/a.log" in in_version(done.version), "build/x" in in_version(done.version)) == (
        1,
        True,
        True,
    )
    with pytest.raises(InvalidInputError):
        upload(volume, root, "../up")


def test_a_file_that_never_stands_still_publishes_nothing(
    place: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume: RWVolume = Volume.new("data")
    before = upload(volume, tree / "sub").version
    really_read, times = SourceFile.read_into, [0]

    def read_into(self: SourceFile, offset: int, target: memoryview) -> None:
        really_read(self, offset, target)
        if times[0] > 0:
            times[0] -= 1
            with open(tree / "big", "r+b") as big:
                big.write(b"0" if times[0] % 2 else b"1")

    monkeypatch.setattr(SourceFile, "read_into", read_into)
    hurried: list[int] = []
    monkeypatch.setattr(publishing.Line, "hurry", lambda line: hurried.append(1))
    times[0] = 1 << 30
    with pytest.raises(ConflictError, match="was written to while it was read"):
        upload(volume, tree)
    assert (volume.history()[0], hurried) == (before, [1]), "a silent store is not waited for any more"
    times[0] = 3
    version = upload(volume, tree).version
    assert in_version(version)["big"].content == (tree / "big").read_bytes(), "it was read again"


def test_a_file_that_is_written_to_all_the_time_is_not_waited_for(
    place: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume: RWVolume = Volume.new("data").resolve()
    really_stamp = SourceFile.stamp
    monkeypatch.setattr(SourceFile, "stamp", lambda file: replace(really_stamp(file), ctime_ns=clock.now_ns()))
    with pytest.raises(ConflictError, match="was written to while it was read"):
        upload(volume, tree)
    assert volume.history() == []


def packs(place: Path) -> set[Path]:
    return {path for path in (place / "store").rglob("*") if path.stat().st_size > 1 << 20}


def durable_bytes(volume: RWVolume) -> int:
    """In packs that the working copy knows of."""
    log = volume._handle.working_copy().uploads_path
    return sum(int(line.split()[1]) for line in log.read_text().splitlines()) if log.exists() else 0


KILLED = """
import sys
from cowfs.blocking import Volume
Volume.open("data").files.upload(sys.argv[1])
"""


@pytest.mark.parametrize(
    "point",
    [
        "upload-file-stored:9",
        "upload-pack-noted:2",
        "commit-after-packs",
        "commit-before-head",
        "commit-after-head",
    ],
)
def test_killed_it_goes_on_with_what_is_missing(place: Path, point: str) -> None:
    """Files of 4 MiB each, whose packs are durable one after the other."""
    root = place / "tree"
    root.mkdir()
    for number in range(10):
        (root / f"{number:02}").write_bytes(random.Random(number).randbytes(4 << 20))
    volume: RWVolume = Volume.new("data").resolve()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        "COWFS_FAILPOINT": point,
    }
    done = subprocess.run([sys.executable, "-c", KILLED, str(root)], env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    if point != "commit-after-head":
        assert volume.history() == []
    stored, durable = packs(place), durable_bytes(volume)
    version = upload(volume, root).version
    assert len(volume.history()) == 1
    assert in_version(version) == in_source(root)
    moved = sum(path.stat().st_size for path in packs(place) - stored)
    assert moved + durable <= (10 * 4 << 20) + (1 << 20), "nothing that was known to be durable moves again"
    assert not point.startswith("commit-") or moved == 0
    assert list_working_copies() == []
