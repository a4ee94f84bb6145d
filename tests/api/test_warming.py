"""Contents fetched into this machine's cache before anybody reads them."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cowfs import storage
from cowfs.blocking import Progress, ROVolume, Store, Volume, WarmReport
from cowfs.errors import AccessDeniedError, CorruptError, InvalidInputError, NotFoundError
from cowfs.store.backends.directory.directory_store import DirectoryStore
from tests.api.conftest import place

__all__ = ["place"]

pytestmark = pytest.mark.usefixtures("place")

READS = ("get_range", "stream_range")
LARGE = random.Random(1).randbytes(20_000_000)
SMALL = {f"{n}": random.Random(n).randbytes(3000) for n in range(300)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the packs that this process reads, one for each request."""
    found: list[str] = []

    def noting(call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: DirectoryStore, key: str, *arguments: Any) -> Any:
            found.append(key)
            return call(self, key, *arguments)

        return noted

    for name in READS:
        if hasattr(DirectoryStore, name):
            monkeypatch.setattr(DirectoryStore, name, noting(getattr(DirectoryStore, name)))
    return found


def made(place: Path) -> ROVolume:
    root = place / "source"
    (root / "small").mkdir(parents=True)
    (root / "large").write_bytes(LARGE)
    for name, data in SMALL.items():
        (root / "small" / name).write_bytes(data)
    (root / "again").hardlink_to(root / "large")
    (root / "link").symlink_to("small")
    vol = Volume.new("data")
    vol.files.upload(root, "/")
    return vol.finalize()


def emptied(place: Path, version: ROVolume, monkeypatch: pytest.MonkeyPatch, cache: str = "cold") -> ROVolume:
    """The version, as a machine sees it that has read nothing of it."""
    monkeypatch.setenv("COWFS_CACHE_DIR", str(place / cache))
    return Volume.from_locator(version.locator)


def test_what_is_warm_is_not_asked_for_again(place: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    version = emptied(place, made(place), monkeypatch)
    asked.clear()
    said: list[Progress] = []
    report = version.warm(progress=said.append)
    size = len(LARGE) + 300 * 3000
    expected = WarmReport(301, size, fetched_bytes=size, found_bytes=0, is_complete=True, locator=version.locator)
    assert report == expected
    assert len(asked) <= 8, "whole packs"
    assert said[-1] == Progress("warm", 301, 301, size, size)
    asked.clear()
    assert version.files.read("again") == LARGE
    assert {path.name: version.files.read(path.path) for path in version.files.ls("small")} == SMALL
    assert asked == [], "nor are blocks of the index"
    again = version.warm()
    assert (again.fetched_bytes, again.found_bytes) == (0, size)


def test_a_part_is_warmed_alone(place: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    version = emptied(place, made(place), monkeypatch)
    report = Store().warm("data:link")
    assert (report.files, report.fetched_bytes) == (300, 300 * 3000)
    assert Store().warm("data", "small/7").found_bytes == 3000
    assert Store().warm(f"{version.locator}/small").fetched_bytes == 0
    folder = Volume.from_locator(f"{version.locator}/small")
    assert (folder.warm().files, folder.warm("8").files) == (300, 1)
    with pytest.raises(NotFoundError, match=f"^data@{version.id[:12]}:nowhere: No such file"):
        version.warm("nowhere")
    with pytest.raises(InvalidInputError):
        version.warm(cache_size="much")


def test_what_has_no_room_is_left_out(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache ends within its size, and what was warmed first is still there."""
    version = emptied(place, made(place), monkeypatch)
    report = version.warm(cache_size="8M")
    assert not report.is_complete
    assert 2 << 20 < report.fetched_bytes < 8 << 20
    held = sum(file.stat().st_size for file in (place / "cold").rglob("*") if file.is_file())
    assert held <= 8 << 20
    again = version.warm(cache_size="8M")
    assert (again.is_complete, again.fetched_bytes) == (False, 0)
    assert again.found_bytes == report.fetched_bytes
    assert version.warm(cache_size="80M").is_complete


def test_an_encrypted_version_is_warmed(place: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    store = storage.Local(place / "sealed", encryption_key="a passphrase for tests")
    vol = Volume.new("sealed", store=store)
    vol.files.write("file", LARGE)
    version = vol.finalize()
    monkeypatch.setenv("COWFS_CACHE_DIR", str(place / "cold"))
    assert Volume.from_locator(version.locator, store=store).warm().is_complete
    asked.clear()
    assert Volume.from_locator(version.locator, store=store).files.read("file") == LARGE
    assert asked == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk without room")
def test_what_the_disk_refuses_is_not_there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache says nothing of it."""
    version = emptied(place, made(place), monkeypatch)
    segments = place / "cold" / "cache" / "segments"
    segments.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,mode=700", "none", segments], check=True)
    try:
        report = version.warm()
    finally:
        subprocess.run(["umount", segments], check=True)
    assert (report.is_complete, report.fetched_bytes) == (False, 0)


def test_a_cache_that_another_entry_stands_in_for_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = emptied(place, made(place), monkeypatch)
    (place / "cold" / "cache").mkdir(parents=True)
    (place / "cold" / "cache" / "segments").write_text("no directory")
    with pytest.raises(AccessDeniedError, match="segments is not a directory"):
        version.warm()


def test_damage_keeps_nothing_else_from_being_fetched(
    place: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    version = emptied(place, made(place), monkeypatch)
    packs = [path for path in (place / "store" / "packs").rglob("*") if path.is_file()]
    (pack,) = (path for path in packs if LARGE[10_000_000:10_000_016] in path.read_bytes())
    data = bytearray(pack.read_bytes())
    data[data.find(LARGE[10_000_000:10_000_016])] ^= 1
    pack.chmod(0o600)
    pack.write_bytes(data)
    with pytest.raises(CorruptError):
        version.warm()
    asked.clear()
    assert {path.name: version.files.read(path.path) for path in version.files.ls("small")} == SMALL
    assert asked == []


def test_an_interrupted_warming_goes_on(place: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    version = emptied(place, made(place), monkeypatch)
    version.warm("small")

    class Enough(Exception):
        pass

    def enough(_: Progress) -> None:
        raise Enough

    with pytest.raises(Enough):
        version.warm(progress=enough)
    asked.clear()
    report = version.warm()
    assert report.is_complete
    assert report.found_bytes >= 300 * 3000
    assert version.files.read("large") == LARGE


@pytest.mark.mount
def test_a_mount_reads_what_was_warmed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that was there before; the store is gone meanwhile."""
    version = emptied(place, made(place), monkeypatch)
    with version:
        assert version.warm().is_complete
        (place / "store" / "packs").rename(place / "away")
        try:
            assert (version.path / "large").read_bytes() == LARGE
            assert {path.name: path.read_bytes() for path in (version.path / "small").iterdir()} == SMALL
        finally:
            (place / "away").rename(place / "store" / "packs")
