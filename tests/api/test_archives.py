"""Imports of archives: the version is what unpacking would give; nothing is published from a
damaged one; what is wrong with an archive is said at once, and as such."""

from __future__ import annotations

import io
import random
import stat
import tarfile
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cowfs import storage
from cowfs.blocking import Store, Volume
from cowfs.errors import CorruptError, InvalidInputError, NotFoundError
from cowfs.store.origin.archive import input
from cowfs.store.reliability.patience import Patience
from cowfs.transfer.imports import archive_tree
from cowfs.version.commit import Progress
from tests.api.conftest import place
from tests.api.test_importing import BIG, contents, server
from tests.api.test_uploading import packs
from tests.object_server import ObjectServer

__all__ = ["place", "server"]

SMALL = {f"dir-{number % 3}/f{number}": random.Random(number).randbytes(number * 700) for number in range(40)}


def packed(files: dict[str, bytes], path: Path | None = None) -> bytes:
    """A .tar.gz."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", compresslevel=1) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    if path is not None:
        path.write_bytes(made.getvalue())
    return made.getvalue()


def test_an_archive_becomes_what_unpacking_it_gives(place: Path) -> None:
    with tarfile.open(place / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:

        def add(name: str, data: bytes = b"", **fields: Any) -> None:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for field, value in fields.items():
                setattr(member, field, value)
            archive.addfile(member, io.BytesIO(data))

        add(".", type=tarfile.DIRTYPE)
        add("./big", BIG, mode=0o750, mtime=1_000_000_000.25)
        add("./same", type=tarfile.LNKTYPE, linkname="./big")
        add("./link", type=tarfile.SYMTYPE, linkname="dir/x", mtime=5)
        add("./dir/x", b"x", mode=0o400)
        add("./dir/empty", type=tarfile.DIRTYPE, mode=0o700, mtime=7)
        add("./pipe", type=tarfile.FIFOTYPE)
        add("./dir/x", b"the later one", mode=0o600)
    done = Store().import_files(f"tar://::{place}/a.tar", "packed")
    version = Volume.version("packed")
    files = version.files
    assert contents(version) == {"/big": BIG, "/same": BIG, "/dir/x": b"the later one"}
    assert files.stat("/big").mtime_ns == 1_000_000_000_250_000_000
    assert [stat.S_IMODE(files.stat(name).mode) for name in ("/big", "/dir/x", "/dir/empty")] == [0o750, 0o600, 0o700]
    assert (done.skipped, done.skipped_paths) == (1, ("pipe",))
    files.download("/", place / "out")
    assert (place / "out" / "big").samefile(place / "out" / "same")
    assert (place / "out" / "link").readlink() == Path("dir/x")
    assert not Store().import_(f"tar://::{place}/a.tar", "packed").is_new


def test_what_is_gone_from_the_archive_stays_unless_it_is_to_go(place: Path) -> None:
    url = f"tar://::{place}/a.tgz"
    packed({"a": b"1", "b": b"2"}, place / "a.tgz")
    Store().import_(url, "packed")
    packed({"a": b"3"}, place / "a.tgz")
    assert contents(Store().import_(url, "packed")) == {"/a": b"3", "/b": b"2"}
    assert contents(Store().import_(url, "packed", delete=True)) == {"/a": b"3"}


def test_a_part_of_an_archive_is_imported_alone(place: Path) -> None:
    packed({"./one/a": b"a", "one/deep/b": b"b", "two/c": b"c"}, place / "a.tgz")
    assert contents(Store().import_(f"tar://one::{place}/a.tgz", "part")) == {"/a": b"a", "/deep/b": b"b"}
    assert contents(Store().import_(f"tar:///one/deep/b::{place}/a.tgz", "file")) == {"/b": b"b"}
    with pytest.raises(NotFoundError, match="has no members"):
        Store().import_(f"tar://three::{place}/a.tgz", "none")


def test_what_is_excluded_is_passed_over(place: Path) -> None:
    with zipfile.ZipFile(place / "a.zip", "w") as archive:
        for name in ("keep/a", "keep/b.pyc", "cache/c", "../out"):
            archive.writestr(name, name)
    with pytest.raises(InvalidInputError, match=r"'\.\./out' has a path"):
        Store().import_(f"zip://::{place}/a.zip", "packed")
    with pytest.raises(NotFoundError):
        Store().describe("packed")
    excluded = ["*.pyc", "cache/", "..", "out"]
    assert contents(Store().import_(f"zip://::{place}/a.zip", "packed", exclude=excluded)) == {"/keep/a": b"keep/a"}


def test_a_link_in_a_zip_is_a_link_and_what_leads_nowhere_is_named(place: Path) -> None:
    def link(target: bytes) -> str:
        entry = zipfile.ZipInfo("link")
        entry.create_system, entry.external_attr = 3, 0o120777 << 16
        with zipfile.ZipFile(place / "a.zip", "w") as archive:
            archive.writestr("f", b"f")
            archive.writestr(entry, target)
        return f"zip://::{place}/a.zip"

    Store().import_(link(b"f"), "packed").files.download("/", place / "out")
    assert (place / "out" / "link").readlink() == Path("f")
    for bad in (b"", b"x" * 5000, b"a\0b"):
        with pytest.raises(InvalidInputError, match="'link' is a"):
            Store().import_(link(bad), "packed")


def test_an_import_that_is_interrupted_ends_and_publishes_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_tree, "REPORT_S", 0.0)
    packed({**SMALL, "big": BIG}, place / "a.tgz")

    def interrupt(progress: Progress) -> None:
        if progress.stage == "archive":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Store().import_(f"tar://::{place}/a.tgz", "packed", progress=interrupt)
    assert Store().describe("packed").volume.version is None
    assert not [each.name for each in threading.enumerate() if each.name.startswith(("cowfs-archive", "cowfs-read"))]


def test_nothing_is_published_from_an_archive_whose_end_is_damaged(place: Path) -> None:
    whole = packed({**SMALL, "big": BIG})
    url = f"tar://::{place}/a.tar.gz"
    for data in (
        whole[:-4] + bytes(4),  # the trailer
        whole[:-8] + b"\0" + whole[-7:],
        whole[:-1],
        whole + b"x",
        whole[: len(whole) // 2] + bytes(100) + whole[len(whole) // 2 + 100 :],
    ):
        (place / "a.tar.gz").write_bytes(data)
        with pytest.raises(CorruptError, match=r"a\.tar\.gz is damaged, at '") as caught:
            Store().import_(url, "packed")
        assert "No version was made" in caught.value.hint
        assert Store().describe("packed").volume.version is None
    (place / "a.tar.gz").write_bytes(whole)
    assert len(contents(Store().import_(url, "packed"))) == 41


def test_an_archive_that_is_refused_at_once_makes_no_volume(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no request is repeated."""
    monkeypatch.setattr(Patience, "wait_to_repeat", lambda *_: pytest.fail("nothing is waited for"))
    whole = packed(SMALL)
    with zipfile.ZipFile(place / "enc.zip", "w") as archive:
        archive.writestr("secret", b"x")
    encrypted = bytearray((place / "enc.zip").read_bytes())
    encrypted[encrypted.index(b"PK\1\2") + 8] |= 1
    for name, data, error, said in (
        ("html.tar.gz", b"<html>404</html>", InvalidInputError, "is not a tar archive"),
        ("html.zip", b"<html>404</html>", InvalidInputError, "is not a zip archive"),
        ("enc.zip", bytes(encrypted), InvalidInputError, "'secret' is encrypted"),
        ("cut.zip", (place / "enc.zip").read_bytes()[:-1], CorruptError, "end record"),
        ("header.tar.gz", whole[:9], CorruptError, "gzip stream is cut"),
        ("empty.tar", b"", InvalidInputError, "it is empty"),
        ("members.tar", bytes(10240), NotFoundError, "has no members"),
    ):
        (place / name).write_bytes(data)
        kind = "zip" if name.endswith(".zip") else "tar"
        with pytest.raises(error, match=said):
            Store().import_(f"{kind}://::{place}/{name}", "packed")
        with pytest.raises(NotFoundError):
            Store().describe("packed")
    with pytest.raises(NotFoundError, match=r"no\.tar"):
        Store().import_(f"tar://::{place}/no.tar", "packed")


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_an_archive_in_a_bucket_is_read_once_and_as_one_state(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(input, "PIECE_BYTES", 256 << 10)
    data = packed({**SMALL, "big": BIG})
    if kind == "zip":
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for name, each in {**SMALL, "big": BIG}.items():
                archive.writestr(name, each)
        data = made.getvalue()
    server.put("sets/a", data)
    own = storage.MinIO("bucket", endpoint=server.endpoint, access_key="given", secret_key="given-too")
    version = Store().import_(f"{kind}://::{server.url('sets/a')}", "packed", storage=own)
    assert contents(version) == {f"/{name}": each for name, each in {**SMALL, "big": BIG}.items()}
    gets = [headers for (name, _), headers in zip(server.requests, server.headers, strict=False) if name == "GET"]
    assert len(server.asked("GET")) <= len(data) / (256 << 10) + 4
    assert all("If-Match" in headers for headers in gets)


def test_progress_tells_how_much_of_the_archive_was_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_tree, "REPORT_S", 0.0)
    heard: list[Progress] = []
    size = len(packed(SMALL, place / "a.tgz"))
    Store().import_(f"tar://::{place}/a.tgz", "packed", progress=heard.append)
    of_archive = [each for each in heard if each.stage == "archive"]
    assert [each.done for each in of_archive] == list(range(1, len(SMALL) + 1))
    assert of_archive[-1].total_bytes == of_archive[-1].done_bytes == size


