"""Imports: the version is what was listed; what did not change is not read again; names that no
file can have are refused before anything is; an object that changes meanwhile is noticed."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import unquote_to_bytes

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from cowfs import blocking, storage
from cowfs.blocking import ROVolume, Store, Volume
from cowfs.errors import (
    ConflictError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    SourceChangedError,
    UnavailableError,
)
from cowfs.store.origin import OriginObject, open_origin
from cowfs.store.origin.s3 import S3Origin
from cowfs.store.reliability.damaged import ASKS
from cowfs.store.reliability.patience import Patience
from tests.api.conftest import place
from tests.object_server import MTIME_S, ObjectServer
from tests.seaweedfs import SeaweedFS

__all__ = ["place"]

BIG = random.Random(1).randbytes(9_000_000)


@pytest.fixture
def server(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "cowfs-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret-at-all")
    with ObjectServer() as server:
        yield server


def contents(version: ROVolume) -> dict[str, bytes]:
    return {
        entry.path: version.files.read(entry.path) for entry in version.files.ls(recursive=True) if entry.type == "file"
    }


def test_a_prefix_becomes_a_version_and_is_read_once(server: ObjectServer) -> None:
    server.put("data/a", b"a" * 1000)
    server.put("data/dir/big", BIG)
    server.put("data/dir/sub/e m", b"")
    server.put("data/marker/", b"")
    server.put("other", b"not below it")
    version = Store().import_(server.url("data"), "copy", message="first")
    assert version.is_new
    assert contents(version) == {"/a": b"a" * 1000, "/dir/big": BIG, "/dir/sub/e m": b""}
    assert version.files.stat("/marker").type == "directory"
    assert version.files.stat("/a").mtime_ns == MTIME_S * 10**9
    assert set(server.asked("GET")) == {"data/a", "data/dir/big"}
    assert all("If-Match" in headers for headers in server.headers)
    server.requests.clear()
    again = Store().import_(server.url("data"), "copy")
    assert (again.is_new, again.id) == (False, version.id)
    assert [name for name, _ in server.requests] == ["LIST"], "one listing, and nothing is looked at or read"


def test_what_changed_makes_a_version_and_what_is_gone_stays_unless_it_is_to_go(server: ObjectServer) -> None:
    for name in "abc":
        server.put(name, name.encode() * 100)
    Store().import_(server.url(), "copy")
    server.requests.clear()
    server.put("b", b"B" * 100)  # of the same size and time: the ETag tells
    del server.objects["c"]
    second = Store().import_(server.url(), "copy")
    assert server.asked("GET") == ["b"]
    assert contents(second) == {"/a": b"a" * 100, "/b": b"B" * 100, "/c": b"c" * 100}
    third = Store().import_(server.url(), "copy", delete=True)
    assert sorted(contents(third)) == ["/a", "/b"]


def test_a_time_that_no_file_can_have_is_none(server: ObjectServer) -> None:
    server.put("a", b"a", mtime_s=-62_135_596_800)  # the year 1
    for link in (False, True):
        version = Store().import_(server.url(), f"copy-{link}", link=link)
        assert version.files.read("a") == b"a"
        assert version.files.stat("a").mtime_ns == 0


def test_one_object_is_one_file(server: ObjectServer) -> None:
    server.put("dir/model.bin", b"model")
    assert contents(Store().import_(server.url("dir/model.bin"), "one")) == {"/model.bin": b"model"}


@pytest.mark.parametrize("key", ["a//b", "./x", "up/../x", "/lead", "x" * 300, "file/", "both"])
def test_names_that_no_file_can_have_are_refused_before_anything_is_read(server: ObjectServer, key: str) -> None:
    server.put("both/inside", b"1")
    server.put(key, b"bytes")
    with pytest.raises(InvalidInputError, match="cannot be file names"):
        Store().import_(server.url(), "copy")
    assert server.asked("GET") == []
    with pytest.raises(NotFoundError):
        Store().describe("copy")


def test_names_that_are_excluded_are_no_hindrance(server: ObjectServer) -> None:
    server.put("good", b"1")
    server.put("bad//name", b"2")
    server.put("both", b"3")
    server.put("both/inside", b"4")
    assert sorted(contents(Store().import_(server.url(), "copy", exclude=["/bad/", "both/"]))) == ["/both", "/good"]


def test_nothing_there_makes_no_volume(server: ObjectServer) -> None:
    with pytest.raises(NotFoundError, match="nothing at"):
        Store().import_(server.url("none"), "copy")
    with pytest.raises(NotFoundError):
        Store().describe("copy")


@pytest.mark.parametrize("ignores_conditions", [False, True])
def test_an_object_that_is_replaced_meanwhile_is_read_anew(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, ignores_conditions: bool
) -> None:
    """Its ranges are never of two states."""
    server.ignores_conditions = ignores_conditions
    other = random.Random(2).randbytes(len(BIG))
    server.put("big", BIG)
    really_read, reads = S3Origin.read, [0]

    def read(self: S3Origin, found: OriginObject, offset: int, length: int) -> bytes:
        reads[0] += 1
        if reads[0] == 3:
            server.put("big", other)
        return really_read(self, found, offset, length)

    monkeypatch.setattr(S3Origin, "read", read)
    assert contents(Store().import_(server.url(), "copy")) == {"/big": other}


def test_an_object_that_never_stands_still_publishes_nothing(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.put("busy", b"0")
    really_read, reads = S3Origin.read, [0]

    def read(self: S3Origin, found: OriginObject, offset: int, length: int) -> bytes:
        reads[0] += 1
        server.put("busy", str(reads[0]).encode())
        return really_read(self, found, offset, length)

    monkeypatch.setattr(S3Origin, "read", read)
    with pytest.raises(ConflictError, match="written to while it was read") as caught:
        Store().import_(server.url(), "copy")
    assert "Import again" in caught.value.hint
    assert Volume.open("copy").history() == []


@pytest.mark.parametrize("data", [b"small", BIG])
def test_an_answer_that_is_cut_is_asked_for_again(server: ObjectServer, data: bytes) -> None:
    """With a length that says no more, and the object stands still: nobody has written to it."""
    server.put("a", data)
    for link in (False, True):
        server.cuts = 3
        version = Store().import_(server.url(), f"copy-{link}", link=link)
        assert contents(version) == {"/a": data}
        assert server.cuts == 0
    server.cuts = 1
    assert open_origin(server.url()).read(OriginObject("a", len(data), 0, server.objects["a"].etag), 1, 4) == data[1:5]


def test_answers_that_are_always_cut_are_called_so(server: ObjectServer) -> None:
    server.put("a", BIG)
    server.cuts = math.inf
    with pytest.raises(CorruptError, match=r"a was read in part.*has not changed") as caught:
        Store().import_(server.url(), "copy")
    assert "asked for again" in caught.value.hint
    assert Volume.open("copy").history() == []
    linked = Store().import_(server.url(), "linked", link=True)
    with pytest.raises(CorruptError, match="has not changed"):
        linked.files.read("a")
    server.cuts = 0
    assert contents(Store().import_(server.url(), "copy")) == {"/a": BIG}


@pytest.mark.parametrize("link", [False, True])
def test_another_range_than_was_asked_for_is_no_content(server: ObjectServer, link: bool) -> None:
    """As caches on the way give; with length and ETag of what was asked for."""
    server.put("a", BIG)
    server.misplaced = 2
    assert contents(Store().import_(server.url(), f"copy-{link}", link=link)) == {"/a": BIG}
    assert server.misplaced == 0
    server.put("b", BIG[::-1])
    server.misplaced = math.inf
    with pytest.raises(CorruptError, match="another range"):
        contents(Store().import_(server.url(), f"copy-{link}", link=link))
    server.misplaced = 0
    assert contents(Store().import_(server.url(), f"copy-{link}", link=link)) == {"/a": BIG, "/b": BIG[::-1]}


@pytest.mark.parametrize("kind", ["s3", "web"])
def test_another_range_of_an_object_that_was_replaced(server: ObjectServer, kind: str) -> None:
    """Which of both it is, is told; by a server that ignores conditions, too."""
    server.put("a", BIG)
    server.ignores_conditions = True
    origin = open_origin(server.url("a") if kind == "s3" else f"{server.endpoint}/bucket/a")
    found = origin.look("")
    assert found is not None
    assert found.size == len(BIG)
    server.misplaced = 1
    assert origin.read(found, 5, 1000) == BIG[5:1005]
    server.misplaced = math.inf
    with pytest.raises(CorruptError, match="another range"):
        origin.read(found, 5, 1000)
    server.put("a", BIG[::-1])
    with pytest.raises(SourceChangedError, match="replaced"):
        origin.read(found, 5, 1000)


class Web:
    """A server of these files, by their paths; it knows neither ranges nor conditions. sent: bytes
    of bodies that connections took. refused: answered with that status."""

    def __init__(self, files: dict[bytes, bytes]) -> None:
        self.files = files
        self.refused: dict[bytes, int] = {}
        self.sent = 0
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = unquote_to_bytes(self.path)
                data, status = web.files.get(path), web.refused.get(path, 200)
                if data is None or status != 200:
                    self.send_error(status if status != 200 else 404)
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/html" if path.endswith(b"/") and data[:1] == b"<" else "text/x")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command == "HEAD":
                    return
                with suppress(OSError):
                    for first in range(0, len(data), 1 << 16):
                        web.sent += self.wfile.write(data[first : first + (1 << 16)])

            def do_HEAD(self) -> None:
                self.do_GET()

            def log_message(self, format: str, *args: object) -> None:
                """Not on stderr."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False  # what they sent is known once they have ended

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def url(self, path: str = "/d/") -> str:
        return f"http://127.0.0.1:{self._server.server_port}{path}"


