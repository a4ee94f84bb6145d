"""Work of helpers: it ends with its caller's block, soon if that was interrupted."""

from __future__ import annotations

import _thread
import gc
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn

import pytest

from cowfs.base import interruptible
from cowfs.base.thread_pool import Helpers
from cowfs.errors import UnavailableError
from cowfs.store.refs.beside import beside

pytestmark = pytest.mark.quick

WAIT_S = 60


class Helper:
    """Works until it is told to end, or that nobody waits for it."""

    def __init__(self) -> None:
        self.begun, self.may_end, self.is_over, self.was_wanted = threading.Event(), threading.Event(), False, True

    def __call__(self) -> str:
        self.begun.set()
        end_s = time.monotonic() + WAIT_S
        while not self.may_end.wait(0.01) and interruptible.is_wanted():
            assert time.monotonic() < end_s
        self.was_wanted = interruptible.is_wanted()
        self.is_over = True
        return "help"


def fail(error: BaseException) -> NoReturn:
    raise error


def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.mark.parametrize("has_threads", [True, False])
def test_both_results(monkeypatch: pytest.MonkeyPatch, has_threads: bool) -> None:
    if not has_threads:
        without_threads(monkeypatch)
    assert beside(lambda: 1, lambda: 2) == (1, 2)


@pytest.mark.parametrize("has_threads", [True, False])
@pytest.mark.parametrize(
    ("first", "second", "raised"),
    [
        (ValueError("first"), ValueError("second"), "first"),
        (None, ValueError("second"), "second"),
        (ValueError("first"), None, "first"),
    ],
)
def test_of_two_errors_the_first_calls(
    monkeypatch: pytest.MonkeyPatch,
    has_threads: bool,
    first: ValueError | None,
    second: ValueError | None,
    raised: str,
) -> None:
    def call(error: ValueError | None) -> Callable[[], None]:
        return lambda: fail(error) if error is not None else None

    if not has_threads:
        without_threads(monkeypatch)
    with pytest.raises(ValueError, match=raised):
        beside(call(first), call(second))


def test_an_error_of_the_block_waits_for_the_helper_to_do_its_work() -> None:
    helper = Helper()

    def block() -> None:
        with interruptible.meanwhile(helper):
            assert helper.begun.wait(WAIT_S)
            threading.Timer(0.3, helper.may_end.set).start()
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        block()
    assert (helper.is_over, helper.was_wanted) == (True, True)


def test_a_result_that_nobody_asks_for_is_waited_for_too() -> None:
    helper = Helper()
    with interruptible.meanwhile(helper):
        threading.Timer(0.3, helper.may_end.set).start()
    assert helper.is_over


@pytest.mark.parametrize("is_apart", [True, False])
def test_an_interruption_ends_the_helper_soon(is_apart: bool) -> None:
    helper = Helper()

    def block() -> None:
        with interruptible.meanwhile(helper):
            assert helper.begun.wait(WAIT_S)
            _thread.interrupt_main()
            while interruptible.is_wanted():
                time.sleep(0.01)
            interruptible.require_wanted()

    with pytest.raises(KeyboardInterrupt):
        interruptible.run(block) if is_apart else block()
    assert (helper.is_over, helper.was_wanted) == (True, False)


def test_so_does_one_that_comes_while_it_is_waited_for() -> None:
    helper = Helper()

    def block() -> None:
        with interruptible.meanwhile(helper) as result:
            assert helper.begun.wait(WAIT_S)
            threading.Timer(0.3, _thread.interrupt_main).start()
            result()

    with pytest.raises(KeyboardInterrupt):
        block()
    assert (helper.is_over, helper.was_wanted) == (True, False)


