"""`content_id` of versions made in several ways, mounted and not; in both classes; without a
request when it is known."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

import cowfs
from cowfs.blocking import ROVolume, RWVolume, Volume
from cowfs.errors import InvalidInputError, NotFoundError
from cowfs.storage import KeyFile, Local, Storage

pytestmark = pytest.mark.usefixtures("place")

LARGE = os.urandom(3 << 20) * 3


def fill(directory: Path) -> None:
    (directory / "d" / "e").mkdir(parents=True)
    for mode, name in ((0o755, "d"), (0o755, "d/e")):
        (directory / name).chmod(mode)
    (directory / "d" / "large").write_bytes(LARGE)
    (directory / "d" / "e" / "small").write_bytes(b"small")
    (directory / "empty").touch()
    (directory / "link").symlink_to("d/e/small")
    os.link(directory / "empty", directory / "d" / "another name")


def uploaded(name: str, source: Path) -> ROVolume:
    volume: RWVolume = Volume.new(name)
    volume.files.upload(source)
    return Volume.version(name)


@pytest.mark.mount
def test_the_same_files_have_the_same_id_however_they_were_stored(place: Path) -> None:
    source = place / "source"
    source.mkdir()
    fill(source)
    first = uploaded("uploaded", source)
    os.utime(source / "empty", (1, 1))
    mounted: RWVolume = Volume.new("mounted")
    fill(mounted.mount())
    second = mounted.finalize("another message")
    stepwise: RWVolume = Volume.new("stepwise")
    path = stepwise.mount()
    fill(path)
    (path / "d" / "large").unlink()
    with (path / "d" / "large").open("wb") as file:
        for at in range(0, len(LARGE), 1 << 20):
            file.write(LARGE[at : at + (1 << 20)])
            os.fsync(file.fileno())
    third = stepwise.finalize()
    (source / "d" / "e" / "small").write_bytes(b"SMALL")
    other = uploaded("other", source)
    assert first.content_id() == second.content_id() == third.content_id() != other.content_id()
    assert [*first.diff(second), *first.diff(third)] == []


def test_a_folder_has_an_id_of_its_own(place: Path) -> None:
    source = place / "source"
    source.mkdir()
    fill(source)
    version = uploaded("v", source)
    folder = Volume.from_locator(f"{version.locator}/d/e")
    alone = uploaded("alone", source / "d" / "e")
    assert folder.content_id() == alone.content_id() != version.content_id()
    with pytest.raises(NotFoundError, match="nowhere"):
        Volume.from_locator(f"{version.locator}/nowhere").content_id()
    with pytest.raises(InvalidInputError, match="not a directory"):
        Volume.from_locator(f"{version.locator}/empty").content_id()


def test_a_known_id_needs_no_request(place: Path) -> None:
    volume: RWVolume = Volume.new("v")
    volume.files.write("/a", b"a")
    version = volume.commit()
    found = version.content_id()
    (place / "store").rename(place / "elsewhere")
    assert ROVolume(version._located.named).content_id() == found
    (place / "elsewhere").rename(place / "store")
    [known] = place.rglob("content-ids")
    known.write_bytes(bytes(known.stat().st_size))
    assert ROVolume(version._located.named).content_id() == found


def test_the_async_class_finds_the_same() -> None:
    volume: RWVolume = Volume.new("v")
    volume.files.write("/a", b"a")
    found = volume.commit().content_id()

    async def body() -> str:
        version = await cowfs.Volume.version("v")
        return await version.content_id()

    assert anyio.run(body) == found
    assert found.startswith("content-1:")


def test_ids_of_an_encrypted_store_belong_to_its_key(place: Path) -> None:
    def made(name: str, store: Storage | None) -> str:
        volume: RWVolume = Volume.new(name, store=store)
        volume.files.write("/a", b"a")
        return volume.commit().content_id()

    key = place / "key"
    key.write_bytes(os.urandom(40))
    store = Local(place / "sealed", encryption_key=KeyFile(key))
    assert made("v", store) == made("w", store) != made("v", None)