PAGE = b"""<html><script>"href=none.txt"</script><a href="?C=N;O=D">by name</a> <a href="../">up</a>
<a href="/">top</a> <a href="./">this</a> <a href="x?query">-</a> <a href="http://127.0.0.9/d/e">elsewhere</a>
<a href="mailto:somebody">-</a> <a href="a&amp;b">-</a> <A CLASS=x HREF=' it&#39;s '>-</A> <a href="./co:lon">-</a>
<a href="lat%E9">-</a> <a href="d\xc3\xa9">-</a> <a href="/d/abs%20olute">-</a> <a href="sub/">-</a> <a href="semi;x">-</a>
<a href="p%2541">-</a> <a href="%3Cq%3F%23%3E">-</a></html>"""


def test_all_that_a_page_names_is_imported(place: Path) -> None:
    names = [
        b"a&b",
        b"it's",
        b"co:lon",
        b"lat\xe9",
        "dé".encode(),
        b"abs olute",
        b"semi;x",
        b"p%41",
        b"<q?#>",
        b"sub/x&y",
    ]
    files = {b"/d/" + name: name for name in names}
    with Web({**files, b"/d/": PAGE, b"/d/sub/": b"<a href=x&y>"}) as web:
        version = Store().import_(web.url(), "copy")
        assert {os.fsencode(path)[1:]: data for path, data in contents(version).items()} == {n: n for n in names}
        assert not Store().import_(web.url(), "copy", delete=True).is_new