def test_a_helper_of_work_leaves_its_log_to_who_waits_for_the_work(caplog: pytest.LogCaptureFixture) -> None:
    """The waiting thread may be in a signal's handler, in the middle of `logging`."""
    logger = logging.getLogger("cowfs.tests")
    logger.addFilter(interruptible.is_logged_here)
    by: list[int] = []

    class By(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            by.append(threading.get_ident())

    handler = By()
    logger.addHandler(handler)
    try:
        interruptible.run(lambda: beside(lambda: None, lambda: logger.warning("from the helper")))
        assert by == [threading.get_ident()]
        beside(lambda: None, lambda: logger.warning("once more"))
    finally:
        logger.removeHandler(handler)
        logger.removeFilter(interruptible.is_logged_here)
    assert len(by) == 2
    assert by[1] != threading.get_ident()


def test_a_hurried_call_goes_on_without_patience() -> None:
    seen: list[tuple[bool, bool]] = []

    def look() -> None:
        seen.append((interruptible.has_time(), interruptible.is_wanted()))

    def body() -> None:
        look()
        helping.hurry()
        look()
        beside(look, look)
        interruptible.run(look)

    helping = interruptible.Helping()
    helping.do(body)
    look()
    assert seen == [(True, True), *[(False, True)] * 4, (True, True)]


def test_helpers_of_an_interrupted_block_end_soon() -> None:
    """What waits is dropped, and what has begun is told that nobody waits for it."""
    begun, dropped = Helper(), Helper()

    def block() -> None:
        with Helpers(1, name="test") as helpers:
            helpers.submit(begun)
            helpers.submit(dropped)
            assert begun.begun.wait(WAIT_S)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        block()
    assert (begun.is_over, begun.was_wanted, dropped.begun.is_set()) == (True, False, False)


def test_so_do_those_of_a_block_that_waits_for_its_end() -> None:
    helper = Helper()

    def block() -> None:
        with Helpers(1, name="test") as helpers:
            helpers.submit(helper)
            assert helper.begun.wait(WAIT_S)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()

    with pytest.raises(KeyboardInterrupt):
        block()
    assert (helper.is_over, helper.was_wanted) == (True, False)


def test_without_a_thread_helpers_work_is_done_by_who_submits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without_threads(monkeypatch)

    def interrupted() -> None:
        raise KeyboardInterrupt

    with Helpers(2, name="test") as helpers:
        assert list(helpers.map(lambda each: (each, threading.get_ident()), range(3))) == [
            (each, threading.get_ident()) for each in range(3)
        ]
        failed = helpers.submit(int, "x")
        assert isinstance(failed.exception(), ValueError)
        with pytest.raises(UnavailableError, match="threads"):
            helpers.start()
        with pytest.raises(KeyboardInterrupt):
            helpers.submit(interrupted)


def test_with_too_few_threads_work_waits_for_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    with Helpers(2, name="test") as helpers:
        first = helpers.submit(may_end.wait, WAIT_S)
        with monkeypatch.context() as patch:
            without_threads(patch)
            second = helpers.submit(threading.get_ident)
        assert not second.done()
        may_end.set()
        assert first.result(WAIT_S)
        assert second.result(WAIT_S) != threading.get_ident()


def test_as_many_helpers_as_there_may_be_work_side_by_side() -> None:
    """Often: a thread that has just begun is not idle."""
    for _ in range(300):
        together = threading.Barrier(4, timeout=WAIT_S)
        with Helpers(4, name="test") as helpers:
            assert sorted(each.result() for each in [helpers.submit(together.wait) for _ in range(4)]) == [0, 1, 2, 3]


def test_a_thread_keeps_nothing_of_what_it_has_done() -> None:
    class Big:
        pass

    with Helpers(1, name="test") as helpers:
        big = Big()
        kept = weakref.ref(big)
        helpers.submit(lambda given: None, big).result()
        del big
        helpers.submit(lambda: None).result()
        assert kept() is None


def test_helpers_of_a_block_that_fails_do_what_they_have_to() -> None:
    done: list[int] = []

    def block() -> None:
        with Helpers(1, name="test") as helpers:
            for each in range(3):
                helpers.submit(done.append, each)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        block()
    assert done == [0, 1, 2]


@pytest.fixture
def alarm() -> Iterator[None]:
    """SIGUSR1 raises an ordinary error."""

    def ring(*_: object) -> NoReturn:
        raise TimeoutError("late")

    before = signal.signal(signal.SIGUSR1, ring)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("fails", [True, False])
def test_an_error_of_a_handler_while_a_helper_is_waited_for_gives_it_up(fails: bool) -> None:
    helper = Helper()

    def block() -> None:
        with interruptible.meanwhile(helper):
            assert helper.begun.wait(WAIT_S)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            if fails:
                raise ValueError("mine")

    with pytest.raises(TimeoutError):
        block()
    assert (helper.is_over, helper.was_wanted) == (True, False)


@pytest.mark.parametrize("fails", [True, False])
def test_an_error_that_nobody_asks_for_is_kept_by_nobody(fails: bool) -> None:
    class Large:
        pass

    kept: list[weakref.ref[Large]] = []

    def help() -> None:
        large = Large()
        kept.append(weakref.ref(large))
        raise OSError("nobody asks")

    gc.disable()
    try:
        with suppress(ValueError), interruptible.meanwhile(help):
            if fails:
                raise ValueError("mine")
        assert kept[0]() is None
    finally:
        gc.enable()


def test_a_child_that_a_helper_forks_is_nobodys_helper() -> None:
    def forks() -> int:
        if (pid := os.fork()) == 0:
            os._exit(1 if interruptible.is_work() else 0)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert interruptible.Helping().do(forks) == 0
