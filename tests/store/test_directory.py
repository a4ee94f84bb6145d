"""The directory store: whole or not at all, durable before acknowledged, errors of the disk as
errors of ours."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cowfs.base import clock, config
from cowfs.base.beneath import Root
from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    InvalidInputError,
    InvalidStateError,
    NoSpaceError,
    NotFoundError,
    ReadOnlyError,
    UnavailableError,
)
from cowfs.format import keys
from cowfs.store import ObjectStore, open_store
from cowfs.store.backends.directory.directory_store import DirectoryStore, create_root
from cowfs.store.backends.directory.incoming import INCOMING

pytestmark = pytest.mark.quick


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> DirectoryStore:
    return DirectoryStore(root, url=root.as_uri())


def left_over(root: Path) -> list[str]:
    return os.listdir(root / INCOMING) if (root / INCOMING).exists() else []


def test_nothing_temporary_stays(store: DirectoryStore, root: Path) -> None:
    store.put("a/b", b"x")
    store.put_if_absent("a/c", b"x")
    with pytest.raises(ConflictError):
        store.put_if_absent("a/c", b"x")
    with pytest.raises(InvalidInputError):
        store.put("a/b/c", b"x")
    assert left_over(root) == []
    assert sorted(path.name for path in root.iterdir()) == [INCOMING, "a"]


def test_a_write_cut_short_leaves_the_old_object(
    store: DirectoryStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("key", b"old")
    real = os.write
    written = 0

    def fail_half_way(fd: int, data: memoryview) -> int:
        nonlocal written
        if written:
            raise OSError(errno.EIO, "half way")
        written = real(fd, data[: len(data) // 2])
        return written

    monkeypatch.setattr(os, "write", fail_half_way)
    with pytest.raises(UnavailableError, match="Input/output"):
        store.put("key", b"the new value")
    monkeypatch.undo()
    assert store.get("key") == b"old"
    assert left_over(root) == []


DAY_S = 24 * 3600
LEFT, YOUNG, FOREIGN, DIRECTORY, LINK = (f"{number:032x}" for number in range(5))


def leftovers(root: Path) -> None:
    """What a killed writer has left two days ago, and what looks like it."""
    incoming = root / INCOMING
    incoming.mkdir(exist_ok=True)
    for name in (LEFT, YOUNG, FOREIGN, "thesis.tex"):
        (incoming / name).write_bytes(b"x")
    (incoming / DIRECTORY).mkdir()
    (incoming / LINK).symlink_to("../key")
    now_s = os.stat(incoming / YOUNG).st_mtime
    for name in (LEFT, FOREIGN, DIRECTORY, LINK, "thesis.tex"):
        os.utime(incoming / name, (now_s - 2 * DAY_S,) * 2, follow_symlinks=False)
    os.utime(incoming / YOUNG, (now_s - DAY_S / 2,) * 2)
    if os.geteuid() == 0:
        os.chown(incoming / FOREIGN, 12345, 12345)


def test_a_writer_sweeps_what_its_own_killed_writers_have_left(store: DirectoryStore, root: Path) -> None:
    leftovers(root)
    store.put("key", b"x")
    kept = {YOUNG, DIRECTORY, LINK, "thesis.tex", *([FOREIGN] if os.geteuid() == 0 else [])}
    assert set(left_over(root)) == kept
    assert [info.key for info in store.list("")] == ["key"]
    assert store.list(".inc") == []


def test_who_reads_or_opens_a_store_removes_nothing(root: Path) -> None:
    leftovers(root)
    before = set(left_over(root))
    store = DirectoryStore(root, url=root.as_uri())
    store.list("")
    store.size("key")
    with pytest.raises(NotFoundError):
        store.get("key")
    store.delete(["key"])
    assert set(left_over(root)) == before


def test_the_age_of_a_leftover_is_measured_by_the_clock_of_the_store(
    store: DirectoryStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leftovers(root)
    monkeypatch.setattr(clock, "now_ns", lambda: 1 << 62)
    store.put("key", b"x")
    assert YOUNG in left_over(root)


@pytest.mark.parametrize("method", ["put", "put_if_absent"])
def test_a_put_whose_file_is_swept_writes_it_again(
    store: DirectoryStore, root: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    real, swept = os.fsync, 0

    def fsync(fd: int) -> None:
        nonlocal swept
        real(fd)
        if swept < removals:
            for name in left_over(root):
                (root / INCOMING / name).unlink()
                swept += 1

    monkeypatch.setattr(os, "fsync", fsync)
    removals = 2
    getattr(store, method)("key", b"x" * 100)
    assert (swept, store.get("key")) == (2, b"x" * 100)
    removals = 1000
    with pytest.raises(UnavailableError, match="removed at once") as caught:
        getattr(store, method)("other", b"x")
    assert caught.value.hint
    assert store.size("other") is None


def test_a_killed_writer_leaves_whole_objects_only(root: Path) -> None:
    program = (
        "import sys; from cowfs.store import open_store\n"
        "store = open_store(sys.argv[1])\n"
        "print('go', flush=True)\n"
        "n = 0\n"
        "while True:\n"
        "    store.put(f'objects/{n}', b'%06d' % n * 50_000); store.put('last', b'%06d' % n * 50_000); n += 1\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(root)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()
    store = open_store(str(root))
    while len(store.list("objects/")) < 20:
        pass
    child.kill()
    child.communicate()
    names = [info.key for info in store.list("objects/")]
    assert len(names) >= 20
    for name in [*names, "last"]:
        body = store.get(name)
        assert len(body) == 300_000
        assert body == body[:6] * 50_000


def test_everything_is_synced_before_it_is_acknowledged(
    store: DirectoryStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object before it has its name, then the directory that holds the name, and each new
    directory in its parent."""
    events: list[str] = []
    real_sync, real_link, real_rename = os.fsync, os.link, os.rename

    def name_of(fd: int) -> str:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        return "object" if path.parent.name == INCOMING else f"{path.relative_to(root.parent)}"

    def fsync(fd: int) -> None:
        events.append(name_of(fd))
        real_sync(fd)

    def link(source: str, target: str, **options: Any) -> None:
        events.append("link")
        real_link(source, target, **options)

    def rename(source: str, target: str, **options: Any) -> None:
        events.append("rename")
        real_rename(source, target, **options)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(os, "rename", rename)
    store.put_if_absent("a/b/one", b"x")
    assert events == ["store", "store/a", "object", "link", "store/a/b"]
    events.clear()
    store.put("a/b/two", b"x")
    assert events == ["object", "rename", "store/a/b"]
    events.clear()
    with pytest.raises(ConflictError):
        store.put_if_absent("a/b/one", b"y")
    assert events == ["store/a/b"]  # whoever made it may have died before it synced the name


