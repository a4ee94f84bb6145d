"""How engine calls become answers: loads, errors, full disks, panics; and that one slow load holds
up nothing else."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import pyfuse3
import pytest
import trio
import trio.testing

from cowfs.daemon.pyfuse.calls import EngineCalls
from cowfs.daemon.request_server import LOAD_THREADS
from cowfs.errors import CorruptError, UnavailableError
from cowfs.native import NotResident
from cowfs.native.chunks import ChunkRef
from cowfs.native.constants import LOADS_MAX

pytestmark = pytest.mark.quick

WAIT_S = 30


class Panic(BaseException):
    """As the engine's: no Exception."""


def missing(ino: int = 5) -> NotResident:
    error = NotResident("content")
    error.what, error.attachment, error.ino, error.wanted, error.chunks = "content", 0, ino, (0, 0), []
    return error


class Lacking:
    """A call that lacks something `rounds` times."""

    def __init__(self, rounds: int, then: Callable[[], int] = lambda: 42) -> None:
        self.rounds = rounds
        self.then = then
        self.loaded = 0

    def __call__(self) -> int:
        if self.loaded < self.rounds:
            raise missing()
        return self.then()

    def load(self, error: NotResident) -> None:
        assert error.ino == 5
        assert threading.current_thread() is not threading.main_thread()
        self.loaded += 1


def load_chunks(
    missing: NotResident, chunks: Sequence[ChunkRef], done: Callable[[BaseException | None], None]
) -> list[Future[None]]:
    done(None)
    return []


def calls(load: Callable[[NotResident], None] = lambda _: None, relieve: Callable[[], int] = lambda: 0) -> EngineCalls:
    def load_rows(missing: NotResident) -> list[ChunkRef]:
        load(missing)
        return []

    return EngineCalls(load_rows, load_chunks, relieve)


def fails(error: BaseException) -> Callable[[], int]:
    def call() -> int:
        raise error

    return call


def errno_of(make: Callable[[], EngineCalls], call: Callable[[], int], *, ask: str = "ask") -> int:
    async def main() -> int:
        try:
            await getattr(make(), ask)(call)
        except pyfuse3.FUSEError as error:
            return error.errno
        return 0

    return trio.run(main)


@pytest.mark.parametrize("rounds", [0, 1, 7])
def test_what_is_missing_is_loaded_and_the_call_repeated(rounds: int) -> None:
    call = Lacking(rounds)

    async def main() -> int:
        return await calls(call.load).ask(call)

    assert trio.run(main) == 42
    assert call.loaded == rounds


def test_loading_without_end_gives_up() -> None:
    call = Lacking(10**9)
    assert errno_of(lambda: calls(call.load), call) == errno.EIO
    assert call.loaded == LOADS_MAX


@pytest.mark.parametrize("ask", ["ask", "ask_for_space", "sync"])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FileNotFoundError(errno.ENOENT, "no"), errno.ENOENT),
        (OSError(errno.ENODATA, "no"), errno.ENODATA),
        (OSError("without a number"), errno.EIO),
        (CorruptError("bad chunk"), errno.EIO),
        (UnavailableError("store down"), errno.EIO),
        (ValueError("a mistake"), errno.EIO),
        (Panic("assertion failed"), errno.EIO),
    ],
    ids=repr,
)
def test_every_error_is_an_errno(ask: str, error: BaseException, expected: int) -> None:
    assert errno_of(calls, fails(error), ask=ask) == expected


@pytest.mark.parametrize("error", [UnavailableError("down"), Panic("broken"), OSError(errno.ENOSPC, "full")])
def test_errors_while_loading_and_after_it_are_errnos_too(error: BaseException) -> None:
    expected = errno.ENOSPC if isinstance(error, OSError) else errno.EIO

    def load(_: NotResident) -> None:
        raise error

    assert errno_of(lambda: calls(load), Lacking(1)) == expected
    after = Lacking(1, then=fails(error))
    assert errno_of(lambda: calls(after.load), after) == expected


def test_an_error_of_the_store_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        asked = calls()
        for _ in range(3):
            with pytest.raises(pyfuse3.FUSEError):
                await asked.ask(fails(CorruptError("pack 12 is damaged")))

    with caplog.at_level(logging.ERROR, "cowfs"):
        trio.run(main)
    assert [record.getMessage() for record in caplog.records] == ["corrupt: pack 12 is damaged"]


