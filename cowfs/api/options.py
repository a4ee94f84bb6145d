"""How a mount is tuned: one type for Python arguments and command line flags, checked before anything is started.

Cache times are seconds the kernel may answer without asking: attributes, names of files, names of directories.
None stands for the mode's default: 60 s writable (one writer, so nothing changes behind the kernel's back), unlimited
read-only (a version never changes).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from cowfs import config
from cowfs.api import sizes
from cowfs.errors import InvalidInputError

F = TypeVar("F", bound=Callable[..., Any])

TRANSPORTS = ("auto", "device", "uring")


class ReadOptions(TypedDict, total=False):
    """What may be said of any mount, by the types of `MountOptions`, which explains them."""

    max_uploads: int
    attr_cache: float | None
    entry_cache: float | None
    dir_entry_cache: float | None
    cache_dir: str | os.PathLike[str] | None
    cache_size: int | str | None
    store_timeout: float | None
    resident: bool
    fast_lane: bool
    transport: str
    allow_other: bool | None
    fuse_fd: int | None
    foreground: bool


class WriteOptions(ReadOptions, total=False):
    """What may be said of a writable mount besides."""

    meta_dir: str | os.PathLike[str] | None
    take_over: bool
    accept_unsafe_store: bool


@dataclass(frozen=True, kw_only=True)
class MountOptions:
    """Options of one mount; InvalidInputError names the one that is wrong.

    max_uploads           uploads that may run at once
    attr_cache, entry_cache, dir_entry_cache    see above
    cache_dir             chunks and index blocks; may be deleted at any time
    meta_dir              takes the place of the state directory: holds the working copy
    cache_size            most bytes cache_dir may hold ("20GiB" works too); None: as much as the disk allows
    store_timeout         seconds without any success after which a commit or a read gives the store up; nothing is lost by that.
                          None: COWFS_STORE_TIMEOUT, `store_timeout` in config.toml, or 900
    resident              load the whole namespace before the mount is ready, for about 150 bytes of memory a file: no look-up, stat or
                          listing waits for the store afterwards; COWFS_RESIDENT=1 makes it the default
    fast_lane             answer requests natively; False, or COWFS_FAST_LANE=0: by pyfuse3 (an extra: cowfs[pyfuse3])
    transport             what carries requests: "device", "uring" (FUSE over io_uring, an error where it cannot be had), or
                          "auto", which is COWFS_TRANSPORT where that is set, and else uring where it can be had
    take_over             take the volume from a writer that is gone; a writer that is not loses its line, not its work
    accept_unsafe_store   write to a store whose create-only puts failed their probe: two writers may lose work
    allow_other           let other users in: None where permitted, True demands it, False never
    fuse_fd               a /dev/fuse descriptor already mounted at the path (by whoever started this process)
    foreground            the daemon's log goes to this process' standard error
    """

    max_uploads: int = 50
    attr_cache: float | None = None
    entry_cache: float | None = None
    dir_entry_cache: float | None = None
    cache_dir: str | os.PathLike[str] | None = None
    meta_dir: str | os.PathLike[str] | None = None
    cache_size: int | str | None = None
    store_timeout: float | None = None
    resident: bool = False
    fast_lane: bool = True
    transport: str = "auto"
    take_over: bool = False
    accept_unsafe_store: bool = False
    allow_other: bool | None = None
    fuse_fd: int | None = None
    foreground: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "bool" and not isinstance(value, bool):
                raise _wrong(field.name, value, "True or False")
            if field.type == "float | None" and value is not None and not _is_seconds(value):
                raise _wrong(field.name, value, "seconds, 0 or more")
        if type(self.max_uploads) is not int or self.max_uploads < 1:
            raise _wrong("max_uploads", self.max_uploads, "a whole number, 1 or more")
        if self.transport not in TRANSPORTS:
            raise _wrong("transport", self.transport, "auto, device or uring")
        if self.fuse_fd is not None and self.fuse_fd < 3:
            raise _wrong("fuse_fd", self.fuse_fd, "an open descriptor above 2")
        _ = self.cache_size_bytes

    @property
    def cache_size_bytes(self) -> int | None:
        return None if self.cache_size is None else _size_bytes("cache_size", self.cache_size)

    @property
    def store_timeout_s(self) -> float:
        return config.store_timeout_s() if self.store_timeout is None else self.store_timeout

    @property
    def is_resident(self) -> bool:
        return self.resident or os.environ.get("COWFS_RESIDENT", "") not in ("", "0")

    @property
    def has_fast_lane(self) -> bool:
        return self.fast_lane and os.environ.get("COWFS_FAST_LANE", "") != "0"

    @property
    def wanted_transport(self) -> str:
        """COWFS_TRANSPORT speaks for mounts that can use any; others have the device."""
        if self.transport != "auto" or self.fuse_fd is not None or not self.has_fast_lane:
            return self.transport
        wanted = os.environ.get("COWFS_TRANSPORT", "") or "auto"
        if wanted not in TRANSPORTS:
            raise _wrong("COWFS_TRANSPORT", wanted, "auto, device or uring")
        return wanted

    @property
    def cache_path(self) -> Path:
        return Path(os.path.abspath(self.cache_dir)) if self.cache_dir is not None else config.cache_dir()

    @property
    def meta_path(self) -> Path | None:
        return Path(os.path.abspath(self.meta_dir)) if self.meta_dir is not None else None


def shows_options(options: type[ReadOptions], cache_s: float | None = None) -> Callable[[F], F]:
    """Lets the signature of a function that takes `**options` name each of them with its default, for `help` and notebooks.

    cache_s: the default of this mode's cache times."""
    defaults = {field.name: field.default for field in fields(MountOptions)}
    defaults |= dict.fromkeys(("attr_cache", "entry_cache", "dir_entry_cache"), cache_s)

    def decorate(function: F) -> F:
        said = signature(function)
        own = [each for each in said.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        named = [Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name]) for name in options.__annotations__]
        function.__signature__ = Signature([*own, *named], return_annotation=said.return_annotation)  # type: ignore[attr-defined]
        return function

    return decorate


def _size_bytes(name: str, value: int | str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    parsed = sizes.parsed(value) if isinstance(value, str) else None
    if parsed is None:
        raise _wrong(name, value, "bytes, or a size like 512M or 20GiB")
    return parsed


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value) and value >= 0


def _wrong(name: str, value: object, wanted: str) -> InvalidInputError:
    return InvalidInputError(f"{name} is {value!r}", hint=f"{name} takes {wanted}.")