def test_what_a_page_names_and_the_server_does_not_give_is_named_and_can_be_left_out(place: Path) -> None:
    page = b"<a href=good><a href=gone><a href=mine><a href=text/><a href=shut/><a href=two%2Fparts>"
    page += b"<a href=law><a href=method><a href=other/>"
    with Web({b"/d/": page, b"/d/good": b"1", b"/d/mine": b"2", b"/d/text/": b"no page"}) as web:
        web.refused = {b"/d/mine": 403, b"/d/shut/": 403, b"/d/law": 451, b"/d/method": 405, b"/d/other/": 409}
        bad = ["gone", "mine", "text/", "shut/", "two/parts", "law", "method", "other/"]
        for name in bad:
            with pytest.raises(InvalidInputError, match=f"cannot be imported: '{name}' "):
                Store().import_(web.url(), "copy", exclude=[other for other in bad if other != name])
        with pytest.raises(NotFoundError):
            Store().describe("copy")
        assert contents(Store().import_(web.url(), "copy", exclude=bad)) == {"/good": b"1"}
        web.files[b"/d/"] += b"<a href=%2E%2E/up>"
        with pytest.raises(InvalidInputError, match=r"cannot be file names: '\.\./up'"):
            Store().import_(web.url(), "copy")


def test_a_web_server_that_is_busy_has_not_lost_its_files(place: Path) -> None:
    with Web({b"/d/": b"<a href=a>", b"/d/a": b"1"}) as web:
        web.refused = {b"/d/a": 503}
        origin = open_origin(web.url(), patience=Patience(0.0))
        with pytest.raises(UnavailableError, match="503"):
            origin.list()
        with pytest.raises(UnavailableError, match="503"):
            origin.look("a")


