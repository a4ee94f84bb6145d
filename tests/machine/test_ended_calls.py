"""Objects that only tracebacks keep are told from those that code can still use."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from types import SimpleNamespace
from weakref import ref

import pytest

from cowfs.machine.ended_calls import is_left_over

pytestmark = pytest.mark.quick


class Used:
    pass


class Volume:
    def __init__(self) -> None:
        self.used = Used()


def attempt(seen: list[ref[Used]], *, inner: bool) -> None:
    volume = Volume()
    seen.append(ref(volume.used))
    others = {"again": [volume]}  # noqa: F841
    if inner:
        attempt(seen, inner=False)
    raise ValueError("midway")


@pytest.mark.parametrize("inner", [False, True])
def test_what_failed_attempts_leave_behind_is_left_over(inner: bool) -> None:
    seen: list[ref[Used]] = []
    errors = []
    for _ in range(3):
        try:
            attempt(seen, inner=inner)
        except ValueError as error:
            errors.append(error)
    assert all(each() is not None for each in seen)
    assert [is_left_over(each) for each in seen] == [True] * len(seen)
    errors.clear()
    gc.collect()
    assert [each() for each in seen] == [None] * len(seen)
    assert is_left_over(seen[0])


kept: list[object] = []


def test_what_code_can_still_use_is_not() -> None:
    local = Volume()
    assert not is_left_over(ref(local.used))
    assert not is_left_over(ref((lambda: local)().used))
    kept.append(Volume())
    assert not is_left_over(ref(kept[0].used))  # type: ignore[attr-defined]
    kept.clear()
    namespace = SimpleNamespace(volume=Volume())
    assert not is_left_over(ref(namespace.volume.used))


def test_what_a_suspended_generator_or_another_thread_has_is_not() -> None:
    seen: list[ref[Used]] = []

    def generator() -> Generator[None, None, None]:
        volume = Volume()
        seen.append(ref(volume.used))
        yield
        del volume

    going = generator()
    next(going)
    assert not is_left_over(seen[0])
    going.close()

    is_there, is_over = threading.Event(), threading.Event()

    def work() -> None:
        volume = Volume()
        seen.append(ref(volume.used))
        is_there.set()
        is_over.wait()
        del volume

    thread = threading.Thread(target=work)
    thread.start()
    is_there.wait()
    assert not is_left_over(seen[-1])
    is_over.set()
    thread.join()


def test_what_a_call_that_handles_its_exception_has_is_not() -> None:
    """Its frame is in a traceback, and runs."""
    volume = Volume()
    try:
        raise ValueError("here")
    except ValueError as error:
        assert error.__traceback__ is not None
        assert error.__traceback__.tb_frame is not None
        assert not is_left_over(ref(volume.used))
