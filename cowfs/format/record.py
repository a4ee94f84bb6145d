"""The base of all records: canonical JSON in an envelope, unknown fields kept, and the holder that
wrote it.

A record class names its type (`record`) and has an attribute for each field of the object. The
attribute's type says how the field is written (None: left out) and read, or, where it cannot, its
metadata (`form`). `__post_init__` checks the record's own rules, so that an invalid value can be
neither made nor read. The records themselves: `heads`, `claims`, `moved`, `store_record`; all names
together: `records`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from cowfs.base.errors import CorruptError, InvalidInputError, UnsupportedFormatError
from cowfs.base.fast_dataclass import dataclass
from cowfs.format import fields
from cowfs.format.fields import Fields

FORMAT = 1

Reader = Callable[[Fields, str], Any]
"""Takes a field by its name."""

_PLAIN: dict[type, Reader] = {int: Fields.integer, str: Fields.text, bool: Fields.flag}


def form(write: Callable[[Any], object], read: Reader) -> Mapping[str, Any]:
    """Metadata of a dataclass field."""
    return {"write": write, "read": read}


COUNTED = form(lambda number: number, lambda found, name: found.integer(name, minimum=1))


@dataclass(frozen=True, slots=True)
class Record:
    """The common part of all records."""

    record: ClassVar[str]
    formats: ClassVar[tuple[int, ...]] = (FORMAT,)  # that are read
    extra: Mapping[str, object] = field(default_factory=dict, hash=False, kw_only=True)
    check: str = field(default="", init=False, compare=False, repr=False)
    """In hex, of the bytes that the record was read from or written as; "" before that."""

    def encode(self, *, key: str = "") -> bytes:
        """As `encode_and_read`, but only the bytes."""
        return self.encode_and_read(key=key)[0]

    def encode_and_read(self, *, key: str = "") -> tuple[bytes, Self]:
        """The bytes, and the record as their reader will have it. key: of the object, or a prefix
        of it, if the record is to contain its place. InvalidInputError: it would be unreadable, and
        would stay in the store permanently."""
        body = {name: value for name, value in self._body().items() if value is not None}
        if key:
            body["key"] = key
        data = fields.seal(self.record, self.format_number, {**self.extra, **body})
        try:
            return data, self.decode(data, what="a record of this process")
        except CorruptError as error:
            raise InvalidInputError(error.message, hint="Is the clock of this machine right?") from error

    @classmethod
    def decode(cls, data: bytes, *, what: str, key: str = "") -> Self:
        """CorruptError naming `what` unless data is an undamaged record of this type and, if it
        contains its place, of this key; UnsupportedFormatError: newer format."""
        found = fields.open_sealed(data, cls.record, *cls.formats, what=what)
        place = found.rest.pop("key", key)
        if key and place != key:
            raise CorruptError(
                f"{what} is not the record of that place, but of {place!r:.200}",
                hint="The store, or a proxy before it, returned another object, or one was copied there. Try again; "
                "if it stays so, ask the administrator of the store.",
            )
        try:
            arguments = cls._arguments(found)
            record = cls(**arguments, extra=found.rest)
        except InvalidInputError as error:
            raise CorruptError(f"{what}: {error.message}") from error
        object.__setattr__(record, "check", found.check)
        return record

    @property
    def format_number(self) -> int:
        """The number of the format that this record is written in."""
        return FORMAT

    def _body(self) -> dict[str, object]:
        return _body_of(self)

    @classmethod
    def _arguments(cls, found: Fields) -> dict[str, Any]:
        return {name: read(found, name) for name, read in _readers(cls).items()}  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lease, or the writer of a record. start_time: start of the process in clock
    ticks after boot."""

    user: str
    host: str
    mount_path: str
    pid: int
    start_time: int
    machine_id: str
    boot_id: str


def _body_of(value: Any) -> dict[str, object]:
    return {
        each.name: each.metadata.get("write", _to_json)(getattr(value, each.name))
        for each in dataclasses.fields(value)
        if each.init and each.name != "extra"
    }


def _to_json(value: Any) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [_to_json(each) for each in value]
    return _body_of(value) if dataclasses.is_dataclass(value) else value


@cache
def _readers(kind: Any) -> dict[str, Reader]:
    """The reader of each field of a dataclass."""
    hints = get_type_hints(kind)
    return {
        each.name: each.metadata.get("read") or _reader(hints[each.name])
        for each in dataclasses.fields(kind)
        if each.init and each.name != "extra"
    }


def _reader(hint: Any) -> Reader:
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        return lambda found, name: take_known_text(found, name, arguments)
    if get_origin(hint) is UnionType:  # with None
        given = _reader(arguments[0])
        return lambda found, name: None if found.is_null(name) else given(found, name)
    if get_origin(hint) is tuple:
        return lambda found, name: found.ids(name, arguments[0])
    if dataclasses.is_dataclass(hint):
        readers = _readers(hint)  # type: ignore[arg-type]
        return lambda found, name: _object(found.object(name), hint, readers)
    if issubclass(hint, bytes):
        return lambda found, name: found.id(name, hint)
    return _PLAIN[hint]


def _object(found: Fields, kind: Any, readers: Mapping[str, Reader]) -> Any:
    return kind(**{name: read(found, name) for name, read in readers.items()})


def take_known_text(found: Fields, name: str, allowed: tuple[str, ...]) -> str:
    """A field whose values readers must know; an unknown one in an undamaged record was written by
    a newer cowfs."""
    value = found.text(name)
    if value not in allowed:
        raise UnsupportedFormatError(
            f"{found.what} has {name} {value!r:.60}, unknown to this cowfs", hint="Use a newer cowfs to read it."
        )
    return value


def check_one_of(value: str, allowed: tuple[str, ...], title: str) -> None:
    if value not in allowed:
        raise InvalidInputError(f"{value!r} is not a {title}; known are {', '.join(allowed)}")
