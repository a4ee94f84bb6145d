"""Exports: objects are the version's files; what an earlier export has put is left alone unless
somebody replaced it; what cannot be an object is refused before anything is put."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from cowfs.blocking import ROVolume, Store
from cowfs.errors import InvalidInputError, UnavailableError
from cowfs.format.store_url import StoreUrl
from cowfs.store.origin.s3 import S3Origin
from cowfs.transfer.exporting import Export
from cowfs.transfer.imports.object_tree import RECORD
from tests.api.conftest import place
from tests.object_server import ObjectServer
from tests.seaweedfs import SeaweedFS

__all__ = ["place"]

BIG = random.Random(1).randbytes(5_000_000) + bytes(3_000_000) + b"end"


@pytest.fixture
def server(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "cowfs-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret-at-all")
    with ObjectServer() as server:
        yield server


@pytest.fixture
def version(place: Path) -> ROVolume:
    tree = place / "tree"
    (tree / "dir" / "empty").mkdir(parents=True)
    (tree / "dir" / ".hidden ä").write_bytes(b"small")
    (tree / "big").write_bytes(BIG)
    (tree / "nothing").touch()
    (tree / "link").symlink_to("dir/.hidden ä")
    return Store().import_(tree, "data")


@pytest.fixture
def bucket_url(seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place of its own in the real server's bucket."""
    for name, value in seaweedfs.credentials.items():
        monkeypatch.setenv(name, value)
    return seaweedfs.store_url.removesuffix("/stores") + f"/{os.urandom(6).hex()}"


def with_large(version: ROVolume, large: bytes) -> ROVolume:
    volume = version.fork("fork")
    volume.files.write("/large", large)
    return volume.commit()


def stored(server: ObjectServer, prefix: str = "out/") -> dict[str, bytes]:
    return {
        key.removeprefix(prefix): found.data
        for key, found in server.objects.items()
        if key.startswith(prefix) and not key.endswith(RECORD)
    }


FILES = {"big": BIG, "dir/.hidden ä": b"small", "nothing": b"", "link": b"small"}


@pytest.mark.parametrize("own", [False, True])
def test_files_become_objects_once(server: ObjectServer, version: ROVolume, own: bool) -> None:
    server.own_tags = own
    done = version.files.export(server.url("out"))
    assert (done.files, done.unchanged, done.symlinks) == (4, 0, 1)
    assert stored(server) == FILES
    server.requests.clear()
    again = version.files.export(server.url("out"))
    assert (again.files, again.unchanged) == (4, 4)
    assert server.asked("PUT") == []


def test_each_name_of_a_file_becomes_an_object_with_its_bytes(server: ObjectServer, place: Path) -> None:
    tree, files = place / "names", dict[str, bytes]()
    tree.mkdir()
    for number in range(100):
        content = b"%d" % number * (1 + number % 7)
        (tree / f"{number}").write_bytes(content)
        os.link(tree / f"{number}", tree / f"{number} hard")
        os.link(tree / f"{number}", tree / f"hard {number}")
        (tree / f"{number} soft").symlink_to(f"{number}")
        (tree / f"soft {number}").symlink_to(f"hard {number}")
        files |= dict.fromkeys(
            (f"{number}", f"{number} hard", f"hard {number}", f"{number} soft", f"soft {number}"), content
        )
    done = Store().import_(tree, "names").files.export(server.url("out"))
    assert (done.files, stored(server)) == (len(files), files)


def test_what_somebody_replaced_is_put_again_and_what_changed_is(server: ObjectServer, version: ROVolume) -> None:
    version.files.export(server.url("out"))
    server.put("out/dir/.hidden ä", b"other")
    server.put("out/theirs", b"not ours")
    volume = version.fork("fork")
    volume.files.write("/nothing", b"something")
    server.requests.clear()
    volume.commit().files.export(server.url("out"))
    assert sorted(set(server.asked("PUT"))) == ["out/" + RECORD, "out/dir/.hidden ä", "out/nothing"]
    assert stored(server) == FILES | {"nothing": b"something", "theirs": b"not ours"}


