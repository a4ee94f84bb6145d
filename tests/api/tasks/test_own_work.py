"""A call drops, publishes and leaves only its own work: not that of earlier runs, nor that of the
process that forked it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

import cowfs
from cowfs import TaskVolume
from cowfs.blocking import Volume
from cowfs.errors import ConflictError, InvalidStateError, NotFoundError
from tests.api.conftest import place

__all__ = ["place"]

pytestmark = pytest.mark.mount


def make_base() -> None:
    with Volume.new("base") as base:
        (base / "a").write_text("in")


def keep_work(name: str) -> None:
    volume = Volume.open(name, create=True)
    (volume.mount() / "early").write_text("hours of work")
    volume.unmount()


def test_a_failed_mount_drops_no_work_of_an_earlier_run(place: Path) -> None:
    keep_work("data")
    (place / "full").mkdir()
    (place / "full" / "file").touch()

    @cowfs.task(volumes=[TaskVolume("data", str(place / "full"), "rw")], on_error="discard")
    def work() -> None: ...

    with pytest.raises(ConflictError, match="not empty"):
        work()
    with Volume.open("data") as volume:
        assert (volume / "early").read_text() == "hours of work"


def test_a_failed_task_drops_no_work_of_an_earlier_run(place: Path) -> None:
    keep_work("data")

    @cowfs.task(volumes=["data::rw", "other::rw"], on_error="discard")
    def work() -> None:
        for name in "data", "other":
            (cowfs.current(name) / "late").touch()
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken") as caught:
        work()
    assert any("'data' was not published" in note for note in caught.value.__notes__)
    with Volume.open("data") as volume:
        assert (volume / "early").read_text() == "hours of work"
    assert not Volume.open("other").has_changes()


def _in_child() -> bool:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return not child


@pytest.mark.parametrize("returns", [False, True])
def test_a_forked_child_publishes_and_leaves_nothing(place: Path, *, returns: bool) -> None:
    ours = os.getpid()

    @cowfs.task(volumes=["data::rw"], on_error="commit")
    def work() -> Any:
        data = cowfs.current("data")
        (data / "half").touch()
        if _in_child() and not returns:
            raise SystemExit(0)
        return data

    try:
        version = work()
    finally:
        if os.getpid() != ours:
            os._exit(0)
    assert version.message != "after an error: SystemExit"
    assert [each.id for each in version.history()] == [version.id]


def test_a_stop_ends_a_forked_child(place: Path) -> None:
    @cowfs.task
    async def work() -> int:
        ready, said = os.pipe()
        child = os.fork()
        if not child:
            os.write(said, b"1")
            time.sleep(20)  # noqa: ASYNC251
            os._exit(0)
        os.read(ready, 1)
        os.kill(child, signal.SIGTERM)
        return os.waitpid(child, 0)[1]  # noqa: ASYNC222

    assert anyio.run(work) == signal.SIGTERM


async def _sleep_in_nursery() -> None:
    import trio

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 20)
        await trio.sleep(20)


async def _sleep_and_fail() -> None:
    try:
        await anyio.sleep(20)
    except BaseException as error:
        raise RuntimeError("the stop hides behind this") from error


@pytest.mark.parametrize("by", ["cancellation", "SIGTERM"])
def test_a_stop_is_noticed_in_a_group_of_errors(place: Path, by: str) -> None:
    @cowfs.task(volumes=["data::rw"], on_error="discard", on_stop="keep")
    async def work() -> None:
        (Path(cowfs.current("data").path) / "file").touch()
        if by != "cancellation":
            os.kill(os.getpid(), signal.SIGTERM)
        await _sleep_in_nursery()

    async def main() -> None:
        with anyio.move_on_after(2 if by == "cancellation" else 20):
            await work()

    if by == "cancellation":
        anyio.run(main, backend="trio")
    else:
        with pytest.raises(SystemExit):
            anyio.run(main, backend="trio")
    volume = Volume.open("data")
    assert volume.has_changes()
    volume.discard()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_stop_is_noticed_behind_another_error(place: Path, backend: str) -> None:
    @cowfs.task(volumes=["data::rw"], on_error="discard", on_stop="keep")
    async def work() -> None:
        (Path(cowfs.current("data").path) / "file").touch()
        os.kill(os.getpid(), signal.SIGTERM)
        await _sleep_and_fail()

    with pytest.raises(RuntimeError, match="hides"):
        anyio.run(work, backend=backend)
    assert Volume.open("data").has_changes()


def test_work_that_could_not_be_published_is_kept_whatever_the_policy(place: Path) -> None:
    """The body has succeeded; here another volume of its result cannot be published."""

    @cowfs.task(volumes=["out::rw"], on_error="discard")
    def work() -> Any:
        (cowfs.current("out") / "a").write_text("1")
        gone = Volume.new("gone")
        gone.mount()
        gone.discard()
        return [gone, cowfs.current("out")]

    with pytest.raises(InvalidStateError, match="has no version"):
        work()
    assert Volume.open("out").resolve().has_changes()


def test_a_mount_that_fails_publishes_nothing_of_an_earlier_call(place: Path) -> None:
    keep_work("out")

    @cowfs.task(volumes=["out::rw", "missing"], on_error="commit")
    def work() -> None:
        raise AssertionError("the body ran")

    with pytest.raises(NotFoundError):
        work()
    assert Volume.open("out").resolve().locator is None


def test_a_fork_that_another_program_committed_to_stays(place: Path) -> None:
    make_base()

    @cowfs.task(volumes=["base::fork"])
    def work() -> None:
        path = cowfs.current("base").path
        (path / "b").write_text("b")
        subprocess.run([sys.executable, "-m", "cowfs", "unmount", "--commit", "--force", str(path)], check=True)
        raise ValueError("midway")

    with pytest.raises(ValueError, match="midway"):
        work()
    assert Volume.version("base-work").files.read("b") == b"b"


def test_a_volume_is_found_beside_one_that_the_body_has_ended(place: Path) -> None:
    make_base()

    @cowfs.task(volumes=["out::rw", "base"])
    def work() -> str:
        cowfs.current("out").discard()
        return str((cowfs.current("base") / "a").read_text())

    assert work() == "in"
