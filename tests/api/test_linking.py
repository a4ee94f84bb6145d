"""Links: nothing is read but the listing; bytes are those that were listed, or an error for that
file alone, by `files`, in a mount of either server, and in a fork; what is written on top is
kept."""

from __future__ import annotations

import errno
import os
import random
import signal
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cowfs import storage
from cowfs.api.transfers import importing
from cowfs.blocking import ROVolume, RWVolume, Store, Volume
from cowfs.errors import AccessDeniedError, InvalidInputError, SourceChangedError
from cowfs.format.manifest import LINKS
from cowfs.index import Link
from cowfs.machine.processes import wait_gone
from tests.api.conftest import place
from tests.object_server import ObjectServer

__all__ = ["place"]

BIG = random.Random(1).randbytes(5_500_000)
SERVERS = [pytest.param(True, id="lane"), pytest.param(False, id="pyfuse3")]


@pytest.fixture
def server(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "cowfs-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret-at-all")
    with ObjectServer() as server:
        server.put("data/big", BIG)
        server.put("data/dir/a", b"a" * 1000)
        server.put("data/dir/b", b"b" * 1000)
        server.put("data/empty", b"")
        yield server


@pytest.fixture
def version(server: ObjectServer) -> ROVolume:
    return Store().import_(server.url("data"), "linked", link=True)


def contents(version: ROVolume | RWVolume) -> dict[str, bytes]:
    return {
        entry.path: version.files.read(entry.path) for entry in version.files.ls(recursive=True) if entry.type == "file"
    }


WHOLE = {"/big": BIG, "/dir/a": b"a" * 1000, "/dir/b": b"b" * 1000, "/empty": b""}


def test_ten_thousand_objects_are_linked_without_reading_one(server: ObjectServer) -> None:
    server.objects.clear()
    for number in range(10_000):
        server.put(f"many/{number % 100:02}/{number:05}", b"%d" % number)
    version = Store().import_(server.url("many"), "many", link=True)
    assert (version.stats.files, version.stats.linked_bytes) == (10_000, version.stats.bytes)
    assert [name for name, _ in server.requests] == ["LIST"] * 10
    server.put("many/07/00007", b"8")  # of the same size
    del server.objects["many/08/00008"]
    for path, is_gone in (("/07/00007", False), ("/08/00008", True)):
        with pytest.raises(SourceChangedError) as caught:
            version.files.read(path)
        assert caught.value.kind == "source_changed"
        assert caught.value.details["gone"] == is_gone
    assert version.files.read("/09/00009") == b"9"
    fork = version.fork("fork")
    with pytest.raises(SourceChangedError):
        fork.files.read("/07/00007")
    assert fork.files.read("/10/00010") == b"10"
    server.requests.clear()
    again = Store().import_(server.url("many"), "many", link=True)
    assert [name for name, _ in server.requests] == ["LIST"] * 10
    assert again.is_new
    assert again.files.read("/07/00007") == b"8"
    assert next(iter(version.files.ls("/08"))).size == 1, "the listing of a version never changes"


def test_bytes_are_those_of_the_objects_and_reads_have_conditions(server: ObjectServer, version: ROVolume) -> None:
    assert server.asked("GET") == []
    assert contents(version) == WHOLE
    assert all("If-Match" in headers for headers in server.headers)
    assert version.files.read("/big", 4_000_000, 10) == BIG[4_000_000:4_000_010]
    assert not Store().import_(server.url("data"), "linked", link=True).is_new
    assert version.stats.linked_bytes == len(BIG) + 2000


def test_the_manifest_says_that_there_are_links(version: ROVolume) -> None:
    assert version._fetch().requires == (LINKS,)
    assert Volume.new("plain").commit()._fetch().requires == ()


def test_a_download_fails_for_what_changed_and_nothing_else(
    server: ObjectServer, version: ROVolume, place: Path
) -> None:
    version.files.download("/", place / "out")
    assert (place / "out" / "big").read_bytes() == BIG
    server.put("data/dir/a", b"A" * 1000)
    with pytest.raises(SourceChangedError, match="dir/a"):
        version.files.download("/", place / "again")
    version.files.download("/big", place / "one")
    assert (place / "one").read_bytes() == BIG