def test_what_the_version_has_not_is_deleted_only_if_asked(server: ObjectServer, version: ROVolume) -> None:
    server.put("out/theirs", b"not ours")
    assert version.files.export(server.url("out"), delete=True).removed == 1
    assert stored(server) == FILES


def test_what_is_excluded_is_neither_put_nor_deleted(server: ObjectServer, version: ROVolume) -> None:
    version.files.export(server.url("out"))
    for name in ("out/theirs", "out/kept/a/b", "out/dir/x.log", "out/x.log/"):
        server.put(name, b"not ours")
    server.put("out/big", b"not ours")
    done = version.files.export(
        server.url("out"), delete=True, exclude=["*.log", "/kept/", "!/kept/a/b", "/big", "link"]
    )
    assert (done.files, done.removed) == (2, 1)
    kept = ("kept/a/b", "dir/x.log", "x.log/", "big")
    assert stored(server) == FILES | dict.fromkeys(kept, b"not ours")


def test_a_single_file_has_nothing_deleted_beside_it(server: ObjectServer, version: ROVolume) -> None:
    version.files.export(server.url("out"))
    server.put("out/theirs", b"not ours")
    assert version.files.export(server.url("out"), "/nothing", delete=True).removed == 0
    assert stored(server) == FILES | {"theirs": b"not ours"}


@pytest.mark.parametrize("name", [RECORD, b"\xff"])
def test_a_single_file_that_cannot_be_an_object_is_refused(
    server: ObjectServer, version: ROVolume, name: str | bytes
) -> None:
    volume = version.fork("fork")
    path = os.path.join(b"/", os.fsencode(name))
    volume.files.write(path, b"a user's own")
    with pytest.raises(InvalidInputError, match="cannot be an object"):
        volume.commit().files.export(server.url("out"), path)
    assert server.asked("PUT") == []


@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize("target", ["", "/some", "/some/store", "/some/store/volumes"])
def test_the_store_that_is_read_is_no_target(
    place: Path, monkeypatch: pytest.MonkeyPatch, target: str, delete: bool
) -> None:
    monkeypatch.setattr(Export, "run", lambda *_, **__: pytest.fail("it has begun"))
    (place / "tree").mkdir()
    (place / "tree" / "file").write_bytes(b"precious")
    root, memory = f"export-test-{os.urandom(4).hex()}", fsspec.filesystem("memory")
    version = Store(f"memory://{root}/some/store").import_(place / "tree", "data")
    try:
        before = memory.find(f"/{root}")
        with pytest.raises(InvalidInputError, match="the store"):
            version.files.export(f"memory:///{root}{target}", delete=delete)
        assert memory.find(f"/{root}") == before
        assert version.files.read("/file") == b"precious"
    finally:
        memory.rm(f"/{root}", recursive=True)


def test_the_directory_of_a_store_is_no_target(place: Path, version: ROVolume) -> None:
    (place / "link").symlink_to(Path("/" + StoreUrl.parse(version._located.named.store_url).path))
    for target in (version._located.named.store_url, place / "link", f"file://{place}"):
        with pytest.raises(InvalidInputError):
            version.files.export(target, delete=True)
    assert version.files.read("/dir/.hidden ä") == b"small"


@pytest.mark.s3
def test_a_bucket_with_the_store_that_is_read_is_no_target(place: Path, bucket_url: str) -> None:
    (place / "tree").mkdir()
    (place / "tree" / "file").write_bytes(b"precious")
    version = Store(f"{bucket_url}/store").import_(place / "tree", "data")
    for target in (bucket_url, f"{bucket_url}//store/", bucket_url.replace("127.0.0.1", "localhost")):
        with pytest.raises(InvalidInputError, match="the store"):
            version.files.export(target, delete=True)
    beside = version.files.export(f"{bucket_url}/store/files", delete=True)
    assert (beside.files, beside.removed) == (1, 0)
    done = version.files.export(bucket_url, delete=True, exclude=["/store/"])
    assert (done.files, done.removed) == (1, 0)
    assert version.files.read("/file") == b"precious"


