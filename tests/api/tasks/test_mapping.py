"""`cowfs.map` with real mounts: a fork for each shard, one merge, nothing left."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

import cowfs
from cowfs.api.tasks import mapping
from cowfs.blocking import ROVolume, RWVolume, Store, Volume
from cowfs.errors import ConflictError, InvalidInputError, UnavailableError
from cowfs.machine import registry
from cowfs.version.names import volumes
from tests.api.conftest import machine

pytestmark = pytest.mark.mount


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for root in machine(monkeypatch):
        with Volume.new("base") as base:
            (base / "a").write_text("in")
        yield root
        assert not registry.list_mounts(), "a shard has left a mount"


def double(volume: RWVolume, shard: int) -> None:
    assert (volume / "a").read_text() == "in"
    assert not list(volume.path.glob("shard-*")), "the fork of another shard or attempt"
    (volume / f"shard-{shard}").write_text(str(2 * shard))


def fail_at_two(volume: RWVolume, shard: int) -> None:
    double(volume, shard)
    if shard == 2:
        raise ValueError("shard two fails")


def die_at_two(volume: RWVolume, shard: int) -> None:
    double(volume, shard)
    if shard == 2:
        os._exit(9)


def write_one(volume: RWVolume, shard: int) -> None:
    (volume / "a").write_text(f"shard {shard}")


def names() -> list[str]:
    return [each.name for each in Store().volumes()]


def files(version: ROVolume) -> dict[str, str]:
    return {entry.name: version.files.read_text(entry.name) for entry in version.files.ls()}


def processes() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


@pytest.mark.parametrize("make", [lambda: None, lambda: ThreadPoolExecutor(3), processes])
def test_each_shard_has_a_fork_and_one_merge_has_all(make: Callable[[], Any], place: Path) -> None:
    executor = make()
    base = Volume.version("base")
    merged = cowfs.map(double, "base", range(8), executor=executor, message="doubled")
    if executor is not None:
        executor.shutdown()
    assert files(merged) == {"a": "in", **{f"shard-{n}": str(2 * n) for n in range(8)}}
    assert (merged, merged.message, merged.is_new) == (Volume.version("base"), "doubled", True)
    assert len(merged.parents) == 9
    assert base.id in merged.parents
    assert names() == ["base"]


def test_into_another_volume(place: Path) -> None:
    base = Volume.version("base")
    merged = cowfs.map(double, base, [1], into="doubled")
    assert merged.name == "doubled"
    assert set(files(merged)) == {"a", "shard-1"}
    assert Volume.version("base") == base
    again = cowfs.map(double, base, [3], into="doubled")
    assert set(files(again)) == {"a", "shard-1", "shard-3"}
    assert sorted(names()) == ["base", "doubled"]


def test_nothing_to_do_makes_no_version(place: Path) -> None:
    base = Volume.version("base")
    assert cowfs.map(double, base, []) == base
    assert cowfs.map(lambda volume, shard: None, base, range(2)) == base
    assert names() == ["base"]


def test_a_failed_shard_merges_nothing_and_names_the_forks(place: Path) -> None:
    base = Volume.version("base")
    with pytest.raises(ValueError, match="shard two") as raised:
        cowfs.map(fail_at_two, base, range(4))
    forks = sorted(set(names()) - {"base"})
    assert Volume.version("base") == base
    assert len(forks) == 3
    note = next(each for each in raised.value.__notes__ if "No shard was merged" in each)
    assert all(fork in note for fork in forks)
    report = Volume.open("base").merge(forks)
    assert set(files(Volume.from_locator(report.locator))) == {"a", "shard-0", "shard-1", "shard-3"}


def test_what_was_submitted_before_an_error_ends_first(place: Path) -> None:
    """The iterator of shards may fail, or an executor whose worker was killed takes no more."""

    def shards() -> Iterator[int]:
        yield from (0, 1)
        raise ValueError("no more shards")

    with ThreadPoolExecutor(1) as executor:
        with pytest.raises(ValueError, match="no more") as raised:
            cowfs.map(double, "base", shards(), executor=executor)
        forks = sorted(set(names()) - {"base"})
    assert len(forks) == 2
    assert all(fork in str(raised.value.__notes__) for fork in forks)


def test_a_conflict_merges_nothing_and_names_the_forks(place: Path) -> None:
    base = Volume.version("base")
    with pytest.raises(ConflictError) as raised:
        cowfs.map(write_one, base, range(2))
    assert Volume.version("base") == base
    assert all(fork in str(raised.value.__notes__) for fork in set(names()) - {"base"})
    merged = cowfs.map(write_one, base, range(2), strategy="theirs")
    assert files(merged)["a"] == "shard 1"


@pytest.mark.parametrize("page", [1, 2])
def test_the_version_is_returned_when_its_forks_cannot_be_listed(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, page: int
) -> None:
    """They stay, which is no failure of the map."""
    pages, real = itertools.count(1), volumes.volume_names

    def met(*given: Any, **named: Any) -> list[str]:
        if next(pages) == page:
            raise UnavailableError("no list for you")
        return real(*given, **named)

    caplog.set_level("INFO", logger="cowfs")
    monkeypatch.setattr(mapping, "_PAGE", 1)
    monkeypatch.setattr(volumes, "volume_names", met)
    merged = cowfs.map(double, "base", range(2))
    monkeypatch.setattr(volumes, "volume_names", real)
    assert set(files(merged)) == {"a", "shard-0", "shard-1"}
    assert len(names()) == 1 + 2 - (page - 1)
    assert "stay: no list for you" in caplog.text


def test_a_process_that_is_killed_ends_its_mount_and_drops_its_work(place: Path) -> None:
    base = Volume.version("base")
    with processes() as executor, pytest.raises(BrokenProcessPool):
        cowfs.map(die_at_two, base, [2], executor=executor)
    end_s = time.monotonic() + 60
    while registry.list_mounts() and time.monotonic() < end_s:
        time.sleep(0.1)
    assert Volume.version("base") == base
    merged = cowfs.map(double, base, [2])
    assert set(files(merged)) == {"a", "shard-2"}


class Twice(Executor):
    """Runs each shard twice, as a scheduler does that has lost an answer."""

    def submit(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        function(*given, **named)
        future: Future[Any] = Future()
        future.set_result(function(*given, **named))
        return future


def append(volume: RWVolume, shard: int) -> None:
    with open(volume / "log", "a") as log:
        log.write(f"{shard}\n")


def test_a_shard_that_is_run_again_is_merged_once(place: Path) -> None:
    merged = cowfs.map(append, "base", range(3), executor=Twice(), strategy="union")
    assert sorted(files(merged)["log"].split()) == ["0", "1", "2"]
    assert names() == ["base"]


async def asynchronous(volume: RWVolume, shard: int) -> None:
    raise AssertionError


@pytest.mark.parametrize("given", [asynchronous, "no function"])
def test_what_cannot_be_mapped(given: Any, place: Path) -> None:
    with pytest.raises(InvalidInputError):
        cowfs.map(given, "base", [1])