@pytest.mark.mount
@pytest.mark.parametrize("fast_lane", SERVERS)
def test_a_mount_serves_links_and_a_changed_object_fails_alone(
    server: ObjectServer, version: ROVolume, place: Path, fast_lane: bool
) -> None:
    del server.objects["data/dir/b"]
    root = version.mount(place / "mnt" / "ro", fast_lane=fast_lane)
    try:
        assert (root / "big").read_bytes() == BIG
        assert os.stat(root / "big").st_blocks * 512 >= len(BIG)
        with pytest.raises(OSError, match="Input/output") as caught:
            (root / "dir" / "b").read_bytes()
        assert caught.value.errno == errno.EIO
        assert (root / "dir" / "a").read_bytes() == b"a" * 1000
    finally:
        version.unmount()


@pytest.mark.mount
@pytest.mark.parametrize("fast_lane", SERVERS)
def test_what_is_written_over_a_link_is_an_ordinary_file(
    server: ObjectServer, version: ROVolume, place: Path, fast_lane: bool
) -> None:
    """In a fork, whose other files stay links."""
    fork = version.fork("fork")
    root = fork.mount(place / "mnt" / "rw", fast_lane=fast_lane)
    with open(root / "big", "r+b") as big:
        big.seek(3_000_000)
        big.write(b"written")
    (root / "dir" / "a").rename(root / "renamed")
    (root / "own").write_bytes(b"own")
    (root / "dir" / "b").chmod(0o600)
    done = fork.commit("on top")
    fork.unmount()
    expected = BIG[:3_000_000] + b"written" + BIG[3_000_007:]
    assert done.stats.linked_bytes == 2000
    server.put("data/big", b"other")
    assert contents(done) == {
        "/big": expected,
        "/renamed": b"a" * 1000,
        "/dir/b": b"b" * 1000,
        "/own": b"own",
        "/empty": b"",
    }
    assert done.files.stat("/dir/b").mode & 0o777 == 0o600


@pytest.mark.mount
def test_kill_9_loses_no_copy_of_linked_bytes(server: ObjectServer, version: ROVolume, place: Path) -> None:
    """A copy inside of a mount shares the link's bytes; so does the journal, also after a commit
    that has turned the link into a file."""
    volume = version.fork("fork")
    root = volume.mount(place / "mnt" / "rw")
    with open(root / "big", "rb") as big, open(root / "copy", "wb") as copy:
        os.copy_file_range(big.fileno(), copy.fileno(), len(BIG))
    with open(root / "dir" / "a", "rb") as held:
        (root / "dir" / "a").unlink()
        volume.commit()
        with open(root / "late", "wb") as late:
            os.copy_file_range(held.fileno(), late.fileno(), 1000)
    entry = volume._handle.live()
    assert entry is not None
    os.kill(entry.pid, signal.SIGKILL)
    assert wait_gone(entry.pid, 60)
    root = volume.mount(place / "mnt" / "rw")
    assert (root / "copy").read_bytes() == BIG
    assert (root / "late").read_bytes() == b"a" * 1000
    done = volume.finalize()
    server.objects.clear()
    assert done.files.read("/copy") == BIG
    assert done.files.read("/late") == b"a" * 1000


def test_a_commit_that_needs_a_changed_object_says_so_and_keeps_the_work(
    server: ObjectServer, version: ROVolume
) -> None:
    volume = version.fork("fork")
    with volume.files.open("/dir/a", "r+b") as file:
        file.write(b"begin")
    server.put("data/dir/a", b"A" * 1000)
    with pytest.raises(SourceChangedError) as caught:
        volume.commit()
    assert "overwrite all of it" in caught.value.hint
    volume.files.write("/other", b"kept")
    volume.files.remove("/dir/a")
    done = volume.commit()
    assert sorted(contents(done)) == ["/big", "/dir/b", "/empty", "/other"]


def test_versions_with_links_are_compared_by_the_states_that_they_link(server: ObjectServer, version: ROVolume) -> None:
    server.put("data/dir/a", b"A" * 1000)  # of the same size and time
    server.put("data/new", b"new")
    second = Store().import_(server.url("data"), "linked", link=True)
    server.requests.clear()
    found = {(each.kind, each.path): each.what for each in version.diff(second)}
    assert found == {("changed", "/dir/a"): ("content",), ("added", "/new"): ()}
    assert list(version.diff(version)) == []
    assert server.requests == []