def test_a_page_without_links_is_no_file(place: Path) -> None:
    with Web({b"/d/": b"<html>nothing</html>", b"/d": b"<html>nothing</html>", b"/t/": b"text", b"/t": b"text"}) as web:
        with pytest.raises(NotFoundError, match="without links"):
            Store().import_(web.url(), "copy")
        with pytest.raises(InvalidInputError, match="no page of links"):
            Store().import_(web.url("/t/"), "copy")
        assert contents(Store().import_(web.url("/t"), "copy")) == {"/t": b"text"}


def test_of_a_server_without_ranges_no_more_is_received_than_is_needed(place: Path) -> None:
    data = BIG * 8
    with Web({b"/a": data}) as web:
        origin = open_origin(web.url("/a"))
        found = origin.look("")
        assert found is not None
        assert origin.read(found, 70_000, 1_000_000) == data[70_000:1_070_000]
        assert origin.read(found, len(data) - 10, 10) == data[-10:]
        assert origin.read(found, 0, len(data)) == data
        web.sent = 0
        assert origin.read(found, 0, 1000) == data[:1000]
    assert web.sent < len(data) // 2, "what a connection holds is sent, and no more"


def test_answers_without_a_length_are_read_and_what_needs_it_says_so(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.put("a", BIG)
    server.dropped = frozenset({"Content-Length"})
    assert contents(Store().import_(server.url(), "copy")) == {"/a": BIG}
    origin = open_origin(server.url(), patience=Patience(0.0))
    with pytest.raises(UnavailableError, match="how long"):
        origin.look("a")


def test_what_is_read_without_its_etag_is_not_called_replaced(server: ObjectServer) -> None:
    server.put("a", BIG)
    server.dropped = frozenset({"ETag"})
    with pytest.raises(CorruptError, match="without its ETag"):
        Store().import_(server.url(), "copy")


KILLED = """
import sys
from cowfs.blocking import Store
Store().import_(sys.argv[1], "copy")
"""


@pytest.mark.parametrize("point", ["upload-pack-noted:2", "commit-after-packs"])
def test_killed_it_reads_only_what_is_missing(server: ObjectServer, place: Path, point: str) -> None:
    for number in range(10):
        server.put(f"{number:02}", random.Random(number).randbytes(4 << 20))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        "COWFS_FAILPOINT": point,
    }
    done = subprocess.run([sys.executable, "-c", KILLED, server.url()], env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    server.requests.clear()
    version = Store().import_(server.url(), "copy")
    assert contents(version) == {f"/{key}": found.data for key, found in server.objects.items()}
    read = set(server.asked("GET"))
    if point.startswith("commit-"):
        assert read == set(), "everything was durable"
    else:
        assert len(read) < 10, "packs that were durable are not read again"
    assert not list((place / "c" / "state" / "working").iterdir()), "nothing is left of it"


def test_a_storage_is_for_its_own_bucket(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.put("data/a", b"a")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    own = storage.MinIO("bucket", endpoint=server.endpoint, access_key="given", secret_key="given-too")
    assert contents(Store().import_("s3://bucket/data", "copy", storage=own)) == {"/a": b"a"}
    assert any("Credential=given/" in headers.get("Authorization", "") for headers in server.headers)
    with pytest.raises(InvalidInputError, match="storage= is for"):
        Store().import_("s3://another/data", "copy", storage=own)


def test_links_of_other_file_systems_are_what_a_look_at_them_shows(place: Path) -> None:
    (place / "tree").mkdir()
    (place / "tree" / "a").write_text("a")
    (place / "tree" / "link").symlink_to("a")
    (place / "tree" / "dangling").symlink_to("nothing")
    url = f"simplecache::file://{place}/tree"
    with pytest.raises(InvalidInputError, match="cannot be imported: 'dangling'"):
        Store().import_(url, "copy")
    assert contents(Store().import_(url, "copy", exclude=["dangling"])) == {"/a": b"a", "/link": b"a"}


def test_memory_has_no_conditions_and_is_looked_at_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/import-test/dir/a", b"a")
    try:
        version = Store().import_("memory://import-test", "copy")
        assert contents(version) == {"/dir/a": b"a"}
        origin = open_origin("memory://import-test")
        [found] = origin.list()
        memory.pipe("/import-test/dir/a", b"b")
        with pytest.raises(SourceChangedError, match="replaced"):
            origin.read(found, 0, 1)
        [found], cut = origin.list(), [b""]
        monkeypatch.setattr(MemoryFileSystem, "cat_file", lambda self, path, **_: cut.pop() if cut else b"b")
        assert origin.read(found, 0, 1) == b"b"
        cut += [b""] * ASKS
        with pytest.raises(CorruptError, match="has not changed"):
            origin.read(found, 0, 1)
        monkeypatch.undo()
        memory.rm("/import-test/dir/a")
        with pytest.raises(SourceChangedError, match="gone"):
            origin.read(found, 0, 1)
    finally:
        memory.store.pop("/import-test/dir/a", None)


@pytest.mark.parametrize("link", [False, True])
def test_the_store_itself_is_not_imported(server: ObjectServer, link: bool) -> None:
    for name in ("data/x", "some/store/cowfs.json"):
        server.put(name, b"bytes")
    store = server.url("some/store")
    for source in (server.url(), server.url("some"), f"{store}/", server.url().replace("127.0.0.1", "localhost")):
        with pytest.raises(InvalidInputError, match="has the store in it"):
            Store(store).import_(source, "all", link=link)
    assert server.requests == []


def test_a_bucket_is_imported_beside_the_store_that_is_excluded(place: Path) -> None:
    root, memory = f"import-test-{os.urandom(4).hex()}", fsspec.filesystem("memory")
    memory.pipe(f"/{root}/data/x", b"bytes")
    try:
        source, store = f"memory://{root}", f"memory://{root}/store"
        version = Store(store).import_(source, "all", exclude=["/store/"])
        assert [each.path for each in version.files.ls(recursive=True)] == ["/data", "/data/x"]
        again = Store(store).import_(source, "all", exclude=["/store/"])
        assert not again.is_new
    finally:
        memory.rm(f"/{root}", recursive=True)


def test_a_directory_is_imported_beside_the_store_that_is_excluded(place: Path) -> None:
    project = place / "project"
    (project / "sub").mkdir(parents=True)
    (project / "file").write_bytes(b"bytes")
    store = Store(project / "sub" / "store")
    for import_ in (store.import_, store.create("taken").files.upload):
        with pytest.raises(InvalidInputError, match="has the store in it") as refused:
            import_(project, *(["data"] if import_ == store.import_ else []))
        assert "--exclude /sub/store/" in refused.value.hint
    version = store.import_(project, "data", exclude=["store/"])
    assert [each.path for each in version.files.ls(recursive=True)] == ["/file", "/sub"]
    assert store.volume("taken").files.upload(project, exclude=["/sub/store/"]).files == 1
    with pytest.raises(InvalidInputError, match="lies in the store"):
        store.import_(project / "sub" / "store" / "packs", "data", exclude=["*"])


def test_a_local_directory_keeps_permissions_and_links(place: Path) -> None:
    (place / "tree").mkdir()
    (place / "tree" / "run").write_text("#!")
    (place / "tree" / "run").chmod(0o700)
    (place / "tree" / "link").symlink_to("run")
    version = Store().import_(place / "tree", "copy")
    assert version.files.stat("/run").mode & 0o777 == 0o700
    assert [entry.type for entry in version.files.ls()] == ["symlink", "file"]
    assert not blocking.Store().import_((place / "tree").as_uri(), "copy").is_new


@pytest.mark.s3
def test_a_real_server_heeds_conditions(place: Path, seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in seaweedfs.credentials.items():
        monkeypatch.setenv(name, value)
    prefix = os.urandom(6).hex()
    for number in range(3):
        seaweedfs.ask(lambda s3, n=number: s3.put_object(Bucket="cowfs", Key=f"{prefix}/d/{n}", Body=b"%d" % n * 9))  # type: ignore[misc]
    url = seaweedfs.store_url.removesuffix("/stores") + f"/{prefix}"
    assert contents(Store().import_(url, "copy")) == {f"/d/{n}": b"%d" % n * 9 for n in range(3)}
    assert not Store().import_(url, "copy").is_new
    origin = open_origin(url)
    found = sorted(origin.list(), key=lambda each: each.key)
    assert origin.look(found[0].key) == found[0]
    seaweedfs.ask(lambda s3: s3.put_object(Bucket="cowfs", Key=f"{prefix}/d/0", Body=b"9" * 9))
    with pytest.raises(SourceChangedError):
        origin.read(found[0], 0, 9)
    assert origin.read(found[1], 2, 3) == b"111"
