"""Whoever cancels a call, or a block, waits for its thread: nothing is abandoned halfway, and what
a block's end has to do is done. Under asyncio by everything that cancels tasks there; under trio by
its scopes and Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import anyio.lowlevel
import pytest
from anyio import from_thread

from cowfs import Volume, blocking, storage
from cowfs.api.mounts import launch
from cowfs.api.storage import objects
from cowfs.api.twins.threads import in_any_case, in_thread, iterated
from cowfs.api.twins.twin import as_async
from cowfs.base import interruptible
from cowfs.machine import registry

BACKENDS = ("asyncio", "trio")


class Call:
    """In a thread: begins, goes on when it may, tells the event loop of its progress, and ends."""

    def __init__(self, ending: Callable[[], Any] = lambda: "result") -> None:
        self.begun, self.may_end, self.progress, self.is_over = threading.Event(), threading.Event(), 0, False
        self._ending = ending

    def __call__(self) -> Any:
        self.begun.set()
        assert self.may_end.wait(60)
        from_thread.run_sync(self._advance)
        self.is_over = True
        return self._ending()

    def _advance(self) -> None:
        self.progress += 1


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 60)


def everybody() -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def once(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await turns()


async def again_and_again(task: asyncio.Task[Any]) -> None:
    for _ in range(3):
        task.cancel()
        task.cancel()
        await turns()


async def with_all_tasks(task: asyncio.Task[Any]) -> None:
    for _ in range(2):
        everybody()
        await turns()


WAYS = (once, again_and_again, with_all_tasks)
Way = Callable[[asyncio.Task[Any]], Awaitable[None]]


async def cancelled_only_after(call: Call, task: asyncio.Task[Any], way: Way) -> None:
    """The task waits for the call that it has begun, and is cancelled then."""
    await until(call.begun)
    await way(task)
    assert not task.done()
    call.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task


# -- calls


@pytest.mark.quick
@pytest.mark.parametrize("run", [in_thread, in_any_case])
@pytest.mark.parametrize("way", WAYS)
def test_asyncio_hears_of_a_cancelled_call_when_it_is_over(
    way: Way, run: Callable[..., Coroutine[Any, Any, Any]]
) -> None:
    async def body() -> None:
        call = Call()
        task = asyncio.create_task(run(call))
        await cancelled_only_after(call, task, way)
        assert (call.is_over, call.progress) == (True, 1)

    asyncio.run(body())


@dataclass
class Around:
    """A block that is cancelled from without."""

    cancel: Callable[[], object]
    is_cancelled: Callable[[], bool]


def is_cancelled_by_asyncio() -> Callable[[], bool]:
    task = asyncio.current_task()
    assert task is not None
    return lambda: task.cancelling() > 0


@asynccontextmanager
async def timeout() -> AsyncIterator[Around]:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as limit:
            yield Around(lambda: limit.reschedule(0), is_cancelled_by_asyncio())


@asynccontextmanager
async def a_sibling_that_fails() -> AsyncIterator[Around]:
    may_fail = asyncio.Event()

    async def fail() -> None:
        await may_fail.wait()
        raise ZeroDivisionError

    has_failed = False
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            yield Around(may_fail.set, is_cancelled_by_asyncio())
    except* ZeroDivisionError:
        has_failed = True
    assert has_failed


@asynccontextmanager
async def a_scope() -> AsyncIterator[Around]:
    with anyio.CancelScope() as scope:
        yield Around(scope.cancel, lambda: scope.cancel_called)
        await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught


@pytest.mark.quick
@pytest.mark.parametrize(
    ("around", "backend"),
    [(timeout, "asyncio"), (a_sibling_that_fails, "asyncio"), (a_scope, "asyncio"), (a_scope, "trio")],
)
def test_what_cancels_a_block_is_over_when_the_call_is(
    around: Callable[[], AbstractAsyncContextManager[Around]], backend: str
) -> None:
    call = Call()
    call.may_end.set()

    async def body() -> None:
        async with around() as block:

            def cancelled() -> None:
                from_thread.run_sync(block.cancel)
                wait_until(block.is_cancelled)
                call()

            await in_thread(cancelled)
        assert (call.is_over, call.progress) == (True, 1)

    anyio.run(body, backend=backend)


def wait_until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.001)


@pytest.mark.quick
def test_wait_for_is_over_when_the_call_is() -> None:
    async def body() -> None:
        call = Call()
        task = asyncio.create_task(in_thread(call))
        await until(call.begun)

        def end_when_cancelled() -> None:
            wait_until(lambda: task.cancelling() > 0)
            call.may_end.set()

        ending = threading.Thread(target=end_when_cancelled)
        ending.start()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(task, 0.01)
        assert call.is_over
        ending.join()

    asyncio.run(body())


@pytest.mark.quick
def test_the_end_of_the_loop_waits_for_a_call_of_a_task_that_nobody_awaits() -> None:
    call = Call()
    at_the_end = Call()

    async def task() -> None:
        try:
            await in_thread(call)
        finally:
            await in_any_case(at_the_end)

    async def body() -> None:
        asyncio.get_running_loop().forgotten = asyncio.create_task(task())  # type: ignore[attr-defined]
        await until(call.begun)
        for each in (call, at_the_end):
            threading.Timer(0.1, each.may_end.set).start()

    asyncio.run(body())
    assert (call.is_over, at_the_end.is_over) == (True, True)


@pytest.mark.quick
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("backend", BACKENDS)
def test_ctrl_c_is_raised_when_the_call_is_over(backend: str, times: int) -> None:
    """asyncio.run answers the first by cancelling its main task, and the second by cancelling
    all."""
    call = Call()

    async def body() -> None:
        await in_thread(call)
        await anyio.sleep_forever()

    def strike() -> None:
        assert call.begun.wait(60)
        for _ in range(times):
            interrupt()
            time.sleep(0.1)
        call.may_end.set()

    striker = threading.Thread(target=strike)
    striker.start()
    with pytest.raises(KeyboardInterrupt):
        anyio.run(body, backend=backend)
    striker.join()
    assert call.is_over


@pytest.mark.quick
@pytest.mark.parametrize("is_once", [True, False])
def test_who_cancels_a_second_time_is_in_a_hurry(is_once: bool) -> None:
    """Under asyncio: the call is not abandoned, but waits for a silent store no longer."""
    seen: list[bool] = []
    call = Call(lambda: seen.append(interruptible.run(interruptible.has_time)))

    async def body() -> None:
        task = asyncio.create_task(in_thread(call))
        await cancelled_only_after(call, task, once if is_once else again_and_again)

    asyncio.run(body())
    assert seen == [is_once]


@pytest.mark.quick
@pytest.mark.parametrize("backend", BACKENDS)
def test_ctrl_c_during_a_call_lets_the_end_of_the_block_be_done(backend: str) -> None:
    ended: list[str] = []

    async def body() -> None:
        try:
            await in_thread(interrupt)
        finally:
            await in_any_case(ended.append, "ended")

    with pytest.raises(KeyboardInterrupt):
        anyio.run(body, backend=backend)
    assert ended == ["ended"]


@pytest.mark.quick
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_caller_that_is_cancelled_already_begins_no_call_but_the_end_of_its_block(backend: str) -> None:
    calls: list[str] = []

    async def body() -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            try:
                await in_thread(calls.append, "call")
            finally:
                await in_any_case(calls.append, "end")
        assert scope.cancelled_caught

    anyio.run(body, backend=backend)
    assert calls == ["end"]


@pytest.mark.quick
def test_asyncios_own_cancel_likewise() -> None:
    calls: list[str] = []

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await in_thread(calls.append, "call")
        finally:
            task.cancel()
            await in_any_case(calls.append, "end")

    async def body() -> None:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(work())

    asyncio.run(body())
    assert calls == ["end"]


@pytest.mark.quick
def test_the_error_of_a_cancelled_call_is_the_cancellations_cause() -> None:
    async def body() -> None:
        call = Call(lambda: 1 // 0)
        task = asyncio.create_task(in_thread(call))
        await until(call.begun)
        await once(task)
        call.may_end.set()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert isinstance(caught.value.__cause__, ZeroDivisionError)

    asyncio.run(body())


@pytest.mark.quick
@pytest.mark.parametrize("backend", BACKENDS)
def test_results_and_errors_arrive(backend: str) -> None:
    async def body() -> None:
        assert await in_thread(divmod, 7, 2) == (3, 1)
        assert await in_any_case(int, "11", base=2) == 3
        for run in (in_thread, in_any_case):
            with pytest.raises(ZeroDivisionError):
                await run(lambda: 1 // 0)

    anyio.run(body, backend=backend)


@pytest.mark.quick
@pytest.mark.parametrize("way", WAYS)
def test_a_cancelled_loop_over_an_iterator_waits_for_its_thread(way: Way) -> None:
    call = Call()

    def items() -> Iterator[int]:
        yield 1
        call()
        yield 2

    async def work() -> None:
        async for _ in iterated(items, 1):
            pass

    async def body() -> None:
        task = asyncio.create_task(work())
        await cancelled_only_after(call, task, way)
        assert call.is_over

    asyncio.run(body())


# -- blocks without a mount


@pytest.mark.quick
def test_a_cancelled_block_of_a_store_ends_its_connections(tmp_path: Path) -> None:
    made = storage.Local(tmp_path / "store")

    async def work() -> None:
        async with made as store:
            assert await store.ls() == []
            assert objects._open
            as_the_block_ends()

    async def body() -> None:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(work())
        with anyio.CancelScope() as scope:
            async with made:
                scope.cancel()

    asyncio.run(body())
    assert not objects._open


@pytest.mark.quick
def test_a_cancelled_block_of_a_file_closes_it(tmp_path: Path) -> None:

    async def work(file: BinaryIO) -> None:
        async with as_async(file) as opened:
            await opened.write(b"all of it")
            as_the_block_ends()

    async def body(file: BinaryIO) -> None:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(work(file))

    with open(tmp_path / "file", "wb") as file:
        asyncio.run(body(file))
        assert file.closed
    assert (tmp_path / "file").read_bytes() == b"all of it"


def as_the_block_ends() -> None:
    """Cancels this task in the turn of the loop in which the last statement is done."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(task.cancel)


