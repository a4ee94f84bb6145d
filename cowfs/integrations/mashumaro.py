"""Volumes as fields of dataclasses that mashumaro encodes, as text: the locator that `serialize()`
gives.

Without this, mashumaro takes a volume for a path (it is `os.PathLike`) and writes where it is
mounted. mashumaro has no public registry of types; `register` puts functions before those of its
own, so it must run before a dataclass is first encoded. Reading a text makes no request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cowfs
from cowfs import blocking

SCHEMA_FORMAT = "cowfs-volume"
"""As in the JSON schema of pydantic."""
_KINDS = (cowfs.ROVolume, cowfs.RWVolume, blocking.ROVolume, blocking.RWVolume)
_is_registered = False


def write_volume(volume: Any) -> str:
    """InvalidStateError: a writer that is mounted or has uncommitted work."""
    if isinstance(volume, str):
        return volume
    return str(volume.serialize()["locator"])


def register(write: Callable[[Any], str] = write_volume) -> None:
    """write: makes the text of a volume. Only the first call counts."""
    global _is_registered
    if _is_registered:
        return
    from mashumaro.core.meta.types.pack import PackerRegistry
    from mashumaro.core.meta.types.unpack import UnpackerRegistry
    from mashumaro.jsonschema import models
    from mashumaro.jsonschema import schema as json_schema

    make_formats: Any = models.JSONSchemaInstanceFormat
    formats = make_formats("Formats", {"VOLUME": SCHEMA_FORMAT})

    def pack(spec: Any) -> str | None:
        if spec.origin_type not in _KINDS:
            return None
        spec.builder.ensure_object_imported(write, "cowfs_write_volume")
        return f"cowfs_write_volume({spec.expression})"

    def unpack(spec: Any) -> str | None:
        if spec.origin_type not in _KINDS:
            return None
        number = _KINDS.index(spec.origin_type)
        name = f"cowfs_read_volume_{number}"
        spec.builder.ensure_object_imported(_READERS[number], name)
        return f"{name}({spec.expression})"

    def describe(instance: Any, _: object) -> Any:
        if instance.type not in _KINDS:
            return None
        return models.JSONSchema(type=models.JSONSchemaInstanceType.STRING, format=formats.VOLUME)

    before_others: Any
    for before_others, function in (
        (PackerRegistry, pack),
        (UnpackerRegistry, unpack),
        (json_schema.Registry, describe),
    ):
        before_others._registry.insert(0, function)
    _is_registered = True


def _reader(kind: Any) -> Callable[[Any], Any]:
    def read(text: Any) -> Any:
        return text if isinstance(text, kind) else kind.deserialize({"locator": text})

    return read


_READERS = [_reader(kind) for kind in _KINDS]
