"""What another version has is taken over as it is: what that has lost keeps nobody from the
rest."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cowfs.api.versions import waiting
from cowfs.blocking import ROVolume, Store, Volume
from cowfs.errors import CowfsError, NotFoundError
from cowfs.version.publish.still_there import StillThere
from tests.api.conftest import place

__all__ = ["place"]


def rolled_back(other: ROVolume, own: ROVolume) -> ROVolume:
    Store().rollback("data", own)
    return Volume.version("data")


def restored(other: ROVolume, own: ROVolume) -> ROVolume:
    for name in ("lost", "good"):
        Store().restore("data", Volume.version(f"fork@{other.id}:/{name}"))
    return Volume.version("data")


def merged(other: ROVolume, own: ROVolume) -> ROVolume:
    Store().merge("data", [other])
    return Volume.version("data")


@pytest.fixture
def versions(place: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ROVolume, ROVolume]:
    """Of a fork and of the volume, of which the last version has neither's files. Each has lost the
    pack of one of them."""
    monkeypatch.setattr(waiting, "WAIT_S", 3.0)
    monkeypatch.setenv("COWFS_STORE", str(place / "store"))
    volume = Volume.new("data")
    volume.files.write("first", b"1")
    fork = volume.finalize().fork("fork")
    made = []
    for line in (fork, Volume.open("data")):
        before = packs(place)
        line.files.write("lost", os.urandom(1 << 20))
        line.commit()
        (lost,) = (pack for pack in packs(place) - before if pack.stat().st_size > 1 << 20)
        line.files.write("good", b"whole")
        made.append(line.commit())
        lost.unlink()
    volume = Volume.open("data")
    volume.files.remove("lost")
    volume.files.remove("good")
    volume.finalize()
    return made[0], made[1]


def packs(place: Path) -> set[Path]:
    return {path for path in (place / "store" / "packs").rglob("*") if path.is_file()}


@pytest.mark.parametrize("take", [rolled_back, restored, merged])
def test_what_a_version_has_lost_is_taken_over_as_it_is(
    versions: tuple[ROVolume, ROVolume], take: Callable[[ROVolume, ROVolume], ROVolume]
) -> None:
    found = take(*versions)
    assert found.files.read("good") == b"whole"
    assert found.files.stat("lost").size == 1 << 20
    with pytest.raises((OSError, CowfsError)):
        found.files.read("lost")


@pytest.mark.parametrize("take", [rolled_back, restored, merged])
def test_a_version_that_goes_meanwhile_is_not_taken_over(
    place: Path,
    versions: tuple[ROVolume, ROVolume],
    take: Callable[[ROVolume, ROVolume], ROVolume],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newest = Volume.version("data")
    has = StillThere.has

    def remove(*arguments: Any) -> Any:
        for version in versions:
            next((place / "store" / "versions").rglob(f"*{version.id}*")).unlink()
        return has(*arguments)

    monkeypatch.setattr(StillThere, "has", remove)
    with pytest.raises(NotFoundError, match="has no version"):
        take(*versions)
    assert Volume.version("data").id == newest.id