def test_what_is_not_done_with_archives_is_refused(place: Path) -> None:
    packed(SMALL, place / "a.tgz")
    with pytest.raises(InvalidInputError, match="an archive is read by one"), ThreadPoolExecutor() as executor:
        Store().import_(f"tar://::{place}/a.tgz", "packed", executor=executor)
    with pytest.raises(InvalidInputError, match="within an archive"):
        Store().import_(f"tar://::zip://x::{place}/a.tgz", "packed")
    for url in (f"tar://{place}/a.tgz", f"zip://{place}/a.tgz"):
        with pytest.raises(InvalidInputError, match="does not say where the archive is") as caught:
            Store().import_(url, "packed")
        assert "tar://::PATH" in caught.value.hint


def test_what_was_stored_of_an_archive_is_not_stored_again(place: Path) -> None:
    """Also of one that was damaged behind it."""
    large = random.Random(3).randbytes(40_000_000)
    whole = packed({"large": large, "z": b"z"})
    (place / "a.tgz").write_bytes(whole[:-1])
    with pytest.raises(CorruptError):
        Store().import_(f"tar://::{place}/a.tgz", "packed")
    before = packs(place)
    assert before, "a pack was full before the end was reached"
    left_bytes = len(large) - sum(path.stat().st_size for path in before)
    (place / "a.tgz").write_bytes(whole)
    assert contents(Store().import_(f"tar://::{place}/a.tgz", "packed"))["/large"] == large
    assert sum(path.stat().st_size for path in packs(place) - before) < left_bytes + 1_000_000
