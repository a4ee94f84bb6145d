"""Every error survives what task systems do with it: pickle, copies, other processes, and classes
made of it and of theirs."""

from __future__ import annotations

import copy
import copyreg
import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from cowfs.base.errors import BY_KIND, ConflictError, CowfsError, from_record, to_record

pytestmark = pytest.mark.quick

CLASSES = sorted(BY_KIND.values(), key=lambda each: each.kind)


class OfAUser(ConflictError):
    """A subclass without a kind of its own, and with an argument more."""

    def __init__(self, message: str, *, extra: str = "", **others: Any) -> None:
        super().__init__(message, **others)
        self.extra = extra


class RayTaskError(Exception):
    """As Ray's: `as_instanceof_cause` makes a class of this one and the cause's, and an instance
    whose `__init__` is not the cause's."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause

    def as_instanceof_cause(self) -> Exception:
        class Dual(RayTaskError, type(self.cause)):  # type: ignore[misc]
            def __init__(self, cause: Exception) -> None:
                self.cause = cause
                self.args = (cause,)

            def __getattr__(self, name: str) -> object:
                return getattr(self.cause, name)

            def __str__(self) -> str:
                return "a task failed"

        return Dual(self.cause)


def made(cls: type[CowfsError]) -> CowfsError:
    error = cls("what happened", hint="what to do", details={"locator": "cowfs+file:///s/-/n@00", "count": 3})
    error.add_note("a note")
    return error


def raised(cls: type[CowfsError]) -> None:
    raise made(cls)


def fields(error: CowfsError) -> tuple[object, ...]:
    stable = (type(error), error.kind, error.exit_code, error.errno)
    return *stable, str(error), error.message, error.hint, error.details, error.locator, error.__notes__


@pytest.mark.parametrize("cls", [*CLASSES, OfAUser])
@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, *(lambda error, n=n: pickle.loads(pickle.dumps(error, n)) for n in range(6))],
)
def test_copies_have_every_field(cls: type[CowfsError], copied: Callable[[CowfsError], CowfsError]) -> None:
    error = made(cls)
    before = fields(error)
    found = copied(error)
    assert fields(found) == before
    found.set_hint("something else")
    found.add_note("another")
    assert fields(error)[:-1] == before[:-1]
    if cls is not OfAUser:
        assert fields(from_record(to_record(error)))[:-1] == before[:-1]


def test_a_copy_is_apart_whatever_other_libraries_register(monkeypatch: pytest.MonkeyPatch) -> None:
    """tblib, which Dask loads, registers a function for every exception that shares its fields."""

    def share(error: CowfsError) -> tuple[object, ...]:
        return _made_again, (type(error), error.args), error.__dict__

    monkeypatch.setitem(copyreg.dispatch_table, ConflictError, share)
    error = ConflictError("gone", hint="what to do")
    found = copy.copy(error)
    found.set_hint("something else")
    assert error.hint == "what to do"
    assert (type(found), found.args, found.message) == (ConflictError, error.args, "gone")


def _made_again(cls: type[CowfsError], args: tuple[str, ...]) -> CowfsError:
    return cls(*args)


def test_a_field_of_a_subclass_is_kept_and_its_kind_is_the_parents() -> None:
    error = OfAUser("x", extra="more", hint="y")
    assert pickle.loads(pickle.dumps(error)).extra == "more"
    assert (error.kind, error.exit_code) == ("conflict", 4)
    assert BY_KIND["conflict"] is ConflictError


@pytest.mark.parametrize("cls", CLASSES)
def test_a_class_made_of_an_error_and_of_a_task_systems(cls: type[CowfsError]) -> None:
    error = made(cls)
    dual = RayTaskError(error).as_instanceof_cause()
    assert isinstance(dual, cls)
    assert isinstance(dual, RayTaskError)
    assert (dual.kind, dual.exit_code, dual.errno) == (error.kind, error.exit_code, error.errno)
    assert (dual.message, dual.hint, dual.details, dual.locator) == (
        error.message,
        error.hint,
        error.details,
        error.locator,
    )
    assert BY_KIND[cls.kind] is cls


def test_errors_of_another_process_are_the_same() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        for cls in CLASSES:
            error = pool.submit(raised, cls).exception()
            assert isinstance(error, CowfsError)
            assert fields(error)[:-1] == fields(made(cls))[:-1]
