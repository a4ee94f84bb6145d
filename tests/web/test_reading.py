"""Pages and downloads of a real server, over a directory and over S3."""

from __future__ import annotations

import gc
import io
import os
import re
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import httpx
import pytest
from blake3 import blake3
from starlette.testclient import TestClient

from cowfs.base.interruptible import is_patient
from cowfs.blocking import ROVolume, Store, Volume
from cowfs.web.app import make_app
from cowfs.web.archives import gather, make_zip
from cowfs.web.downloads import read_pieces
from cowfs.web.gate import Access
from cowfs.web.places import Places
from tests.api.conftest import machine
from tests.seaweedfs import SeaweedFS
from tests.version.empty_files import publish_empty_files
from tests.web.conftest import ODD, Start, Web, make_versions, run_servers


class Shown(NamedTuple):
    """A server that only reads, and what it shows."""

    web: Web
    versions: list[ROVolume]

    @property
    def client(self) -> httpx.Client:
        return self.web.client


@pytest.fixture(scope="module")
def shown() -> Iterator[Shown]:
    with pytest.MonkeyPatch.context() as patch:
        machines = machine(patch)
        place = next(machines)
        versions, servers = make_versions(place), run_servers()
        yield Shown(next(servers)(), versions)
        next(servers, None)
        next(machines, None)


TREE = "/v/-/data/tree/-/"
RAW = "/v/-/data/raw/-/"
PEAK_BYTES = 200_000_000


def links(page: str) -> list[str]:
    return [unescape(each) for each in re.findall(r'href="([^"]*)"', page)]


def names(page: str) -> list[str]:
    """The entries that a page of a directory lists."""
    return [unescape(each) for each in re.findall(r'<td class="name">\s*<a href="[^"]*">([^<]*)</a>', page)]


def test_from_the_list_to_a_file(shown: Shown) -> None:
    client = shown.client
    first = client.get("/")
    assert "data" in names(first.text)
    volume = client.get("/v/-/data").text
    assert [each.id[:12] in volume for each in shown.versions] == [True, True]
    assert "first" in volume
    assert "second" in volume
    [newest] = {each for each in links(first.text) if "/tree/" in each}
    assert newest == f"/v/-/data/tree/{shown.versions[1].id}/"
    listed = client.get(newest).text
    assert "d/" in names(listed)
    page = client.get(newest + "d/notes.txt").text
    assert "one\n2\n" in page
    older = client.get(f"/v/-/data/tree/{shown.versions[0].id}/d/notes.txt").text
    assert "one\ntwo\n" in older
    assert "notes.txt" in client.get(newest + "d/link").text


def test_odd_names_are_listed_apart_and_their_contents_arrive(shown: Shown) -> None:
    client = shown.client
    page = client.get(TREE).text
    assert "<script>" not in page
    assert {"<script>alert(1)<", "new\\nline", "\\xff\\xfe", "n" * 255} <= set(names(page))
    listed = [each for each in links(page) if "/tree/" in each]
    for name in ODD:
        assert any(each.endswith("/" + quote(name, safe="/")) for each in listed), name
        assert client.get(TREE + quote(name, safe="")).status_code == 200
        answer = client.get(RAW + quote(name, safe=""))
        assert (answer.status_code, answer.content) == (200, b"content of " + name)
        assert "attachment" in answer.headers["content-disposition"]


@pytest.mark.parametrize("path", ["../cowfs.json", "d/%2e%2e/%2e%2e/x", "%00", "d/../../x", "./d", "n" * 3000])
def test_paths_do_not_leave_the_version(shown: Shown, path: str) -> None:
    web = shown.web
    with web.client.stream("GET", httpx.URL(web.url + "/", raw_path=(RAW + path).encode())) as answer:
        assert answer.status_code in (400, 404)


@pytest.mark.parametrize("name", ["file:", "cowfs+file:%2F%2Ftmp%2Fs%2F-%2Fdata", "near%2Fdata", "a@b", "a:b"])
def test_names_in_urls_mean_no_other_store(shown: Shown, name: str) -> None:
    client = shown.client
    assert client.get(f"/v/-/{name}").status_code == 404
    assert client.get(f"/v/-/data/tree/{name}/").status_code == 404
    assert client.get(f"/v/{name}/data").status_code == 404
    assert client.get(f"/v/-/data/diff?old={name}&new=-").status_code == 404