@pytest.mark.parametrize("length", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 4096, (5 << 20) + 77])
@pytest.mark.parametrize("skip", [0, 1], ids=["aligned", "unaligned"])
def test_large_objects(store: DirectoryStore, root: Path, length: int, skip: int) -> None:
    """Whatever the kernel takes past its page cache."""
    with mmap.mmap(-1, length + skip) as memory, memoryview(memory) as whole, whole[skip:] as data:
        data[:] = random.Random(length).randbytes(length)
        store.put("put", data)
        store.put_if_absent("created", data)
        assert store.get("put") == store.get("created") == data
    assert left_over(root) == []


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_a_file_system_that_writes_through_its_cache_only(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """Some say so when they are asked (0), others when it is tried, or only at a later write."""
    real_write, real_fcntl, writes = os.write, fcntl.fcntl, 0

    def set_flags(fd: int, command: int, argument: int = 0) -> int:
        if refused == 0 and command == fcntl.F_SETFL and argument & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real_fcntl(fd, command, argument)

    def write(fd: int, data: memoryview) -> int:
        nonlocal writes
        if real_fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            writes += 1
            if writes >= refused:
                raise OSError(errno.EINVAL, "Invalid argument")
        return real_write(fd, data[: 1 << 20])

    monkeypatch.setattr(fcntl, "fcntl", set_flags)
    monkeypatch.setattr(os, "write", write)
    with mmap.mmap(-1, 3 << 20) as data:
        data[:] = random.Random(refused).randbytes(len(data))
        with memoryview(data) as view:
            store.put("key", view)
        assert store.get("key") == data[:]


def test_a_pack_takes_no_place_in_the_page_cache(store: DirectoryStore, root: Path) -> None:
    with mmap.mmap(-1, 16 << 20) as memory, memoryview(memory) as data:
        data[:] = random.Random(1).randbytes(len(data))
        store.put("key", data[: (16 << 20) - 100])
        assert _cached_pages(root / "key") <= 1  # the end, which fills no page

        def cached_after_an_unaligned_put() -> int:
            """Another test may drop the machine's caches between the two."""
            store.put("key", data[1 : 1 + (1 << 20)])
            return _cached_pages(root / "key")

        assert any(cached_after_an_unaligned_put() > 1 for _ in range(100)), "this test could not see any"


def _cached_pages(path: Path) -> int:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        found = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(mapped)
        assert ctypes.CDLL(None).mincore(ctypes.byref(start), ctypes.c_size_t(len(mapped)), found) == 0
        del start
        return sum(page & 1 for page in found)


def test_a_lost_reply_of_link_is_recognised(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS: the request did its work, its repetition failed."""
    real = os.link

    def link(source: str, target: str, **options: Any) -> None:
        real(source, target, **options)
        raise FileExistsError(errno.EEXIST, "exists", target)

    monkeypatch.setattr(os, "link", link)
    store.put_if_absent("key", b"x")
    assert store.get("key") == b"x"


def test_a_file_system_without_links_is_refused(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: str, target: str, **options: Any) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(InvalidInputError, match="hard links"):
        store.put_if_absent("key", b"x")
    assert store.size("key") is None


def test_a_directory_removed_behind_our_back_comes_back(store: DirectoryStore, root: Path) -> None:
    store.put("a/b/one", b"x")
    (root / "a/b/one").unlink()
    (root / "a/b").rmdir()
    (root / INCOMING).rmdir()
    store.put_if_absent("a/b/two", b"x")
    assert [info.key for info in store.list("")] == ["a/b/two"]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, NoSpaceError),
        (errno.EDQUOT, NoSpaceError),
        (errno.EFBIG, NoSpaceError),
        (errno.EACCES, AccessDeniedError),
        (errno.EROFS, ReadOnlyError),
        (errno.EIO, UnavailableError),
        (errno.ESTALE, UnavailableError),
    ],
)
@pytest.mark.parametrize("method", ["put", "put_if_absent"])
def test_errors_of_the_disk(
    store: DirectoryStore,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    number: int,
    expected: type[Exception],
) -> None:
    def fsync(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(expected, match="key") as caught:
        getattr(store, method)("key", b"x")
    assert caught.value.hint  # type: ignore[attr-defined]
    monkeypatch.undo()
    assert store.size("key") is None
    assert left_over(root) == []


def test_a_full_disk(tmp_path: Path) -> None:
    """A real one: a file system of 1 MiB, in a mount namespace of its own."""
    program = (
        "import sys; from cowfs.store import open_store; from cowfs.errors import NoSpaceError\n"
        "store = open_store(sys.argv[1]); store.put('small', b'x')\n"
        "for call in (store.put, store.put_if_absent):\n"
        "    try: call('large', bytes(2 << 20))\n"
        "    except NoSpaceError as error: print(error.kind)\n"
        "assert store.size('large') is None and store.get('small') == b'x'\n"
        "store.put('after', bytes(1 << 18)); print([info.key for info in store.list('')])\n"
    )
    script = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, program],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "no_space\nno_space\n['after', 'small']\n", done.stderr


def test_a_read_only_file_system(tmp_path: Path) -> None:
    program = (
        "import sys; from cowfs.store import open_store; from cowfs.errors import ReadOnlyError\n"
        "store = open_store(sys.argv[1])\n"
        "for call in (store.put, store.put_if_absent):\n"
        "    try: call('key', b'y')\n"
        "    except ReadOnlyError as error: print(error.kind)\n"
        "print(store.get('object'))\n"
    )
    (tmp_path / "object").write_bytes(b"x")
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(tmp_path), sys.executable, program],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "read_only\nread_only\nb'x'\n", done.stderr


def test_new_objects_obey_the_umask(store: DirectoryStore, root: Path) -> None:
    before = os.umask(0o027)
    try:
        store.put("key", b"x")
    finally:
        os.umask(before)
    assert (root / "key").stat().st_mode & 0o777 == 0o640


def test_the_default_store_is_its_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has what private files of a mount hold."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    before = os.umask(0o022)
    try:
        own, named = config.data_dir() / "store", tmp_path / "shared" / "store"
        for root in (own, named):
            create_root(root, url=root.as_uri())
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (own, own.parent, named)] == [0o700, 0o700, 0o755]


def test_a_store_whose_root_others_may_write_to_is_shared() -> None:
    """By users whose umask keeps others out."""
    if os.geteuid() != 0:
        pytest.skip("only root can be several users")
    with tempfile.TemporaryDirectory() as directory:  # tmp_path is closed to others
        root = Path(directory)
        root.chmod(0o1777)
        for user in (12345, 12346, 12345):
            child = os.fork()
            if child == 0:
                os._exit(_use(root, user))
            assert os.waitpid(child, 0)[1] == 0
        assert DirectoryStore(root, url="file:///x").get("a/b/changing") == b"12345"


def _use(root: Path, user: int) -> int:
    try:
        os.umask(0o077)
        os.setgid(user)
        os.setuid(user)
        store = DirectoryStore(root, url="file:///x")
        store.put("a/b/changing", b"%d" % user)
        store.put_if_absent(f"a/b/{os.getpid()}", b"x")
        assert all(store.get(each.key) for each in store.list("a/"))
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def test_what_another_user_has_closed_is_named() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be several users")
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        root.chmod(0o755)
        DirectoryStore(root, url="file:///x").put("a/key", b"x")
        (root / "a" / "key").chmod(0o600)
        child = os.fork()
        if child == 0:
            os.setuid(12345)
            try:
                DirectoryStore(root, url="file:///x").get("a/key")
            except AccessDeniedError as error:
                os._exit(0 if str(root / "a" / "key") in error.message else 2)
            os._exit(3)
        assert os.waitpid(child, 0)[1] == 0


def test_listing_one_key_stats_one_file(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        store.put(f"ref/{number:02}", b"")
    stats: list[str] = []
    real = os.stat

    def stat(path: str, **options: Any) -> os.stat_result:
        stats.append(path)
        return real(path, **options)

    monkeypatch.setattr(os, "stat", stat)
    assert [info.key for info in store.list("ref/", limit=1)] == ["ref/00"]
    assert len(stats) == 1


def head(number: int) -> str:
    return keys.head("v", number)


STRANGE: dict[str, Callable[[Path, Path], None]] = {
    "link": lambda path, canary: path.symlink_to(canary),
    "link to nowhere": lambda path, canary: path.symlink_to("nowhere"),
    "loop": lambda path, canary: path.symlink_to(path.name),
    "pipe": lambda path, canary: os.mkfifo(path),
    "directory": lambda path, canary: path.mkdir(),
    "file": lambda path, canary: path.touch(),
}


@pytest.mark.parametrize(
    ("level", "kind"),
    [
        *(
            (level, kind)
            for level in ("volumes", "volumes/v", "volumes/v/head")
            for kind in sorted(STRANGE.keys() - {"directory"})
        ),
        *((head(1), kind) for kind in sorted(STRANGE.keys() - {"file"})),
    ],
)
def test_a_strange_entry_is_named_and_never_counts_as_absent(
    store: DirectoryStore, root: Path, tmp_path: Path, level: str, kind: str
) -> None:
    canary = tmp_path / "canary"
    canary.mkdir()
    store.put(head(1), b"x")
    away = tmp_path / "away"
    (root / level).rename(away)
    if kind == "link":
        canary = away
    STRANGE[kind](root / level, canary)
    before = (os.lstat(root / level), sorted(canary.rglob("*")))
    for call in (
        partial(store.get, head(1)),
        partial(store.get_range, head(1), 0, 1),
        lambda: [*store.stream_range(head(1), 0, 1)],
        partial(store.size, head(1)),
        partial(store.list, keys.head_prefix("v")),
        partial(store.list, keys.VOLUMES),
        partial(store.put, head(1), b"y"),
        partial(store.put_if_absent, head(1), b"y"),
        partial(store.delete, [head(1)]),
    ):
        with pytest.raises(CorruptError, match=f"{level} is a") as caught:
            call()
        assert caught.value.hint
    assert (os.lstat(root / level), sorted(canary.rglob("*"))) == before


@pytest.mark.parametrize("kind", ["link", "link to nowhere", "loop", "pipe"])
def test_what_is_none_of_ours_is_left_out(store: DirectoryStore, root: Path, tmp_path: Path, kind: str) -> None:
    store.put("ref/1", b"")
    store.put("ref/3", b"")
    STRANGE[kind](root / "ref/2", tmp_path)
    STRANGE[kind](root / "README", tmp_path)
    assert [info.key for info in store.list("")] == ["ref/1", "ref/3"]
    with pytest.raises(CorruptError, match="ref/2 is a"):
        store.get("ref/2")


def test_the_directory_of_new_files_is_not_a_link(store: DirectoryStore, root: Path, tmp_path: Path) -> None:
    (tmp_path / "canary").mkdir()
    leftovers(tmp_path / "canary")
    before = sorted((tmp_path / "canary").rglob("*"))
    (root / INCOMING).symlink_to(tmp_path / "canary" / INCOMING)
    with pytest.raises(CorruptError, match=f"{INCOMING} is a symbolic link"):
        store.put("key", b"x")
    assert sorted((tmp_path / "canary").rglob("*")) == before


def test_directories_of_a_shared_store_have_their_mode_from_the_start(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.chmod(0o777)
    real = os.rename

    def rename(source: str, target: str, **options: Any) -> None:
        assert stat.S_IMODE(os.stat(source, dir_fd=options["src_dir_fd"]).st_mode) == 0o777
        real(source, target, **options)

    monkeypatch.setattr(os, "rename", rename)
    before = os.umask(0o077)
    try:
        DirectoryStore(root, url="file:///x").put_if_absent("a/b/key", b"x")
    finally:
        os.umask(before)
    for path in ("a", "a/b", INCOMING):
        assert stat.S_IMODE((root / path).stat().st_mode) == 0o777
    assert sorted(os.listdir(root)) == [INCOMING, "a"]


def test_a_large_object_is_refused_before_it_is_read(store: DirectoryStore, root: Path) -> None:
    store.put(head(1), b"x")
    os.truncate(root / head(1), 30 << 30)
    with pytest.raises(CorruptError, match=rf"{head(1)} has {30 << 30} bytes, more than the limit of \d+") as caught:
        store.get(head(1))
    assert caught.value.hint
    with pytest.raises(CorruptError, match="more than the"):
        store.get_range(head(1), 10, 1 << 30)


def test_opening(tmp_path: Path) -> None:
    missing = tmp_path / "deep" / "store"
    with pytest.raises(NotFoundError, match=str(missing)) as caught:
        open_store(str(missing))
    assert caught.value.hint
    created = open_store(str(missing), create=True)
    assert missing.is_dir()
    assert open_store(missing.as_uri()).url == created.url == missing.as_uri()
    (tmp_path / "file").write_bytes(b"")
    for create in (False, True):
        with pytest.raises((InvalidInputError, NotFoundError)):
            open_store(str(tmp_path / "file"), create=create)


def test_names_with_spaces_and_other_letters(tmp_path: Path) -> None:
    place = tmp_path / "räume & more;x=1 #%"
    store: ObjectStore = open_store(str(place), create=True)
    store.put("key", b"x")
    assert open_store(store.url).get("key") == b"x"
    assert [path.name for path in place.iterdir() if path.name != INCOMING] == ["key"]


@pytest.mark.parametrize("is_made_by_it", [True, False])
@pytest.mark.parametrize("by", ["another store", "nothing", "no directory"])
def test_nothing_gets_into_what_took_the_place_of_the_store(by: str, is_made_by_it: bool, tmp_path: Path) -> None:
    """As after a disk was changed, or unmounted."""
    place, away, other = tmp_path / "store", tmp_path / "away", tmp_path / "other"
    for directory in (place, other):
        directory.mkdir()
    if not is_made_by_it:
        (place / keys.STORE).write_bytes(b"ours")
    if by == "another store":
        (other / keys.STORE).write_bytes(b"theirs")
        (other / "a").write_bytes(b"theirs")
    store = DirectoryStore(place, url=f"file://{place}")
    if is_made_by_it:
        store.put_if_absent(keys.STORE, b"ours")
    store.put("a", b"one")
    place.rename(away)
    if by != "no directory":
        other.rename(place)
    before = sorted(place.rglob("*"))
    for change in (
        partial(store.put, "a", b"x"),
        partial(store.put_if_absent, "b", b"x"),
        partial(store.delete, ["a"]),
    ):
        with pytest.raises(InvalidStateError, match="has not the store any more"):
            change()
    assert sorted(place.rglob("*")) == before
    if by != "no directory":
        place.rename(other)
    shutil.copytree(away, place)  # the same store, on another disk
    store.put("b", b"two")
    assert (store.get("a"), store.get("b")) == (b"one", b"two")


def test_a_store_that_is_made_meanwhile_is_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DirectoryStore(tmp_path, url=f"file://{tmp_path}")
    read, has_read = DirectoryStore._read_record, threading.Event()

    def read_slowly(self: DirectoryStore, root: Root) -> bytes | None:
        found = read(self, root)
        if found is None:
            has_read.set()
            time.sleep(0.3)  # the other thread finds the record
        return found

    monkeypatch.setattr(DirectoryStore, "_read_record", read_slowly)
    with ThreadPoolExecutor() as pool:
        early = pool.submit(store.size, "a")
        assert has_read.wait(60)
        (tmp_path / keys.STORE).write_bytes(b"of another process")
        assert store.size("a") is None
        assert early.result() is None


def test_a_store_on_two_file_systems_is_not_written(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "rename", refuse)
    for put in (store.put, store.put_if_absent):
        with pytest.raises(InvalidInputError, match="file system"):
            put("packs/key", b"x")
