"""Makes the async twin of a blocking class:

    ROVolume = make(ro_volume.ROVolume, __name__)

Docstrings and signatures are those of the blocking class, which implements everything. Of each
public member the twin has:

    a method that returns an Iterator,  a method that returns an async iterator; a worker thread
    or Changes                          fetches the items
    a method listed in PLAIN            the same: it does no I/O, or other libraries call it
    any other method                    an async method, which runs the blocking one in a worker
                                        thread
    a property or a field               a property

Results are converted to their twins if these exist, in lists, too. Type checkers cannot see classes
that are made at run time. They read the .pyi files, which `python -m tests.api.stubs` generates.

A twin pickles as the blocking object does, and equals it.
"""

from __future__ import annotations

import inspect
import io
import os
from collections.abc import Callable, Generator
from functools import partial, wraps
from pathlib import Path
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, cast

import anyio

from cowfs.api.twins.one_type import OneType, pair, unwrap
from cowfs.api.twins.threads import AT_ONCE, in_any_case, in_thread, iterated
from cowfs.api.twins.volume_fields import DATA_VERSION, JSON_SCHEMA, core_schema, owns_mount

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

PLAIN = frozenset(
    {
        "Declared.emit",
        "Declared.is_named",
        "ROVolume.deserialize",
        "ROVolume.serialize",
        "RWVolume.deserialize",
        "RWVolume.serialize",
        "Store.volume",
        "Volume.new",
        "Volume.open",
        "VolumeChanges.add",
        "volume",
    }
)
ONE_BY_ONE = frozenset({"ROFiles.walk", "Store.doctor", "Store.read"})
"""Iterators whose items the caller may change before the next one is made, or whose items are slow
or large."""

ASYNC_FILES = {
    "BinaryIO": "anyio.AsyncFile[bytes]",
    "TextIO": "anyio.AsyncFile[str]",
    "IO[Any]": "anyio.AsyncFile[Any]",
}

_made: dict[type, type[Twin]] = {}
"""By the blocking class."""


class Twin(metaclass=OneType):
    _blocking: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and bool(self._blocking == unwrap(other))

    def __hash__(self) -> int:
        return hash(self._blocking)

    def __repr__(self) -> str:
        return repr(self._blocking)

    def _repr_html_(self) -> str | None:
        """For notebooks: the card of the blocking object, if it has one."""
        show = getattr(self._blocking, "_repr_html_", None)
        return show() if show is not None else None

    def __getstate__(self) -> Any:
        """Keeps pickles small: workers are sent many."""
        return self._blocking

    def __setstate__(self, blocking: Any) -> None:
        self._blocking = blocking


class VolumeTwin(Twin):
    """The common behaviour of volumes and versions: they are awaitable, contexts and paths."""

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
            if owns_mount(self._blocking):
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

    __version__: ClassVar[int] = DATA_VERSION

    def __dask_tokenize__(self) -> object:
        return self._blocking.__dask_tokenize__()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> CoreSchema:
        return core_schema(cls, lambda value: as_async(unwrap(value)))

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: object, handler: object) -> dict[str, str]:
        return dict(JSON_SCHEMA)


class _File(anyio.AsyncFile[Any]):
    async def aclose(self) -> None:
        """Flushes the buffer, even for a cancelled caller."""
        await in_any_case(self.wrapped.close)


def make(blocking: OneType, module: str) -> type[Twin]:
    """module: the one that defines the result under the name of the blocking class."""
    if (above := _made.get(blocking.__base__ or object)) is None:
        above = VolumeTwin if hasattr(blocking, "__enter__") else Twin
    members: dict[str, Any] = {name: _member(blocking, name, member, module) for name, member in _public(blocking)}
    about = {"__module__": module, "__doc__": blocking.__doc__, "__init__": _constructor(blocking)}
    twin = cast("type[Twin]", OneType(blocking.__name__, (above,), {**about, **members}))
    if hasattr(blocking, "__signature__"):  # pydantic's
        twin.__signature__ = blocking.__signature__  # type: ignore[attr-defined]
    _made[blocking] = twin
    pair(twin, blocking)
    return twin


def make_function(blocking: Callable[..., Any], module: str) -> Callable[..., Any]:
    return _function(blocking, blocking.__name__, lambda: blocking, module)


