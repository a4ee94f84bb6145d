"""Volumes and versions as values in the data of other libraries: as text, which is a locator.

    pydantic            a field declared as ROVolume or RWVolume, of either kind (`cowfs`, `cowfs.blocking`)
    Airflow             serialize() and deserialize() of the classes
    dask                __dask_tokenize__ of the classes
    cowfs.integrations.mashumaro   fields of dataclasses, through serialize() and deserialize()

Reading a text makes no request: a name is looked up when the object is first used. Writing a
version that was not looked up yet looks it up, so that the text names one version for ever.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from cowfs.api.twins.one_type import OneType, unwrap
from cowfs.base.errors import InvalidInputError, UnsupportedFormatError

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

DATA_VERSION: Final = 1
"""Of the data that `serialize` returns."""
JSON_SCHEMA: Final = {"type": "string", "format": "cowfs-volume"}


class VolumeField(metaclass=OneType):
    """Base of the blocking classes."""

    @abstractmethod
    def _has_own_mount(self) -> bool: ...

    def _is_looked_up(self) -> bool:
        return True

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> CoreSchema:
        return core_schema(cls, unwrap)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: object, handler: object) -> dict[str, str]:
        return dict(JSON_SCHEMA)


def owns_mount(volume: VolumeField) -> bool:
    """Whether a mount exists that this object made or, for a version, shares."""
    return volume._has_own_mount()


def is_looked_up(volume: VolumeField) -> bool:
    """False: a text names the version, and reading its fields would make requests."""
    return volume._is_looked_up()


def core_schema(kind: Any, convert: Callable[[object], object]) -> CoreSchema:
    """The schema of a field declared as `kind`. convert: makes a blocking or async object one of
    the declared kind."""
    from pydantic_core import PydanticCustomError
    from pydantic_core import core_schema as schemas

    def read(value: object) -> object:
        if isinstance(value, str):
            return kind.deserialize({"locator": value})
        if isinstance(value, kind):
            return convert(value)
        if hasattr(value, "finalize"):
            raise PydanticCustomError(
                "cowfs_volume", "Input should be a version, not a writer: give what finalize() or commit() returns"
            )
        raise PydanticCustomError("cowfs_volume", "Input should be a locator, or the name of a volume")

    def write(value: Any) -> str:
        text: str = value if isinstance(value, str) else value.serialize()["locator"]
        return text

    written = schemas.plain_serializer_function_ser_schema(
        write, return_schema=schemas.str_schema(), when_used="json-unless-none"
    )
    return schemas.no_info_plain_validator_function(read, serialization=written)


def read_data(data: object, version: int) -> str:
    """The text in the result of `serialize`."""
    if version > DATA_VERSION:
        raise UnsupportedFormatError(
            f"a serialized volume has version {version}; this cowfs reads {DATA_VERSION}", hint="Use a newer cowfs."
        )
    text = data.get("locator") if isinstance(data, Mapping) else None
    if not isinstance(text, str):
        raise InvalidInputError(
            f"{data!r} is no serialized volume", hint='It is {"locator": …}, as serialize() makes it.'
        )
    return text