# -- mounts


async def leaves_the_block(task: asyncio.Task[Any]) -> None:
    """The body is cancelled; and again, by somebody else, as the block ends."""
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await turns()


@pytest.fixture
def volume(place: Path) -> None:
    with blocking.Volume.new("one") as volume:
        (volume / "file").write_text("first")


@pytest.mark.mount
@pytest.mark.usefixtures("volume")
@pytest.mark.parametrize("way", [*WAYS, leaves_the_block])
def test_a_block_that_is_cancelled_in_its_body_unmounts(way: Way) -> None:
    async def work(made: Any, mounted: asyncio.Event) -> None:
        async with made:
            mounted.set()
            with suppress(OSError):  # of a version
                (made / "file").write_text("second")
            await asyncio.sleep(3600)

    async def body() -> None:
        for made in (await Volume.version("one"), Volume.open("one")):
            mounted = asyncio.Event()
            task = asyncio.create_task(work(made, mounted))
            await mounted.wait()
            await way(task)
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not made.is_mounted
        assert not registry.list_mounts()
        opened = Volume.open("one")
        assert (await opened.has_changes(), len(await opened.history())) == (True, 1)

    asyncio.run(body())


@pytest.mark.mount
@pytest.mark.usefixtures("volume")
def test_a_block_that_is_cancelled_as_it_ends_is_finalized() -> None:
    async def read() -> None:
        async with await Volume.version("one"):
            as_the_block_ends()

    async def write() -> None:
        async with Volume.open("one") as volume:
            (volume / "file").write_text("second")
            as_the_block_ends()

    async def body() -> None:
        for work in (read, write):
            with pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(work())
            assert not registry.list_mounts()
        assert len(await Volume.open("one").history()) == 2

    asyncio.run(body())


