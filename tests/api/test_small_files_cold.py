"""Small files that nobody has read on this machine: requests a megabyte, not one a file."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cowfs.blocking import ROVolume, Volume
from cowfs.errors import CorruptError
from cowfs.store.backends.directory.directory_store import DirectoryStore
from tests.api.conftest import place

__all__ = ["place"]

pytestmark = pytest.mark.usefixtures("place")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What this process asks of packs, a line a request."""
    found: list[str] = []

    def noting(call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(self: DirectoryStore, key: str, *arguments: Any) -> Any:
            found.append(key)
            return call(self, key, *arguments)

        return noted

    for name in ("get", "size", "get_range", "stream_range"):
        monkeypatch.setattr(DirectoryStore, name, noting(getattr(DirectoryStore, name)))
    return found


def cold(place: Path, monkeypatch: pytest.MonkeyPatch, count: int, size: int) -> tuple[ROVolume, dict[str, bytes]]:
    """A version of files of about a size, on a machine that has read nothing of it."""
    chance = random.Random(count)
    files = {f"d{n % 7}/f{n:05}": chance.randbytes(size + chance.randrange(500)) for n in range(count)}
    root = place / "source"
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    vol = Volume.new("data")
    vol.files.upload(root, "/")
    version = vol.finalize()
    monkeypatch.setenv("COWFS_CACHE_DIR", str(place / "cold"))
    return Volume.from_locator(version.locator), files


@pytest.mark.parametrize(("count", "size"), [(3000, 8_000), (200, 120_000)])
def test_a_walk_costs_some_requests_a_pack(
    place: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch, count: int, size: int
) -> None:
    version, files = cold(place, monkeypatch, count, size)
    asked.clear()
    assert all(version.files.read(path) == files[path] for path in sorted(files))
    assert len(asked) <= 35, "24 MB in two packs, the index among them"


def test_readers_at_random_ask_no_oftener(place: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    version, files = cold(place, monkeypatch, 3000, 8_000)
    asked.clear()
    paths = random.Random(1).sample(sorted(files), 500)
    assert all(version.files.read(path) == files[path] for path in paths)
    assert len(asked) <= 100


def test_damage_among_what_comes_along_is_told_to_its_own_reader(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version, files = cold(place, monkeypatch, 400, 3000)
    bad = "d3/f00206"
    [pack] = [
        path for path in (place / "store" / "packs").rglob("*") if path.is_file() and files[bad] in path.read_bytes()
    ]
    data = pack.read_bytes()
    at = data.index(files[bad]) + 1500
    pack.chmod(0o600)
    pack.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])

    def outcome(path: str) -> bool | None:
        try:
            return version.files.read(path) == files[path]
        except CorruptError:
            return None

    with ThreadPoolExecutor(8) as readers:
        found = dict(zip(files, readers.map(outcome, files), strict=True))
    assert found == {path: None if path == bad else True for path in files}


def test_a_pack_that_has_gone_costs_some_requests(
    place: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not some for each chunk that would have come along."""
    version, files = cold(place, monkeypatch, 1200, 2000)
    paths = sorted(files)
    assert all(version.files.read(path) == files[path] for path in paths[:3])
    for pack in [path for path in (place / "store" / "packs").rglob("*") if path.is_file()]:
        if pack.stat().st_size > 1 << 20:
            pack.unlink()
    version.files.stat(paths[-1])
    asked.clear()
    with pytest.raises(CorruptError):
        version.files.read(paths[-100])
    assert len(asked) <= 20
