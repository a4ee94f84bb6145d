"""The store is whole, and answers are damaged on their way: what is asked for once more is right,
and nothing is called damaged."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cowfs.base import config
from cowfs.base.ids import VersionId
from cowfs.blocking import RWVolume, Store, Volume
from cowfs.errors import CorruptError
from cowfs.format import keys
from cowfs.store import open_store, scratch_objects
from cowfs.store.backends.directory import directory_store
from cowfs.store.reliability.damaged import ASKS, read_as
from tests.api.conftest import place
from tests.faulty_store import FaultyStore

__all__ = ["place"]


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def flipped(data: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]


def of_a_proxy(data: bytes, chance: random.Random) -> bytes:
    return b"<html>%d: we are sorry</html>" % chance.random()


DAMAGE = [cut, flipped, of_a_proxy]


def diff(volume: RWVolume) -> None:
    assert [change.path for change in Volume.version("data@{1}").diff(Volume.version("data"))]


def look(volume: RWVolume) -> None:
    assert [version.message for version in volume.history()] == ["second", "first"]
    assert [found.name for found in Store().volumes()] == ["data", "fork"]
    assert Volume.version("data@first").files.read("a") == b"a"


def write(volume: RWVolume) -> None:
    volume.files.write("c", b"c")
    volume.commit("third")
    assert volume.fork("another").files.read("c") == b"c"


def keep_house(volume: RWVolume) -> None:
    report = Store().verify()
    assert (report.damaged, report.broken) == ([], [])
    plan = Store().plan_prune("data", last=2)
    assert Store().prune(plan) == []
    Store().gc()
    assert Store().verify().is_sound


def merge(volume: RWVolume) -> None:
    Store().merge("data", [Volume.version("fork")])
    assert Volume.version("data").files.read("b") == b"of the fork"


def repair(volume: RWVolume) -> None:
    assert Store().plan_repair().packs == []


def copy(volume: RWVolume) -> None:
    """What is put is read back: those answers are damaged, too."""
    there = f"{config.default_store()}-mirror"
    for name in ("data", "fork"):
        assert Store().push(name, there).put_packs
        assert Store().pull(name, there, name=f"{name}-again").is_new
    report = Store(there).verify()
    assert (report.damaged, report.broken) == ([], [])


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("work", [look, diff, write, keep_house, repair, copy, merge])
def test_one_damaged_answer_for_each_object_stops_nothing(
    place: Path, work: Callable[[RWVolume], None], damage: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    volume: RWVolume = Volume.new("data")
    volume.files.write("a", b"a")
    volume.commit("first").tag("first")
    fork = volume.fork("fork")
    fork.files.write("b", b"of the fork")
    fork.commit("the fork's")
    volume.files.write("a", b"another a")
    volume.commit("second")
    monkeypatch.setenv("COWFS_CACHE_DIR", str(place / "cold"))
    answered: Counter[tuple[str, str, object]] = Counter()
    chance = random.Random(7)

    def altering(ask: Callable[..., bytes]) -> Callable[..., bytes]:
        def answer(self: directory_store.DirectoryStore, key: str, *more: Any) -> bytes:
            data = bytes(ask(self, key, *more))
            if key.startswith(scratch_objects.PREFIX):  # a new store that gives something else back is refused
                return data
            answered[self.url, key, more] += 1
            return damage(data, chance) if data and answered[self.url, key, more] == 1 else data

        return answer

    for name in ("get", "get_range"):
        monkeypatch.setattr(
            directory_store.DirectoryStore, name, altering(getattr(directory_store.DirectoryStore, name))
        )
    work(Volume.open("data"))
    assert answered


def test_a_manifest_that_arrives_damaged_is_not_put_elsewhere(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody would ever replace it."""
    volume: RWVolume = Volume.new("data")
    volume.files.write("a", b"a")
    version = volume.commit("first")
    key, get, chance, answered = (
        keys.version(VersionId.from_hex(version.id)),
        directory_store.DirectoryStore.get,
        random.Random(7),
        0,
    )

    def every_other_one(self: directory_store.DirectoryStore, wanted: str) -> bytes:
        nonlocal answered
        data = get(self, wanted)
        if wanted != key or self.url != config.default_store():
            return data
        answered += 1
        return flipped(data, chance) if answered % 2 else data

    monkeypatch.setattr(directory_store.DirectoryStore, "get", every_other_one)
    Store().push("data", there := f"{config.default_store()}-mirror")
    assert answered > 2
    assert Volume.version("data", store=there).files.read("a") == b"a"


def test_what_is_damaged_is_told_from_what_arrives_damaged(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Volume.new("data").resolve()
    store = FaultyStore(open_store((place / "store").as_uri()))
    answers: list[bytes] = []
    key = keys.STORE

    def refuse(data: bytes) -> None:
        answers.append(data)
        raise CorruptError("damaged")

    for wanted, given in [
        (2, [b"x", b"x", b"y"]),
        (ASKS, [b"%d" % n for n in range(9)]),
        (4, [b"1", b"2", b"1", b"1"]),
    ]:
        answers.clear()
        left = iter(given)
        monkeypatch.setattr(store, "get", lambda key, left=left: next(left))
        with pytest.raises(CorruptError, match="damaged") as caught:
            read_as(store, key, refuse)
        assert len(answers) == wanted
        assert "asked for again" in caught.value.hint


def test_a_damaged_heartbeat_locks_nobody_out(place: Path) -> None:
    volume: RWVolume = Volume.new("data")
    volume.files.write("a", b"a")
    volume.commit()
    volume.finalize()
    (heartbeat,) = (place / "store/volumes/data/heartbeat").iterdir()
    heartbeat.write_bytes(b"")
    os.utime(heartbeat, (10**9, 10**9))
    assert [each.writer for each in Store().volumes()] == [None]
    (place / "source").mkdir()
    Volume.open("data").files.upload(place / "source", "/b")
    assert Volume.open("data").files.read("a") == b"a"
