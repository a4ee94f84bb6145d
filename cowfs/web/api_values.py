"""The values of the JSON API as dataclasses, and what both the documents and their schemas follow
from: `to_json` and `schema_of` read the same fields.

Fields have the names that they have in the output of commands, and times in nanoseconds are strings
of digits. Names that are not UTF-8 have surrogates.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from cowfs.blocking import Change, Entry, ROVolume, Stats, Tag, VersionLog, VolumeSummary
from cowfs.rendering import describe_version, fields_of, json_names

SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}
DIGITS = {"type": "string", "pattern": "^-?[0-9]+$"}


@dataclass(frozen=True)
class SessionValue:
    """csrf: to be sent as X-CSRF-Token with every change."""

    user: str
    role: Literal["viewer", "writer", "admin"]
    csrf: str


@dataclass(frozen=True)
class StoreValue:
    """name: "-" for the server's own store."""

    name: str
    url: str
    is_read_only: bool


@dataclass(frozen=True)
class Stores:
    stores: list[StoreValue]


@dataclass(frozen=True)
class Volumes:
    volumes: list[VolumeSummary]


@dataclass(frozen=True)
class Version:
    """Fields after is_pruned are None for a version that is not in the store."""

    locator: str
    volume: str
    version: str
    is_pruned: bool
    message: str | None = None
    author: str | None = None
    created_ns: int | None = None
    parents: list[str] | None = None
    labels: Mapping[str, str] | None = None
    produced_by: Mapping[str, str] | None = None
    stats: Stats | None = None
    made_in: str | None = None


@dataclass(frozen=True, kw_only=True)
class LoggedVersion(Version):
    tag_names: list[str]
    is_collectable: bool
    is_purged: bool


@dataclass(frozen=True)
class Log:
    """changes_by_version: of the log of a path."""

    volume: str
    versions: list[LoggedVersion]
    changes_by_version: Mapping[str, list[Change]]


@dataclass(frozen=True)
class Tags:
    volume: str
    tags: list[Tag]


@dataclass(frozen=True)
class Entries:
    """total: of all pages. is_complete: False if a search ended early."""

    version: str
    entries: list[Entry]
    total: int
    is_complete: bool


@dataclass(frozen=True)
class Changes:
    old_locator: str | None
    new_locator: str | None
    changes: list[Change]


@dataclass(frozen=True)
class GcPlanValue:
    store_url: str
    freed_bytes: int
    freed_versions: int
    freed_packs: int
    kept_bytes: int
    young_bytes: int
    alarms: list[str]


@dataclass(frozen=True)
class Done:
    """volume: that was made, deleted or brought back."""

    volume: str


@dataclass(frozen=True)
class Revoked:
    link_id: str


@dataclass(frozen=True)
class MountValue:
    """has_uncommitted, and what follows: None if the mount does not say it."""

    mount_path: str
    volume: str
    store_url: str
    version: str | None
    state: str
    work: str
    kind: str
    pid: int
    since_ns: int
    has_uncommitted: bool | None
    memory_bytes: int | None
    uploaded_bytes: int | None
    waiting_requests: int | None
    oldest_request_s: float | None


@dataclass(frozen=True)
class Mounts:
    mounts: list[MountValue]


@dataclass(frozen=True)
class LinkValue:
    """url: a path of this server. path: "/" for a whole version."""

    id: str
    url: str
    store: str
    volume: str
    version: str
    path: str
    created_by: str
    until_ns: int


@dataclass(frozen=True)
class Links:
    shared_links: list[LinkValue]


@dataclass(frozen=True)
class ErrorValue:
    kind: str
    message: str
    hint: str


@dataclass(frozen=True)
class Error:
    error: ErrorValue


def describe(version: ROVolume) -> Version:
    return Version(**_fields(version))


def describe_log(log: VersionLog) -> Log:
    versions = [LoggedVersion(**_fields(each), **vars(log.names[each.id])) for each in log.versions]
    return Log(log.volume, versions, log.changes)


def _fields(version: ROVolume) -> dict[str, Any]:
    return {**describe_version(version), "made_in": None if version.is_pruned else version.made_in}


def to_json(value: Any) -> Any:
    """value: a dataclass of this module, or what its fields hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = fields_of(value)
        return {name: _text_time(name, each) if _is_time(name) else to_json(each) for name, each in found.items()}
    if isinstance(value, Mapping):
        return {str(name): to_json(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_json(each) for each in value]
    return value


def _is_time(name: str) -> bool:
    return name.endswith("_ns")


def _text_time(name: str, value: int | None) -> str | None:
    return None if value is None else str(value)


def schema_of(kind: Any, *, is_time: bool = False) -> dict[str, Any]:
    """The JSON schema of what `to_json` makes of values of that type."""
    if kind in SCALARS:
        return DIGITS if is_time else {"type": SCALARS[kind]}
    if kind is type(None):
        return {"type": "null"}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        fields = {name: schema_of(hints[own], is_time=_is_time(own)) for own, name in json_names(kind).items()}
        return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(each, is_time=is_time) for each in inner]}
    if origin is Literal:
        return {"type": "string", "enum": list(inner)}
    if origin in (list, tuple):
        return {"type": "array", "items": schema_of(inner[0])}
    assert isinstance(origin, type) and issubclass(origin, Mapping), kind  # noqa: PT018
    return {"type": "object", "additionalProperties": schema_of(inner[1])}