@pytest.mark.mount
@pytest.mark.usefixtures("volume")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_block_whose_scope_is_cancelled_as_it_ends_is_finalized(backend: str) -> None:
    async def body() -> None:
        for made in (await Volume.version("one"), Volume.open("one")):
            with anyio.CancelScope() as scope:
                async with made:
                    with suppress(OSError):  # of a version
                        (made / "file").write_text("second")
                    scope.cancel()
            assert not made.is_mounted
        assert len(await Volume.open("one").history()) == 2

    anyio.run(body, backend=backend)


@pytest.mark.mount
@pytest.mark.usefixtures("volume")
@pytest.mark.parametrize("backend", BACKENDS)
def test_ctrl_c_during_a_call_unmounts_at_the_end_of_the_block(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block ends while the interrupt waits for the next checkpoint, which is the end's own."""
    monkeypatch.setattr(blocking.RWVolume, "has_changes", lambda volume: interrupt())

    async def body() -> None:
        async with Volume.open("one") as volume:
            await volume.has_changes()

    with pytest.raises(KeyboardInterrupt):
        anyio.run(body, backend=backend)
    assert not registry.list_mounts()


@pytest.mark.mount
@pytest.mark.usefixtures("volume")
@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_a_task_that_is_cancelled_while_it_mounts_leaves_no_mount(
    way: Way, writable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon starts only when its caller is cancelled already."""
    begun, cancelled, started = threading.Event(), threading.Event(), threading.Event()
    start = launch.start

    def start_late(*args: Any, **options: Any) -> launch.Started:
        begun.set()
        assert cancelled.wait(60)
        try:
            return start(*args, **options)
        finally:
            started.set()

    monkeypatch.setattr(launch, "start", start_late)

    async def body() -> None:
        made = Volume.open("one") if writable else await Volume.version("one")

        async def work() -> None:
            async with made:
                raise AssertionError("it was cancelled before")

        task = asyncio.create_task(work())
        await until(begun)
        await way(task)
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert started.is_set()
        assert not made.is_mounted
        assert not registry.list_mounts()

    asyncio.run(body())


@pytest.mark.mount
@pytest.mark.usefixtures("volume")
@pytest.mark.parametrize("way", WAYS)
def test_a_cancelled_commit_is_there_when_its_caller_hears_of_it(way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, cancelled = threading.Event(), threading.Event()
    commit = blocking.RWVolume.commit

    def commit_late(volume: blocking.RWVolume, *args: Any, **options: Any) -> blocking.ROVolume:
        begun.set()
        assert cancelled.wait(60)
        return commit(volume, *args, **options)

    monkeypatch.setattr(blocking.RWVolume, "commit", commit_late)

    async def body() -> None:
        volume = Volume.open("one")
        (await volume.mount() / "file").write_text("second")
        task = asyncio.create_task(volume.commit("second"))
        await until(begun)
        await way(task)
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [each.message for each in blocking.Volume.open("one").history()] == ["second", ""]
        await volume.unmount()

    asyncio.run(body())