def test_absorbed_a_version_needs_nothing_else(server: ObjectServer, version: ROVolume) -> None:
    done = Store().absorb("linked", message="own")
    absorbed = Volume.from_locator(done.locator)
    assert (done.is_new, absorbed.stats.linked_bytes, absorbed._fetch().requires) == (True, 0, ())
    assert absorbed.files.stat("/big").mtime_ns == version.files.stat("/big").mtime_ns
    server.objects.clear()
    assert contents(absorbed) == WHOLE
    assert not Store().absorb("linked").is_new


def test_absorbing_what_changed_publishes_nothing(server: ObjectServer, version: ROVolume) -> None:
    assert version.files.read("/dir/a") == b"a" * 1000
    server.put("data/dir/a", b"A" * 1000)
    with pytest.raises(SourceChangedError, match="dir/a") as caught:
        Store().absorb("linked")
    assert version.files.read("/dir/a") == b"a" * 1000, "the cache has it"
    assert "only the parts of this file that a cache still holds" in caught.value.hint
    assert [each.id for each in Volume.open("linked").history()] == [version.id]


def test_a_copying_import_takes_the_place_of_links(server: ObjectServer, version: ROVolume) -> None:
    copied = Store().import_(server.url("data"), "linked")
    assert (copied.is_new, copied.stats.linked_bytes) == (True, 0)
    server.objects.clear()
    assert contents(copied) == WHOLE


@pytest.mark.parametrize("fast_lane", [pytest.param(None, id="files"), *SERVERS])
def test_links_in_an_encrypted_store(server: ObjectServer, place: Path, fast_lane: bool | None) -> None:
    """Which objects are linked is nobody's business who has no key."""
    store = storage.Storage((place / "sealed").as_uri(), encryption_key="a passphrase that is found nowhere")
    version = Store(storage=store).import_(server.url("data"), "linked", link=True)
    assert server.asked("GET") == []
    stored = b"".join(each.read_bytes() for each in (place / "sealed").rglob("*") if each.is_file())
    assert not any(text.encode() in stored for text in ("dir/a", server.url("data").partition(";")[0], "big"))
    assert contents(version) == WHOLE
    fork = version.fork("fork")
    if fast_lane is None:
        fork.files.append("/dir/b", b"!")
    else:
        root = fork.mount(place / "mnt" / "fork", fast_lane=fast_lane)
        with (root / "dir" / "b").open("ab") as file:
            file.write(b"!")
    changed = fork.finalize()
    assert changed.stats.linked_bytes == len(BIG) + 1000
    server.put("data/new", b"1")
    linked = Store(storage=store).import_(server.url("data"), "linked", link=True)
    server.put("data/new", b"2")
    with pytest.raises(SourceChangedError):
        linked.files.read("/new")
    assert contents(changed) == {**WHOLE, "/dir/b": b"b" * 1000 + b"!"}
    Store(storage=store).absorb("fork")
    server.objects.clear()
    assert contents(Volume.version("fork", store=store)) == {**WHOLE, "/dir/b": b"b" * 1000 + b"!"}


def test_a_copy_has_the_bytes_of_links_and_leaves_them_links(
    server: ObjectServer, version: ROVolume, place: Path
) -> None:
    """What nobody writes to is a link still in the next version, and not read for it."""
    root = version.mount(place / "mnt" / "ro", mode="copy")
    assert (root / "big").read_bytes() == BIG
    version.unmount()
    volume = Volume.open("linked")
    root = volume.mount(place / "mnt" / "rw", mode="copy")
    assert {f"/{each.relative_to(root)}": each.read_bytes() for each in root.rglob("*") if each.is_file()} == WHOLE
    with (root / "dir" / "b").open("ab") as file:
        file.write(b"!")
    (root / "dir" / "a").rename(root / "moved")
    server.requests.clear()
    changed = volume.commit()
    assert server.asked("GET") == []
    assert contents(changed) == {
        "/big": BIG, "/dir/b": b"b" * 1000 + b"!", "/empty": b"", "/moved": b"a" * 1000
    }  # fmt: skip
    assert changed.stats.linked_bytes == len(BIG)
    volume.unmount()
    server.put("data/big", BIG[::-1])
    with pytest.raises(SourceChangedError, match="big"):
        volume.mount(mode="copy")
    assert not volume.has_changes()
    assert changed.files.read("/moved") == b"a" * 1000