def test_nothing_from_a_version_runs(shown: Shown) -> None:
    client = shown.client
    for name in ("page.html", "page.svg"):
        answer = client.get(f"/v/-/data/raw/{shown.versions[0].id}/{name}", params={"image": "1"})
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert "sandbox" in answer.headers["content-security-policy"]
        assert "<script>" not in client.get(f"/v/-/data/tree/{shown.versions[0].id}/{name}").text.partition("<pre")[2]
    image = client.get(RAW + "dot.png?image=1")
    assert image.headers["content-type"] == "image/png"
    assert "content-disposition" not in image.headers
    for answer in (client.get("/"), client.get("/nothing"), image, client.get("/static/style.css")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]


def test_parts_of_a_file(shown: Shown) -> None:
    client, content = shown.client, shown.versions[1].files.read("large.bin")
    url = RAW + "large.bin"
    whole = client.get(url)
    assert whole.content == content
    assert int(whole.headers["content-length"]) == len(content)
    etag, size = whole.headers["etag"], len(content)
    for asked, expected in (
        ("bytes=0-0", content[:1]),
        ("bytes=1000000-2999999", content[1_000_000:]),
        ("bytes=2000000-", content[2_000_000:]),
        ("bytes=-7", content[-7:]),
        ("bytes=5-9999999", content[5:]),
    ):
        part = client.get(url, headers={"range": asked, "if-range": etag})
        assert (part.status_code, part.content) == (206, expected), asked
        start_at = content.index(expected[:64])
        assert part.headers["content-range"] == f"bytes {start_at}-{start_at + len(expected) - 1}/{size}"
    behind = client.get(url, headers={"range": f"bytes={size}-"})
    assert (behind.status_code, behind.headers["content-range"]) == (416, f"bytes */{size}")
    for headers in ({"range": "bytes=1-2", "if-range": '"other"'}, {"range": "bytes=0-1,4-5"}, {"range": "lines=1-2"}):
        assert client.get(url, headers=headers).status_code == 200
    assert client.get(url, headers={"if-none-match": etag}).status_code == 304
    head = client.head(url)
    assert (head.headers["etag"], head.headers["content-length"], head.content) == (etag, str(size), b"")
    other = client.get(f"/v/-/data/raw/{shown.versions[0].id}/d/notes.txt").headers["etag"]
    assert other != client.get(RAW + "d/notes.txt").headers["etag"]


def test_a_tar_unpacks_to_the_version(shown: Shown, tmp_path: Path) -> None:
    client = shown.client
    (tmp_path / "a.tar").write_bytes(client.get("/v/-/data/tar/-/").content)
    subprocess.run(["tar", "-xf", tmp_path / "a.tar", "-C", tmp_path], check=True)
    shown.versions[1].files.download("/", tmp_path / "b")
    subprocess.run(["diff", "-r", "--no-dereference", tmp_path / "data", tmp_path / "b"], check=True)
    for name in ("d/run.sh", "d/notes.txt", "large.bin"):
        unpacked, expected = (tmp_path / "data" / name).stat(), (tmp_path / "b" / name).stat()
        assert (unpacked.st_mode, unpacked.st_mtime_ns) == (expected.st_mode, expected.st_mtime_ns)
    with tarfile.open(fileobj=io.BytesIO(client.get("/v/-/data/tar/-/d").content)) as inner:
        assert sorted(inner.getnames()) == ["d", "d/empty", "d/link", "d/notes.txt", "d/run.sh"]


def test_a_zip_has_every_file(shown: Shown, tmp_path: Path) -> None:
    client = shown.client
    archive = zipfile.ZipFile(io.BytesIO(client.get("/v/-/data/zip/-/").content))
    assert archive.testzip() is None
    found = {each.filename: archive.read(each) for each in archive.infolist() if not each.is_dir()}
    assert found["data/large.bin"] == shown.versions[1].files.read("large.bin")
    assert found["data/%FF%FE"] == b"content of \xff\xfe"
    assert "data/d/empty/" in archive.namelist()
    assert archive.getinfo("data/d/run.sh").external_attr >> 16 & 0o777 == 0o755


def test_names_in_a_zip_stay_apart_and_in_their_directory(start: Start, place: Path) -> None:
    names = {
        b"\xff": "%FF",
        b"\\xff": "%5Cxff",
        b"%FF": "%25FF",
        b"%": "%",
        b"100% x": "100% x",
        b"..\\..\\evil": "..%5C..%5Cevil",
        b"c:evil": "c%3Aevil",
        b"end.": "end%2E",
        b".. ": "..%20",
        b"...": "..%2E",
        b".hidden.txt": ".hidden.txt",
        "ü".encode(): "ü",
    }
    (place / "tree" / "d.").mkdir(parents=True)
    for name in names:
        Path(os.fsdecode(os.fsencode(place / "tree" / "d.") + b"/" + name)).write_bytes(name)
    Store().upload(place / "tree", "data")
    archive = zipfile.ZipFile(io.BytesIO(start().client.get("/v/-/data/zip/-/").content))
    found = {each.filename: archive.read(each) for each in archive.infolist()}
    assert len(found) == len(archive.namelist())
    expected = {f"data/d%2E/{written}": name for name, written in names.items()}
    assert found == {"data/": b"", "data/d%2E/": b"", **expected}


