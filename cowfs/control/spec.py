"""What a mount daemon is asked to do: one JSON document on its standard input.

`api` writes it, `python -m cowfs.daemon` reads it. It is strict both ways: an unknown field, a missing one or a value
of the wrong type is refused, so that a newer caller and an older daemon notice each other. It holds no credentials:
those come to the daemon by the environment it inherits.

Cache times: None means the mode's default, 60 s for writable mounts, unlimited for read-only ones; an explicit value wins.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import types
import typing
from dataclasses import dataclass
from typing import Any, Literal

from cowfs.config import STORE_TIMEOUT_S
from cowfs.errors import InvalidInputError
from cowfs.ids import VersionId

SPEC_FORMAT = 1
CACHE_DEFAULT_S = 60.0
CACHE_UNLIMITED_S = 315_360_000.0
"""Ten years: larger values only risk an overflow on their way into the kernel."""


@dataclass(frozen=True, kw_only=True)
class SessionSpec:
    """What an opened volume or version stands on, with or without a kernel. Paths are absolute.

    working_copy   directory of the working copy; given for "rw", None for "ro"
    version        64 hex digits for "ro"; None for "rw", where the working copy knows its base
    store_timeout_s
                   how long a served session waits for a store that does not answer, without any success in between
    """

    store_url: str
    volume: str
    mode: Literal["rw", "ro"]
    cache_dir: str
    working_copy: str | None = None
    version: str | None = None
    max_uploads: int = 50
    cache_size_bytes: int | None = None
    store_timeout_s: float = STORE_TIMEOUT_S
    resident: bool = False
    take_over: bool = False

    def __post_init__(self) -> None:
        for name, kind in _field_types(type(self)).items():
            if not _matches(getattr(self, name), kind):
                raise _bad(f"{name} has the wrong type: {getattr(self, name)!r}")
        self._check_paths("cache_dir", "working_copy")
        if (self.mode == "rw") != (self.working_copy is not None):
            raise _bad("a writable mount needs a working copy, a read-only one has none")
        if (self.mode == "ro") != (self.version is not None):
            raise _bad("a read-only mount needs a version, a writable one has none")
        if self.version is not None:
            VersionId.from_hex(self.version)
        self._check_seconds("store_timeout_s")
        if self.max_uploads < 1:
            raise _bad("max_uploads must be at least 1")
        if self.cache_size_bytes is not None and self.cache_size_bytes < 0:
            raise _bad("cache_size_bytes must not be negative")

    @property
    def place(self) -> str:
        """Where the work happens, as other writers are told."""
        return f"process {os.getpid()}, without a mount"

    def _check_paths(self, *names: str) -> None:
        for name in names:
            path = getattr(self, name)
            if path is not None and not path.startswith("/"):
                raise _bad(f"{name} is not an absolute path: {path!r}")

    def _check_seconds(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and (math.isnan(value) or value < 0):
                raise _bad(f"{name} is not a number of seconds: {value!r}")


@dataclass(frozen=True, kw_only=True)
class MountSpec(SessionSpec):
    """One mount, complete. Fields without a default must be given.

    source         what the user named (NAME, NAME@TAG, locator): for `status`, never parsed
    registration   id of this mount in the registry (machine.registry)
    socket         its control socket; the directory must be private to the user
    log            file that gets the daemon's log once it has detached
    fast_lane      requests are answered by the native lane; False: by pyfuse3
    transport      what carries the fast lane's requests: /dev/fuse, FUSE over io_uring, or what is best here
    allow_other    None: where permitted (root, or user_allow_other in fuse.conf); True: demanded; False: never
    fuse_fd        a /dev/fuse descriptor that is mounted on mount_path already; it was mounted with default_permissions
    """

    source: str
    mount_path: str
    registration: str
    socket: str
    log: str
    attr_cache: float | None = None
    entry_cache: float | None = None
    dir_entry_cache: float | None = None
    fast_lane: bool = True
    transport: Literal["auto", "device", "uring"] = "auto"
    fuse_fd: int | None = None
    allow_other: bool | None = None
    foreground: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_paths("mount_path", "socket", "log")
        self._check_seconds("attr_cache", "entry_cache", "dir_entry_cache")

    @property
    def place(self) -> str:
        return self.mount_path

    def cache_s(self, name: Literal["attr_cache", "entry_cache", "dir_entry_cache"]) -> float:
        """The cache time the mount uses: the value given, else the mode's default."""
        value: float | None = getattr(self, name)
        if value is None:
            return CACHE_DEFAULT_S if self.mode == "rw" else CACHE_UNLIMITED_S
        return min(value, CACHE_UNLIMITED_S)

    def to_json(self) -> str:
        record = dataclasses.asdict(self)
        for name in ("attr_cache", "entry_cache", "dir_entry_cache", "store_timeout_s"):
            if record[name] is not None:
                record[name] = min(record[name], CACHE_UNLIMITED_S)
        return json.dumps({"format": SPEC_FORMAT, **record}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> MountSpec:
        """Raises InvalidInputError for anything that is not exactly a spec of this format."""
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _bad(f"not JSON: {error}") from error
        if not isinstance(record, dict):
            raise _bad("not a JSON object")
        if (found := record.pop("format", None)) != SPEC_FORMAT:
            raise _bad(f"its format is {found!r}, this cowfs knows {SPEC_FORMAT}")
        if unknown := record.keys() - _field_types(cls).keys():
            raise _bad(f"unknown fields: {', '.join(sorted(unknown))}")
        required = {field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING}
        if missing := required - record.keys():
            raise _bad(f"missing fields: {', '.join(sorted(missing))}")
        return cls(**record)


def _matches(value: Any, kind: Any) -> bool:
    """Whether a JSON value has exactly the annotated type: no bool for an int, but an int for a float."""
    origin = typing.get_origin(kind)
    if origin is Literal:
        return value in typing.get_args(kind)
    if origin is types.UnionType:
        return any(_matches(value, one) for one in typing.get_args(kind))
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind


def _bad(reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"the mount daemon cannot use its mount specification: {reason}",
        hint="Specifications are written by `cowfs mount` and Volume.mount of the same version.",
    )


def _field_types(spec: type[SessionSpec]) -> dict[str, Any]:
    return {name: kind for name, kind in typing.get_type_hints(spec).items() if name in spec.__dataclass_fields__}