@pytest.mark.parametrize(("freed", "attempts", "expected"), [(0, 1, errno.ENOSPC), (1000, 2, 0), (1, 2, 0)])
def test_a_full_disk_is_relieved_once(freed: int, attempts: int, expected: int) -> None:
    tried = []

    def write() -> int:
        tried.append(1)
        if len(tried) == 1:
            raise OSError(errno.ENOSPC, "full")
        return 1

    assert errno_of(lambda: calls(relieve=lambda: freed), write, ask="ask_for_space") == expected
    assert len(tried) == attempts


def test_a_disk_that_stays_full_is_an_error() -> None:
    full = fails(OSError(errno.ENOSPC, "full"))
    assert errno_of(lambda: calls(relieve=lambda: 5), full, ask="ask_for_space") == errno.ENOSPC


def test_slow_loads_hold_up_neither_other_calls_nor_syncs() -> None:
    release = threading.Event()
    waiting = threading.Semaphore(0)

    def load(_: NotResident) -> None:
        waiting.release()
        assert release.wait(WAIT_S)

    async def main() -> None:
        asked = calls(load)

        async def read() -> None:
            with pytest.raises(pyfuse3.FUSEError):  # never resident
                await asked.ask(fails(missing()))

        async with trio.open_nursery() as nursery:
            for _ in range(LOAD_THREADS + 20):
                nursery.start_soon(read)
            for _ in range(LOAD_THREADS):
                await trio.to_thread.run_sync(waiting.acquire)
            assert await asked.ask(lambda: 1) == 1
            await asked.sync(lambda: None)
            release.set()

    trio.run(main)


@pytest.mark.parametrize("error", [UnavailableError("down"), Panic("broken"), OSError(errno.ENOSPC, "full")])
def test_errors_of_chunks_are_errnos(error: BaseException) -> None:
    def fail(
        missing: NotResident, chunks: Sequence[ChunkRef], done: Callable[[BaseException | None], None]
    ) -> list[Future[None]]:
        done(error)
        return []

    needs = missing()
    needs.what, needs.chunks = "chunks", [ChunkRef(bytes(32), 1, 0, 1, 1, 0)]
    expected = errno.ENOSPC if isinstance(error, OSError) else errno.EIO
    assert errno_of(lambda: EngineCalls(lambda _: [], fail, lambda: 0), fails(needs)) == expected


def test_reads_that_wait_for_chunks_take_no_thread() -> None:
    waiting: list[Callable[[BaseException | None], None]] = []

    def hold(
        missing: NotResident, chunks: Sequence[ChunkRef], done: Callable[[BaseException | None], None]
    ) -> list[Future[None]]:
        waiting.append(done)
        return []

    async def main() -> None:
        directory = Lacking(1)
        outcomes: list[int | None] = []

        def load_rows(missing: NotResident) -> list[ChunkRef]:
            directory.load(missing)
            return []

        asked = EngineCalls(load_rows, hold, lambda: 0)

        async def read() -> None:
            needs = missing()
            needs.what, needs.chunks = "chunks", [ChunkRef(bytes(32), 1, 0, 1, 1, 0)]
            try:
                await asked.ask(fails(needs))
            except pyfuse3.FUSEError as error:
                outcomes.append(error.errno)

        async with trio.open_nursery() as nursery:
            for _ in range(LOAD_THREADS + 20):
                nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            assert len(waiting) == LOAD_THREADS + 20
            assert await asked.ask(directory) == 42
            for done in waiting:
                threading.Thread(target=done, args=(UnavailableError("store down"),)).start()
        assert outcomes == [errno.EIO] * (LOAD_THREADS + 20)

    trio.run(main)


@pytest.mark.parametrize("ask", ["ask", "sync"])
def test_given_up_waits_end_with_an_error_and_cancelling_alone_does_not_end_them(ask: str) -> None:
    release = threading.Event()
    waiting = threading.Event()
    outcomes: list[int] = []

    def hang() -> None:
        waiting.set()
        assert release.wait(WAIT_S)

    async def main() -> None:
        asked = calls(lambda _: hang())

        async def wait() -> None:
            try:
                await (asked.ask(fails(missing())) if ask == "ask" else asked.sync(hang))
            except pyfuse3.FUSEError as error:
                outcomes.append(error.errno)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.to_thread.run_sync(waiting.wait)
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
                assert outcomes == []
                asked.give_up()

    trio.run(main)
    release.set()
    assert outcomes == [errno.EIO]