def test_a_zip_of_many_files_is_not_remembered(place: Path) -> None:
    files = 20_000
    publish_empty_files(Store().url, "many", 10, files, place / "maker")
    version = Store().version("many").resolve()
    top = version.files.stat("/")
    for _ in version.files.ls("/d0000"):
        pass
    tracemalloc.start()
    try:
        with open(place / "a.zip", "wb") as file:
            file.writelines(gather(make_zip(version, top, "many", read_pieces)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    with zipfile.ZipFile(place / "a.zip") as archive:
        assert len(set(archive.namelist())) == files + 11
    assert peak < 400 * files, peak


def test_a_zip_that_is_not_taken_to_its_end_is_left_quietly(
    versions: list[ROVolume], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written to its temporary files after they are closed."""
    unraised: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)
    pieces = make_zip(versions[0], versions[0].files.stat("/"), "data", read_pieces)
    assert next(pieces)
    del pieces  # ends the generator
    gc.collect()
    assert unraised == []


def test_differences_of_paths_and_of_text(shown: Shown) -> None:
    client = shown.client
    page = client.get(f"/v/-/data/diff?old={shown.versions[0].id}&new={shown.versions[1].id[:12]}").text
    assert all(each in page for each in ("2 paths differ", "/page.svg", "/d/notes.txt"))
    assert client.get("/v/-/data/diff").text == client.get(f"/v/-/data/diff?old={shown.versions[0].id}").text
    [link] = [each for each in links(page) if "notes.txt" in each]
    text = client.get(link).text
    assert '<span class="removed">-two</span>' in text
    assert '<span class="added">+2</span>' in text
    assert client.get(f"/v/-/data/diff?new={shown.versions[0].id}").status_code == 400


def test_search_and_history_of_a_path(shown: Shown) -> None:
    client = shown.client
    for wanted, found in (("notes", {"/d/notes.txt"}), ("*.png", {"/dot.png"}), ("nothing", set())):
        page = client.get("/v/-/data/find/-/", params={"q": wanted}).text
        assert {unescape(each) for each in re.findall(r'<li><a href="[^"]*">([^<]*)</a>', page)} == found
    log = client.get("/v/-/data/log/-/d/notes.txt").text
    assert all(each.id[:12] in log for each in shown.versions)
    once = client.get("/v/-/data/log/-/large.bin").text
    assert shown.versions[1].id[:12] not in once.partition("<tbody>")[2]


def test_large_directories_have_pages(start: Start, place: Path) -> None:
    volume = Volume.open("many", create=True)
    tree = place / "many"
    tree.mkdir()
    for number in range(1201):
        (tree / f"f{number:05}").touch()
    volume.files.upload(tree)
    client = start().client
    seen, url = [], "/v/-/many/tree/-/"
    while url:
        page = client.get(url).text
        assert "1201 entries" in page
        seen += names(page)
        url = next(iter(re.findall(r'rel="next" href="([^"]*)"', page)), "")
    assert seen == sorted(os.listdir(tree))
    assert client.get("/v/-/many/tree/-/?page=4").status_code == 404
    assert client.get("/v/-/many/tree/-/?page=x").status_code == 400


def test_unknown_names_come_with_near_ones(shown: Shown) -> None:
    client = shown.client
    missing = client.get("/v/-/dats")
    assert missing.status_code == 404
    assert "data" in missing.text.partition("<main")[2]
    assert client.get(TREE + "none").status_code == 404
    assert client.get("/v/-/data/tree/v9/").status_code == 404
    assert client.get(RAW + "d").status_code == 400
    assert client.get("/v/-/data/tar/-/large.bin").status_code == 400


def test_read_only_stores_have_a_tab(start: Start, versions: list[ROVolume], place: Path) -> None:
    from cowfs.storage import add_store

    other = place / "other"
    Store(str(other)).create("elsewhere")
    add_store("builtin", str(other), read_only=True)
    add_store("secret", str(place / "store"), read_only=False)
    client = start().client
    assert links(client.get("/stores").text).count("/stores/builtin") == 1
    assert "secret" not in client.get("/stores").text
    assert "elsewhere" in client.get("/stores/builtin").text
    assert client.get("/v/builtin/elsewhere").status_code == 200
    assert client.get("/stores/secret").status_code == 404


def test_the_list_says_whether_contents_are_compressed(start: Start, place: Path) -> None:
    Store().create("plain", compress=False)
    Store().create("small")
    page = start().client.get("/").text
    assert names(page) == ["plain", "small"]
    assert re.findall(r"<td>\s*(\w*compressed)\s*</td>", page) == ["uncompressed", "compressed"]


def test_pages_ask_a_silent_store_again_for_seconds(versions: list[ROVolume], monkeypatch: pytest.MonkeyPatch) -> None:
    at, patient = "/v/-/data", []
    find = Places.store

    def note(self: Places, place: str) -> Store:
        patient.append(is_patient())
        return find(self, place)

    monkeypatch.setattr(Places, "store", note)
    access = Access(frozenset({"localhost"}), "session")
    assert access.token is not None
    with TestClient(make_app(Store(), access), "http://localhost") as client:
        client.get("/login", params={"token": access.token.text})
        for url in (
            *("/", "/gc", at, at + "/prune?last=1", at + "/merge?from=data", at + "/diff", at + "/tree/-/"),
            *(at + "/find/-/?q=x", at + "/log/-/d", at + "/raw/-/d/run.sh", at + "/tar/-/d"),
            *("/api/v1/stores/-/volumes", "/api/v1/stores/-/volumes/data/versions/-/file/d/run.sh"),
        ):
            patient.clear()
            assert client.get(url).status_code == 200, url
            assert patient, url
            assert not any(patient), url


def test_a_store_that_is_gone(start: Start, place: Path) -> None:
    Store().create("data")
    web = start()
    assert names(web.client.get("/").text) == ["data"]
    (place / "store").rename(place / "away")
    assert web.client.get("/").status_code == 503
    (place / "away").rename(place / "store")
    assert names(web.client.get("/").text) == ["data"]


@pytest.mark.slow
def test_large_downloads_stay_small_in_memory(start: Start, place: Path) -> None:
    """A gigabyte, once as a whole and then by fifty clients at once. Pieces differ, and share
    chunks."""
    part = os.urandom(32 << 20)
    (place / "tree").mkdir()
    with open(place / "tree" / "large", "wb") as file:
        file.writelines(part + bytes([number]) for number in range(32))
    Store().upload(place / "tree", "data")
    web = start()
    size, expected = 32 * (len(part) + 1), blake3().update_mmap(place / "tree" / "large").digest()
    with web.client.stream("GET", "/v/-/data/raw/-/large") as answer:
        found = blake3()
        for piece in answer.iter_bytes():
            found.update(piece)
    assert found.digest() == expected
    assert peak_bytes(web) < PEAK_BYTES

    def resume(number: int) -> bool:
        start_at, length = number * (size // 50), 4 << 20
        headers = {"range": f"bytes={start_at}-{start_at + length - 1}"}
        return web.client.get("/v/-/data/raw/-/large", headers=headers).content == read_part(start_at, length)

    def read_part(start_at: int, length: int) -> bytes:
        with open(place / "tree" / "large", "rb") as file:
            file.seek(start_at)
            return file.read(length)

    with ThreadPoolExecutor(50) as pool:
        assert all(pool.map(resume, range(50)))
    assert peak_bytes(web) < PEAK_BYTES


def peak_bytes(web: Web) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{web.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


@pytest.mark.s3
def test_over_s3(start: Start, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SeaweedFS(tmp_path / "server") as server:
        for name, value in {**server.credentials, "COWFS_STORE": server.store_url}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("COWFS_STORE_TIMEOUT", raising=False)
        (tmp_path / "tree").mkdir()
        content = os.urandom(20_000_000)
        (tmp_path / "tree" / "large").write_bytes(content)
        Store().upload(tmp_path / "tree", "far")
        client = start().client
        assert names(client.get("/").text) == ["far"]
        assert names(client.get("/v/-/far/tree/-/").text) == ["large"]

        def download(start_at: int) -> bytes:
            return client.get("/v/-/far/raw/-/large", headers={"range": f"bytes={start_at}-"}).content

        with ThreadPoolExecutor(50) as pool:
            starts = [number * 100_000 for number in range(50)]
            assert all(got == content[at:] for at, got in zip(starts, pool.map(download, starts), strict=True))
        server.kill()
        down = client.get("/")
        assert down.status_code == 503
        assert down.headers["retry-after"]