def as_async(result: Any) -> Any:
    """Converts an object, or each one of a list, to its twin; anything without one stays."""
    if isinstance(result, list):
        return type(result)(map(as_async, result))
    if isinstance(result, io.IOBase):
        return _File(result)  # type: ignore[arg-type]
    if (kind := _made.get(type(result))) is None:
        return result
    twin = kind.__new__(kind)
    twin._blocking = result
    return twin


def is_own(code: CodeType) -> bool:
    """Whether a coroutine or an async generator with this code is a call of a twin."""
    return code is iterated.__code__ or (code.co_filename == __file__ and code.co_name == "call_async")


def _public(blocking: type) -> list[tuple[str, Any]]:
    """Name and member, None for a field; without those that its base's twin has."""
    found: dict[str, Any] = {}
    for kind in reversed(blocking.__mro__):
        if kind.__module__.startswith("cowfs.") and kind not in _made:
            found |= dict.fromkeys(inspect.get_annotations(kind)) | vars(kind)
    return [
        (name, member)
        for name, member in found.items()
        if not name.startswith(("_", "model_")) and not isinstance(member, classmethod)
    ]


def _constructor(blocking: type) -> Callable[..., None]:
    @wraps(blocking.__init__)  # type: ignore[misc]
    def construct(self: Twin, *given: Any, **named: Any) -> None:
        self._blocking = blocking(*given, **named)

    return construct


def _member(blocking: type, name: str, member: Any, module: str) -> Any:
    full_name = f"{blocking.__name__}.{name}"
    if member is None or isinstance(member, property):
        return property(lambda self: as_async(getattr(self._blocking, name)), doc=getattr(member, "__doc__", None))
    if isinstance(member, staticmethod):
        return staticmethod(_function(member.__func__, full_name, lambda: getattr(blocking, name), module))
    return _method(member, full_name, module)


def _method(blocking: Callable[..., Any], full_name: str, module: str) -> Callable[..., Any]:
    """Looks the method up with each call, in the object."""
    name = blocking.__name__

    def call_plain(self: Twin, *given: Any, **named: Any) -> Any:
        return as_async(getattr(self._blocking, name)(*given, **named))

    def call_iterator(self: Twin, *given: Any, **named: Any) -> Any:
        begin = partial(getattr(self._blocking, name), *given, **named)
        return iterated(begin, 1 if full_name in ONE_BY_ONE else AT_ONCE)

    async def call_async(self: Twin, *given: Any, **named: Any) -> Any:
        result = await in_thread(getattr(self._blocking, name), *given, **named)
        return self if result is self._blocking else as_async(result)

    if full_name in PLAIN:
        return _describe(call_plain, blocking, module)
    is_iterated = async_return(_returns(blocking)).startswith("AsyncIterator[")
    return _describe(call_iterator if is_iterated else call_async, blocking, module)


def _function(
    blocking: Callable[..., Any], full_name: str, find: Callable[[], Callable[..., Any]], module: str
) -> Callable[..., Any]:
    def call_plain(*given: Any, **named: Any) -> Any:
        return as_async(find()(*given, **named))

    async def call_async(*given: Any, **named: Any) -> Any:
        return as_async(await in_thread(find(), *given, **named))

    return _describe(call_plain if full_name in PLAIN else call_async, blocking, module)


def _returns(function: Callable[..., Any]) -> str:
    return str(function.__annotations__.get("return", ""))


def _describe(call: Callable[..., Any], blocking: Callable[..., Any], module: str) -> Callable[..., Any]:
    """With the name, docstring and signature of the blocking function, of which only a returned
    iterator or file differs."""
    call = wraps(blocking)(call)
    call.__module__ = module
    returns = async_return(_returns(blocking))
    if returns != _returns(blocking):
        call.__annotations__ = {**blocking.__annotations__, "return": returns}
        call.__signature__ = inspect.signature(blocking).replace(return_annotation=returns)  # type: ignore[attr-defined]
    return call


def async_return(annotation: str) -> str:
    if annotation in ASYNC_FILES:
        return ASYNC_FILES[annotation]
    if annotation == "Changes":
        return "AsyncIterator[Change]"
    return f"Async{annotation}" if annotation.startswith("Iterator[") else annotation
