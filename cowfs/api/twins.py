"""Async twins of blocking classes. A twin declares the public methods; its blocking class
implements them.

    class ROVolume(Twin, of=ro_volume.ROVolume):
        async def fork(self, name: str | None = None) -> RWVolume:
            \"\"\"The signature and the docstring are the twin's; it has no body.\"\"\"

Each `async def` runs the blocking method of its name in a worker thread. Each property reads the
property of its name. Return values are converted to their twins if these exist, in lists, too.
Other attributes of the class are used as written.
"""

from __future__ import annotations

import inspect
import io
import os
from collections.abc import Awaitable, Callable, Generator
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import anyio

from cowfs.api.threads import in_any_case, in_thread

_twins: dict[type, type[Twin]] = {}


class Twin:
    _blocking: Any

    def __init_subclass__(cls, of: type | None = None) -> None:
        if of is None:
            return  # a class that twins have in common
        _twins[of] = cls
        for name, member in list(vars(cls).items()):
            if name.startswith("_"):
                continue
            if isinstance(member, property):
                setattr(cls, name, _property(name, member))
            elif isinstance(member, staticmethod) and inspect.iscoroutinefunction(member.__func__):
                setattr(cls, name, staticmethod(_function(getattr(of, name), member.__func__)))
            elif inspect.iscoroutinefunction(member):
                setattr(cls, name, _method(name, member))

    def __init__(self, blocking: Any) -> None:
        self._blocking = blocking

    @classmethod
    def _of(cls, blocking: Any) -> Self:
        made = cls.__new__(cls)
        made._blocking = blocking
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and bool(other._blocking == self._blocking)

    def __hash__(self) -> int:
        return hash(self._blocking)

    def __repr__(self) -> str:
        return repr(self._blocking)


class VolumeTwin(Twin):
    """The common behaviour of volumes and versions: they are awaitable, contexts and paths. Pickles
    as the blocking object does."""

    def __await__(self) -> Generator[Any, Any, Self]:
        resolved: Generator[Any, Any, Self] = self.resolve().__await__()  # type: ignore[attr-defined]
        return resolved

    def __enter__(self) -> NoReturn:
        raise TypeError("use `async with`; or, in a program without an event loop, `from cowfs.blocking import Volume`")

    def __exit__(self, *_: object) -> None:
        """Never reached."""

    async def __aenter__(self) -> Self:
        try:
            await in_thread(self._blocking.__enter__)
        except anyio.get_cancelled_exc_class() as error:  # the mount may have succeeded nevertheless
            if self._blocking.owns_mount:
                await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await in_any_case(self._blocking.__exit__, kind, error, traceback)

    def __fspath__(self) -> str:
        return str(self._blocking.path)

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return Path(self._blocking / name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self._blocking,))


class _File(anyio.AsyncFile[bytes]):
    async def aclose(self) -> None:
        """Flushes the buffer, even for a cancelled caller."""
        await in_any_case(self.wrapped.close)


def _method(name: str, declared: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    @wraps(declared)
    async def call(self: Twin, *given: Any, **named: Any) -> Any:
        result = await in_thread(getattr(self._blocking, name), *given, **named)
        return self if result is self._blocking else _twin(result)

    return call


def _function(blocking: Callable[..., Any], declared: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    @wraps(declared)
    async def call(*given: Any, **named: Any) -> Any:
        return _twin(await in_thread(blocking, *given, **named))

    return call


def _property(name: str, declared: property) -> property:
    return property(lambda self: _twin(getattr(self._blocking, name)), doc=declared.__doc__)


def _twin(result: Any) -> Any:
    if isinstance(result, list):
        return [_twin(each) for each in result]
    if isinstance(result, io.IOBase):
        return _File(result)  # type: ignore[arg-type]
    twin = _twins.get(type(result))
    return result if twin is None else twin._of(result)