@pytest.mark.s3
def test_a_url_of_the_stores_bucket_means_the_stores_server(
    place: Path, bucket_url: str, seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # the discard port: nothing listens there
    (place / "tree").mkdir()
    (place / "tree" / "file").write_bytes(b"content")
    store = Store(f"{bucket_url}/store")
    version = store.import_(place / "tree", "data")
    bare = f"s3://{seaweedfs.bucket}/{StoreUrl.parse(bucket_url).path}"
    assert version.files.export(f"{bare}/out").files == 1
    assert store.import_(f"{bucket_url}/out", "whole").files.read("/file") == b"content"
    assert store.import_(f"{bare}/out", "again").files.read("/file") == b"content"
    with pytest.raises(InvalidInputError, match="lies in the store"):
        version.files.export(f"{bare}/store")
    with pytest.raises(UnavailableError, match="Connection refused") as elsewhere:
        version.files.export("s3://other/out")
    endpoint = StoreUrl.parse(bucket_url).endpoint
    assert f"s3://other;endpoint={endpoint}/out." in elsewhere.value.hint
    with pytest.raises(UnavailableError) as named:
        store.import_(f"s3://{seaweedfs.bucket};endpoint=http://127.0.0.1:9/out", "again")
    assert ";endpoint=" not in named.value.hint


def test_another_store_is_not_deleted(server: ObjectServer, version: ROVolume) -> None:
    pack = f"packs/ab/ab{'0' * 62}"
    names = ("cowfs.json", "volumes/data/meta/1", pack)
    for name in names:
        server.put(f"out/a/{name}", b"precious")
    before = dict(server.objects)
    for target, exclude in (("out", []), ("out/a", []), ("out", ["*.json"]), ("out/a/packs", [])):
        with pytest.raises(InvalidInputError, match="belongs to a cowfs store"):
            version.files.export(server.url(target), delete=True, exclude=exclude)
    volume = version.fork("with-a-record")
    volume.files.write("/cowfs.json", b"mine")
    with pytest.raises(InvalidInputError, match=r"cowfs\.json belongs to a cowfs store"):
        volume.commit().files.export(server.url("out/a"))
    assert server.objects == before
    assert version.files.export(server.url("out"), delete=True, exclude=["/a/"]).removed == 0
    assert stored(server).keys() == {*FILES, *(f"a/{name}" for name in names)}


def test_a_store_that_an_export_put_is_deleted_with_the_files_it_was(server: ObjectServer, version: ROVolume) -> None:
    volume = version.fork("fork")
    volume.files.mkdir("/backup/packs", parents=True)
    volume.files.write("/backup/cowfs.json", b"{}")
    volume.files.write("/backup/packs/one", b"bytes")
    volume.commit().files.export(server.url("out"))
    assert version.files.export(server.url("out"), delete=True).removed == 2
    assert stored(server) == FILES


@pytest.mark.parametrize("tag", ["", 'W/"3f-abc"', '"5f3a-abc"'])
@pytest.mark.parametrize("own", [False, True])
def test_what_is_acknowledged_and_not_done_is_done_again(
    server: ObjectServer, version: ROVolume, tag: str, own: bool
) -> None:
    """tag: of the page that answered for the server. own: the server's are no MD5s, either."""
    server.page_tag, server.own_tags = tag, own
    server.swallowed = 2
    version.files.export(server.url("out"))
    assert stored(server) == FILES
    server.put("out/dir/.hidden ä", b"SMALL")  # as long
    server.swallowed = 2
    version.files.export(server.url("out"))
    assert stored(server) == FILES
    for name in ("out/one", "out/two"):
        server.put(name, b"not ours")
    server.swallowed = 3
    with pytest.raises(UnavailableError, match="still there"):
        version.files.export(server.url("out"), delete=True)
    server.swallowed = 1
    assert version.files.export(server.url("out"), delete=True).removed == 2
    assert stored(server) == FILES


def test_a_folder_or_a_file(server: ObjectServer, version: ROVolume) -> None:
    version.files.export(server.url("folder"), "/dir")
    assert stored(server, "folder/") == {".hidden ä": b"small"}
    version.files.export(server.url("one"), "/nothing")
    assert stored(server, "one/") == {"nothing": b""}


def test_links_that_are_no_files_are_refused_before_anything_is_put(server: ObjectServer, version: ROVolume) -> None:
    volume = version.fork("fork")
    volume.files.symlink("/to-directory", "dir")
    volume.files.symlink("/dangling", "nowhere")
    changed = volume.commit()
    with pytest.raises(InvalidInputError, match=r"dangling.*to-directory|to-directory.*dangling"):
        changed.files.export(server.url("out"))
    assert server.asked("PUT") == []
    changed.files.export(server.url("out"), exclude=["/to-directory", "/dangling"])
    assert stored(server) == FILES


def test_a_directory_of_this_machine_is_for_downloads(place: Path, version: ROVolume) -> None:
    with pytest.raises(InvalidInputError) as caught:
        version.files.export(place / "out")
    assert "cowfs download" in caught.value.hint


def test_what_comes_out_goes_in_again(place: Path, version: ROVolume) -> None:
    version.files.export("memory://export-test/out")
    try:
        again = Store().import_("memory://export-test/out", "back")
        assert again.files.read("/big") == BIG
        assert again.files.read("/dir/.hidden ä") == b"small"
        assert version.files.export("memory://export-test/out").unchanged == 4
    finally:
        fsspec.filesystem("memory").rm("/export-test", recursive=True)


def test_an_export_beside_a_store_in_the_same_memory(place: Path) -> None:
    """What is put waited for what is read, and that for what is put."""
    (place / "file").write_bytes(b"x")
    root = f"export-test-{os.urandom(4).hex()}"
    version = Store(f"memory://{root}/store").import_(place / "file", "data")
    try:
        version.files.export(f"memory://{root}/out")
        assert fsspec.filesystem("memory").cat_file(f"/{root}/out/file") == b"x"
    finally:
        fsspec.filesystem("memory").rm(f"/{root}", recursive=True)


@pytest.mark.s3
def test_a_large_file_whose_last_answers_are_lost(
    bucket_url: str, monkeypatch: pytest.MonkeyPatch, version: ROVolume
) -> None:
    large = random.Random(4).randbytes(1 << 20) * 20
    changed = with_large(version, large)
    really_call, lost = S3Origin._call, []

    def call(self: S3Origin, key: str, operation: str, **arguments: Any) -> dict[str, Any]:
        answer = really_call(self, key, operation, **arguments)
        if operation in ("create_multipart_upload", "complete_multipart_upload") and operation not in lost:
            lost.append(operation)
            raise UnavailableError("the answer is lost")
        if operation == "upload_part" and operation not in lost:
            lost.append(operation)
            return {}
        return answer

    monkeypatch.setattr(S3Origin, "_call", call)
    assert changed.files.export(bucket_url, "/large").files == 1
    assert sorted(lost) == ["complete_multipart_upload", "create_multipart_upload", "upload_part"]
    assert Store().import_(f"{bucket_url}/large", "back").files.read("/large") == large


@pytest.mark.s3
def test_a_large_file_in_parts(bucket_url: str, version: ROVolume) -> None:
    large = random.Random(3).randbytes(1 << 20) * 37
    changed = with_large(version, large)
    assert changed.files.export(bucket_url).files == 5
    assert changed.files.export(bucket_url).unchanged == 5
    assert Store().import_(bucket_url, "back").files.read("/large") == large
    assert changed.files.export(bucket_url, "/dir", delete=True).removed == 5
