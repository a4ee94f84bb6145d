"""`cowfs.task` with real mounts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

import anyio
import pytest

import cowfs
from cowfs import TaskVolume, blocking
from cowfs.blocking import Store, Volume
from cowfs.errors import ConflictError, InvalidInputError, LeaseHeldError, LeaseLostError, NotFoundError
from cowfs.machine import registry
from tests.api.conftest import machine

pytestmark = pytest.mark.mount


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for root in machine(monkeypatch):
        with Volume.new("base") as base:
            (base / "a").write_text("in")
        yield root
        assert not registry.list_mounts(), "a task has left a mount"


HOLDER = """
import sys
from cowfs.blocking import Volume
with Volume.open("base"):
    print(1, flush=True)
    sys.stdin.read()
"""


def names() -> list[str]:
    return [each.name for each in Store().volumes()]


def read(version: Any, path: str) -> str:
    return bytes(Volume.from_locator(version.locator).files.read(path)).decode()


def test_each_mode(place: Path) -> None:
    @cowfs.task(volumes=["base", "out::rw", f"base:{place}/f:fork", "base::scratch"])
    def work() -> str:
        readers = [cowfs.current("out"), cowfs.current(f"{place}/f")]
        for volume in readers:
            (volume / "b").write_text("written")
        with pytest.raises(InvalidInputError, match="several"):
            cowfs.current("base")
        return "done"

    assert work() == "done"
    assert names() == ["base", "base-work", "out"]
    assert Volume.version("out").files.read("b") == b"written"
    assert sorted(entry.name for entry in Volume.version("base-work").files.ls()) == ["a", "b"]
    assert not Volume.version("base").files.exists("b")


def test_writers_in_the_result_are_versions(place: Path) -> None:
    @cowfs.task(volumes=["base::fork"])
    def work() -> Any:
        fork = cowfs.current("base")
        own = Volume.new("own")
        (own.mount() / "x").write_text("x")
        (fork / "y").write_text("y")
        return {"fork": [fork, fork], "own": own}

    result = work()
    assert [type(each) for each in (*result["fork"], result["own"])] == [blocking.ROVolume] * 3
    assert result["fork"][0] == result["fork"][1]
    assert read(result["fork"][0], "y") == "y"
    assert read(result["own"], "x") == "x"


def test_an_async_task_has_and_returns_async_volumes(place: Path) -> None:
    @cowfs.task(volumes=["base::fork"])
    async def work(given: cowfs.ROVolume) -> Any:
        assert type(given) is cowfs.ROVolume
        assert ((await given.mount()) / "a").read_text() == "in"
        fork = cowfs.current("base")
        assert type(fork) is cowfs.RWVolume
        (fork.path / "b").write_text("b")
        return fork

    version = anyio.run(work, "base")  # type: ignore[arg-type]
    assert type(version) is cowfs.ROVolume
    assert read(version, "b") == "b"
    assert read(anyio.run(work, "base", backend="trio"), "b") == "b"  # type: ignore[arg-type]


def test_a_text_is_looked_up_where_a_volume_is_expected(place: Path) -> None:
    @cowfs.task
    def work(
        version: blocking.ROVolume, text: str, either: blocking.ROVolume | str, none: blocking.ROVolume | None = None
    ) -> Any:
        return type(version), text, either, none

    assert work("base", "base", "base") == (blocking.ROVolume, "base", "base", None)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError):
        work("nothing", "a", "b")  # type: ignore[arg-type]


def test_a_volume_is_of_the_kind_of_the_function(place: Path) -> None:
    @cowfs.task
    async def work(version: cowfs.ROVolume) -> Any:
        return await version.mount(), version

    @cowfs.task
    def after(version: blocking.ROVolume) -> Any:
        return version.mount(), version

    first = Volume.version("base")
    path, version = anyio.run(work, first)  # type: ignore[arg-type]
    assert type(version) is cowfs.ROVolume
    assert after(version) == (path, first)  # type: ignore[arg-type]
    assert type(after(version)[1]) is blocking.ROVolume  # type: ignore[arg-type]
    assert after(first)[1] is first


def test_locators_as_a_result(place: Path) -> None:
    @cowfs.task(volumes=["out::rw"], returns="locator")
    def work(given: blocking.ROVolume) -> Any:
        (cowfs.current("out") / "a").write_text("1")
        return [given, cowfs.current("out")]

    result = work("base")  # type: ignore[arg-type]
    assert result == [Volume.version("base").locator, Volume.version("out").locator]


def fail() -> None:
    raise ValueError("midway")


def test_after_an_exception_the_work_is_kept_and_the_log_says_where(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened: list[TextIO] = []

    @cowfs.task(volumes=["out::rw", "base::fork", "base::shared", "base", "base::scratch"])
    def work() -> None:
        (cowfs.current("out") / "a").write_text("1")
        held = (cowfs.current("out").path / "held").open("w")
        opened.append(held)
        own = Volume.new("own")
        (own.mount() / "x").write_text("x")
        held.write("not flushed")
        fail()

    with caplog.at_level(logging.WARNING, "cowfs"), pytest.raises(ValueError, match="midway") as caught:
        work()
    with contextlib.suppress(OSError):
        opened[0].close()
    notes = "\n".join(caught.value.__notes__)
    for name in ("out", "own"):
        assert f"cowfs mount {name}" in notes
        assert f"cowfs mount {name}" in caplog.text
        with Volume.open(name) as resumed:
            assert [path.name for path in resumed.path.iterdir()]
    assert names() == ["base", "out", "own"], "a fork without work was left"


def test_after_an_exception_it_is_published_or_dropped_as_asked(place: Path) -> None:
    @cowfs.task(volumes=["out::rw", "base::fork"], on_error="commit")
    def publish() -> None:
        (cowfs.current("out") / "a").write_text("1")
        fail()

    @cowfs.task(volumes=["out::rw", "base::fork"], on_error="discard")
    def drop() -> None:
        (cowfs.current("out") / "b").write_text("1")
        (cowfs.current("base") / "b").write_text("1")
        fail()

    with pytest.raises(ValueError, match="midway") as caught:
        publish()
    version = Volume.version("out")
    assert version.locator in "\n".join(caught.value.__notes__)
    assert (version.message, version.labels) == ("after an error: ValueError", {"cowfs.error": "ValueError"})
    with pytest.raises(ValueError, match="midway"):
        drop()
    assert Volume.version("out") == version
    assert not Volume.open("out").resolve().has_changes()
    assert names() == ["base", "base-publish", "out"], "the fork was published as it was; the dropped one is gone"


def test_a_cancelled_task(place: Path) -> None:
    @cowfs.task(volumes=["out::rw"], on_error="discard", on_stop="commit")
    async def work(name: str) -> None:
        (cowfs.current("out") / name).write_text("1")
        await asyncio.sleep(60)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(work("a"), 3)
        with anyio.move_on_after(3) as scope:
            await work("b")
        assert scope.cancelled_caught

    asyncio.run(main())
    history = Volume.open("out").history()
    assert [version.message for version in history] == ["after an error: CancelledError"] * 2
    assert sorted(entry.name for entry in history[0].files.ls()) == ["a", "b"]


def test_a_failed_mount_leaves_those_before_it(place: Path) -> None:
    @cowfs.task(volumes=["out::rw", "missing"])
    def work() -> None:
        raise AssertionError("the body ran")

    with pytest.raises(NotFoundError):
        work()


def test_tasks_in_tasks_and_beside_them(place: Path) -> None:
    @cowfs.task(volumes=["base"])
    def inner(number: int) -> int:
        with pytest.raises(NotFoundError, match="no volume 'out'"):
            cowfs.current("out")
        assert (cowfs.current("base") / "a").read_text() == "in"
        return number

    @cowfs.task(volumes=["out::rw"])
    def outer() -> list[int]:
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(inner, range(4)))
        (cowfs.current("out") / "a").write_text("1")
        thread = ThreadPoolExecutor(1).submit(cowfs.current, "out")
        assert isinstance(thread.exception(), NotFoundError), "threads started by hand do not belong to the call"
        return done

    assert outer() == [0, 1, 2, 3]
    with pytest.raises(NotFoundError, match="no task"):
        cowfs.current("base")


def test_a_mount_that_was_there_before_stays(place: Path) -> None:
    outside = Volume.open("base")
    path = outside.mount()

    @cowfs.task
    def work(volume: Any) -> None:
        assert volume.mount() == path
        assert Volume.open("base").mount() == path

    work(outside)
    assert outside.is_mounted
    outside.unmount()


def test_a_body_may_end_its_volumes_by_itself(place: Path) -> None:
    @cowfs.task(volumes=["base::fork", "out::rw"])
    def work() -> Any:
        fork, out = cowfs.current("base"), cowfs.current("out")
        (fork / "b").write_text("b")
        (out / "b").write_text("b")
        version = fork.finalize(message="mine")
        out.discard()
        with Volume.new("block") as block:
            (block / "x").write_text("x")
        return version, fork

    version, again = work()
    assert version == again
    assert version.message == "mine"
    assert read(Volume.version("block"), "x") == "x"


def test_shared_calls_meet_in_the_head(place: Path) -> None:
    @cowfs.task(volumes=[TaskVolume("log", mode="shared", strategy={"lines": "union"})])
    def work(number: int) -> Any:
        volume = cowfs.current("log")
        (volume / f"f{number}").write_text(str(number))
        with (volume.path / "lines").open("a") as lines:
            lines.write(f"{number}\n")
        return volume

    with ThreadPoolExecutor(3) as pool:
        versions = list(pool.map(work, range(3)))
    files = Volume.version("log").files
    assert sorted(entry.name for entry in files.ls()) == ["f0", "f1", "f2", "lines"]
    assert sorted(bytes(files.read("lines")).split()) == [b"0", b"1", b"2"]
    assert {version.name for version in versions} == {"log"}
    assert names() == ["base", "log"], "the forks are deleted"


def test_a_true_conflict_names_the_fork_that_is_kept(place: Path) -> None:
    @cowfs.task(volumes=["base::shared"])
    def work() -> None:
        (cowfs.current("base") / "a").write_text("from the fork")
        with Volume.open("base") as base:
            (base / "a").write_text("from elsewhere")

    with pytest.raises(ConflictError) as caught:
        work()
    fork = caught.value.details["fork"]
    assert f"cowfs merge {fork} --into base --strategy" in caught.value.hint
    assert Volume.version(fork).files.read("a") == b"from the fork"
    assert Volume.version("base").files.read("a") == b"from elsewhere"


def test_placeholders(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")

    @cowfs.task(volumes=["out-{rank}::rw", TaskVolume("base", mode="fork", fork_name="mine-{rank}")])
    def work() -> None:
        (cowfs.current("out-3") / "a").write_text("1")
        (cowfs.current("mine-3") / "a").write_text("1")

    work()
    assert names() == ["base", "mine-3", "out-3"]


def test_a_task_waits_for_another_writer(place: Path) -> None:
    (place / "other").mkdir(mode=0o700)
    there = {name: str(place / "other") for name in ("COWFS_STATE_DIR", "XDG_RUNTIME_DIR", "HOME")}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], env=os.environ | there, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.read(1)

        @cowfs.task(volumes=["base::rw"])
        def refused() -> None:
            raise AssertionError("the body ran")

        @cowfs.task(volumes=["base::rw"], wait="120s")
        def work() -> None:
            (cowfs.current("base") / "b").write_text("b")

        with pytest.raises(LeaseHeldError):
            refused()
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(work)
            with pytest.raises(TimeoutError):
                done.result(2)
            other.stdin.close()
            done.result(120)
    assert Volume.version("base").files.read("b") == b"b"


def test_work_that_was_overtaken_is_not_said_to_go_on(place: Path) -> None:
    (place / "other").mkdir(mode=0o700)
    there = {name: str(place / "other") for name in ("COWFS_STATE_DIR", "XDG_RUNTIME_DIR", "HOME")}

    @cowfs.task(volumes=["base::rw"])
    def work() -> None:
        (cowfs.current("base") / "b").write_text("b")
        program = (
            "from cowfs.blocking import Volume; v = Volume.open('base'); v.mount(take_over=True); v.finalize('theirs')"
        )
        subprocess.run([sys.executable, "-c", program], env=os.environ | there, check=True, timeout=120)

    with pytest.raises(LeaseLostError) as caught:
        work()
    notes = "\n".join(caught.value.__notes__)
    assert "cowfs fork base NAME" in notes
    assert "cowfs mount base" not in notes
    saved = Volume.open("base").fork("saved")
    with saved:
        assert (saved / "b").read_text() == "b"


def test_calls_on_one_machine_take_turns_with_a_volume(place: Path) -> None:
    begun, may_end = threading.Event(), threading.Event()

    @cowfs.task(volumes=["out::rw"])
    def hold() -> None:
        (cowfs.current("out") / "half").write_text("half")
        begun.set()
        assert may_end.wait(60)
        (cowfs.current("out") / "half").unlink()

    @cowfs.task(volumes=["out::rw"])
    def refused() -> None:
        raise AssertionError("the body ran")

    @cowfs.task(volumes=["out::rw"], wait=60)
    def work() -> Any:
        assert not (cowfs.current("out").path / "half").exists()
        (cowfs.current("out") / "b").write_text("b")
        return cowfs.current("out")

    with ThreadPoolExecutor(2) as pool:
        holding = pool.submit(hold)
        assert begun.wait(60)
        with pytest.raises(LeaseHeldError, match="another call or program") as caught:
            refused()
        assert "shared" in caught.value.hint
        working = pool.submit(work)
        with pytest.raises(TimeoutError):
            working.result(1)
        may_end.set()
        holding.result(60)
        assert read(working.result(60), "b") == "b"
    with Volume.open("out") as outside:
        with pytest.raises(LeaseHeldError, match=str(outside.path)):
            refused()
        assert outside.is_mounted


def test_of_many_calls_at_once_each_has_the_volume_alone(place: Path) -> None:
    inside: list[int] = []

    @cowfs.task(volumes=["out::rw"], wait=120)
    def work(number: int) -> None:
        inside.append(number)
        assert len(inside) == 1
        (cowfs.current("out") / str(number)).write_text("x")
        assert len(inside) == 1
        inside.remove(number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert sorted(entry.name for entry in Volume.version("out").files.ls()) == ["0", "1", "2", "3"]
