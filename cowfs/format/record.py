"""What all records have in common: canonical JSON in an envelope, unknown fields kept, and the
holder that wrote it.

A record class names its type (`record`), says in `_body` what is written (None: left out) and in
`_arguments` what is read; `__post_init__` holds its own rules, so that a value that breaks them can
neither be made nor be read. The records themselves: `heads`, `claims`, `moved`, `store_record`; all
names together: `records`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from cowfs.errors import CorruptError, InvalidInputError, UnsupportedFormatError
from cowfs.format import fields
from cowfs.format.fields import Fields

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Record:
    """What all records have in common."""

    record: ClassVar[str]
    extra: Mapping[str, object] = field(default_factory=dict, hash=False, kw_only=True)

    def encode(self) -> bytes:
        body = {name: value for name, value in self._body().items() if value is not None}
        return fields.seal(self.record, FORMAT, {**self.extra, **body})

    @classmethod
    def decode(cls, data: bytes, *, what: str) -> Self:
        """CorruptError naming `what` unless data is an undamaged record of this type;
        UnsupportedFormatError: newer format."""
        found = fields.open_sealed(data, cls.record, FORMAT, what=what)
        try:
            arguments = cls._arguments(found)
            return cls(**arguments, extra=found.rest)
        except InvalidInputError as error:
            raise CorruptError(f"{what}: {error.message}") from error

    def _body(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def _arguments(cls, found: Fields) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease or wrote a record. start_time: the process' start in clock ticks after
    boot."""

    user: str
    host: str
    mount_path: str
    pid: int
    start_time: int
    machine_id: str
    boot_id: str


def holder_body(holder: Holder | None) -> dict[str, Any] | None:
    return {name: getattr(holder, name) for name in Holder.__slots__} if holder else None


def parse_holder(found: Fields) -> Holder:
    return Holder(
        user=found.text("user"),
        host=found.text("host"),
        mount_path=found.text("mount_path"),
        pid=found.integer("pid"),
        start_time=found.integer("start_time"),
        machine_id=found.text("machine_id"),
        boot_id=found.text("boot_id"),
    )


def optional_holder(found: Fields) -> Holder | None:
    inner = found.optional_object("holder")
    return parse_holder(inner) if inner else None


def known_text(found: Fields, name: str, allowed: tuple[str, ...]) -> str:
    """A field whose values readers must know; another one in an undamaged record was written by a
    newer cowfs."""
    value = found.text(name)
    if value not in allowed:
        raise UnsupportedFormatError(
            f"{found.what} has {name} {value!r:.60}, unknown to this cowfs", hint="Use a newer cowfs to read it."
        )
    return value


def check_one_of(value: str, allowed: tuple[str, ...], title: str) -> None:
    if value not in allowed:
        raise InvalidInputError(f"{value!r} is no {title}; known are {', '.join(allowed)}")