def test_a_local_directory(place: Path) -> None:
    tree = place / "tree"
    (tree / "dir").mkdir(parents=True)
    (tree / "dir" / "a").write_bytes(b"a" * 1000)
    (tree / "dir" / "a").chmod(0o700)
    (tree / "b").write_bytes(BIG)
    (tree / "link").symlink_to("b")
    os.utime(tree / "b", ns=(-5, -5))  # before 1970
    version = Store().import_(tree, "linked", link=True)
    assert version.files.stat("/b").mtime_ns == -5
    assert version.stats.linked_bytes == len(BIG) + 1000
    assert version.files.read("/link") == BIG
    assert version.files.stat("/dir/a").mode & 0o777 == 0o700
    (tree / "dir" / "a").write_bytes(b"A" * 1000)
    with pytest.raises(SourceChangedError):
        version.files.read("/dir/a")
    assert version.files.read("/b") == BIG


def test_a_time_that_a_version_cannot_keep_is_no_other_state(place: Path) -> None:
    (place / "tree").mkdir()
    (place / "tree" / "a").write_bytes(b"a")
    os.utime(place / "tree" / "a", (10_000_000_000, 10_000_000_000))  # in 2286
    assert Store().import_(place / "tree", "linked", link=True).files.read("/a") == b"a"


def test_a_version_from_elsewhere_shows_nothing_of_this_machines_disk(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "secret").mkdir()
    (place / "secret" / "key").write_bytes(b"secret")
    version = Store().import_(place / "secret", "linked", link=True)
    monkeypatch.setenv("HOME", str(place / "other-home"))
    monkeypatch.setattr("cowfs.store.credentials.trust._named", set())
    with pytest.raises(AccessDeniedError, match="place of this machine"):
        version.files.read("/key")


@pytest.mark.parametrize("way", ["..", "link"])
def test_a_version_from_elsewhere_leads_nowhere_out_of_a_directory_that_was_linked(
    place: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    (place / "secret").mkdir()
    (place / "secret" / "key").write_bytes(b"secret")
    tree = place / "tree"
    tree.mkdir()
    (tree / "key").write_bytes(b"public")
    (tree / "link").symlink_to(place / "secret")
    Store().import_(tree, "mine", link=True)
    mtime_ns = (place / "secret" / "key").stat().st_mtime_ns

    def crafted(directory: str) -> object:
        url, key = (f"{tree.as_uri()}/link", b"key") if way == "link" else (tree.as_uri(), b"../secret/key")
        return lambda path, attr: Link(url, key, len(b"secret"), mtime_ns, str(mtime_ns))

    with monkeypatch.context() as patch:
        patch.setattr(importing, "_local_links", crafted)
        version = Store().import_(tree, "theirs", link=True)
    with pytest.raises((AccessDeniedError, SourceChangedError)):
        version.files.read("/key")
    assert Volume.version("mine").files.read("/key") == b"public"


@pytest.fixture
def web(place: Path) -> Iterator[str]:
    """A web server that knows neither ETags nor conditions, and no ranges."""
    tree = place / "web"
    (tree / "dir" / "sub dir").mkdir(parents=True)
    (tree / "dir" / "a").write_bytes(b"a" * 1000)
    (tree / "dir" / "sub dir" / "ä b").write_bytes(BIG[:100_000])
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(tree))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/dir/"
        server.shutdown()
        thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Not on stderr."""


def test_a_web_directory(place: Path, web: str) -> None:
    version = Store().import_(web, "linked", link=True)
    assert contents(version) == {"/a": b"a" * 1000, "/sub dir/ä b": BIG[:100_000]}
    assert not Store().import_(web, "linked", link=True).is_new
    os.utime(place / "web" / "dir" / "a", (1, 1))
    with pytest.raises(SourceChangedError):  # a download uses no cache
        version.files.download("/a", place / "out")
    copied = Store().import_(f"{web}a", "one")
    assert contents(copied) == {"/a": b"a" * 1000}


def test_what_nobody_else_finds_is_not_linked(place: Path) -> None:
    with zipfile.ZipFile(place / "some.zip", "w") as archive:
        archive.writestr("a.txt", "a")
    with pytest.raises(InvalidInputError, match="cannot be linked"):
        Store().import_(f"zip://::{place}/some.zip", "linked", link=True)
