"""Typed, bounded reading of JSON objects, and the envelope of records that are not named by a hash.

`Fields` wraps one decoded object. Each call takes one field and states its type and bounds; a field
that is missing, of another type or out of bounds is CorruptError naming the object and the field.
`rest` holds the fields that were not taken: unknown optional fields, ignored by readers and kept by
writers of the next record.

Records are found by their key, not by a hash, so `seal` gives each record its own:

    {..., "check": <64 hex>, "format": <number>, "record": <type>}      check: BLAKE3 of the canonical JSON without "check"

`open_sealed` verifies in this order: canonical JSON, check, type, format number. The check comes
before the number so that damage does not look like a newer format; every format of these records,
including later ones, MUST keep `check`, `format` and `record` so. (A manifest is named by its hash
and needs no check.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from blake3 import blake3

from cowfs.base.errors import CorruptError, CowfsError, UnsupportedFormatError
from cowfs.base.hints import Command
from cowfs.base.ids import ChunkHash, PackId, StoreId, VersionId, WriteId
from cowfs.format import canonical

Id = TypeVar("Id", VersionId, PackId, ChunkHash, StoreId, WriteId)

U64 = (1 << 64) - 1
ENVELOPE = ("check", "format", "record")


def seal(record: str, number: int, body: Mapping[str, Any]) -> bytes:
    """Canonical bytes of a record of this type and format number, with its check."""
    whole = {**body, "record": record, "format": number}
    return canonical.encode({**whole, "check": blake3(canonical.encode(whole)).hexdigest()})


def open_sealed(data: bytes, record: str, *numbers: int, what: str) -> Fields:
    """The fields of an undamaged record of this type and one of these format numbers, without the
    envelope."""
    found = canonical.decode(data, what=what)
    check = found.pop("check", None)
    if check != blake3(canonical.encode(found)).hexdigest():
        raise CorruptError(
            f"{what} fails its check: it was altered or cut",
            hint=f"Its bytes differ from those written: take it from a copy of the store. {Command('verify')} lists further damage.",
        )
    fields = open_fields(found, record, *numbers, what=what)
    fields.check = check
    return fields


def open_fields(found: dict[str, Any], record: str, *numbers: int, what: str) -> Fields:
    """The fields of a decoded object whose bytes were verified, after checking and removing type
    and format number."""
    if (kind := found.pop("record", None)) != record:
        raise CorruptError(f"{what} is not a {record} record but {kind!r}")
    form = found.pop("format", None)
    if isinstance(form, bool) or not isinstance(form, int):
        raise CorruptError(f"{what} has no format number")
    check_format(form, *numbers, what=what)
    return Fields(found, what)


def check_format(found: int, *known: int, what: str) -> None:
    if found not in known:
        raise UnsupportedFormatError(
            f"{what} has format {found}; this cowfs reads format {' and '.join(map(str, known))}",
            hint="Use a newer cowfs to read it.",
        )


class Fields:
    """One JSON object being read; every call takes its field out."""

    def __init__(self, found: object, what: str) -> None:
        if not isinstance(found, dict):
            raise CorruptError(f"{what} is not an object")
        self._left: dict[str, Any] = dict(found)
        self.what = what
        self.check = ""  # of a record, in hex

    @property
    def rest(self) -> dict[str, Any]:
        return self._left

    def damage_error(self, name: str, why: str) -> CorruptError:
        return CorruptError(f"{self.what}: field {name!r} {why}")

    def _take(self, name: str) -> Any:
        try:
            return self._left.pop(name)
        except KeyError:
            raise self.damage_error(name, "is missing") from None

    def is_null(self, name: str) -> bool:
        """Whether an optional field is absent or null; takes it out in that case."""
        if self._left.get(name) is None:
            self._left.pop(name, None)
            return True
        return False

    def integer(self, name: str, minimum: int = 0, maximum: int = U64) -> int:
        value = self._take(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.damage_error(name, "is not an integer")
        if not minimum <= value <= maximum:
            raise self.damage_error(name, f"is {value}, outside {minimum} to {maximum}")
        return value

    def optional_integer(self, name: str) -> int | None:
        return None if self.is_null(name) else self.integer(name)

    def text(self, name: str) -> str:
        value = self._take(name)
        if not isinstance(value, str):
            raise self.damage_error(name, "is not text")
        return value

    def flag(self, name: str) -> bool:
        value = self._take(name)
        if not isinstance(value, bool):
            raise self.damage_error(name, "is neither true nor false")
        return value

    def id(self, name: str, kind: type[Id]) -> Id:
        return self.parse_id(name, self._take(name), kind)

    def parse_id(self, name: str, value: object, kind: type[Id]) -> Id:
        try:
            if isinstance(value, str):
                return kind.from_hex(value)
        except CowfsError:
            pass
        raise self.damage_error(name, f"is not {kind.length * 2} hexadecimal digits")

    def items(self, name: str) -> list[Any]:
        value = self._take(name)
        if not isinstance(value, list):
            raise self.damage_error(name, "is not a list")
        return value

    def objects(self, name: str) -> list[Fields]:
        return [Fields(item, f"{self.what}: {name}[{at}]") for at, item in enumerate(self.items(name))]

    def object(self, name: str) -> Fields:
        return Fields(self._take(name), f"{self.what}: {name}")

    def ids(self, name: str, kind: type[Id]) -> tuple[Id, ...]:
        return tuple(self.parse_id(f"{name}[{at}]", item, kind) for at, item in enumerate(self.items(name)))

    def texts(self, name: str) -> dict[str, str]:
        """An object whose values are all text."""
        found = self.object(name).rest
        for key, value in found.items():
            if not isinstance(value, str):
                raise self.damage_error(f"{name}.{key}", "is not text")
        return found
