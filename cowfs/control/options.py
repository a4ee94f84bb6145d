"""The options of a mount: one type for Python arguments, command line flags and the daemon's
specification.

They are checked before anything is started. A new option is added here, and where it is used; a
flag on the command line makes it available to users. Code in between passes a whole `MountOptions`.

Cache times are the seconds for which the kernel may answer without asking: attributes, names of
files, names of directories. None stands for the mode's default: 60 s writable (one writer, so
nothing changes without the kernel's knowledge), unlimited read-only (a version never changes).
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypedDict, cast

from cowfs.base import byte_sizes, config
from cowfs.base.errors import InvalidInputError
from cowfs.base.short_repr import short_repr
from cowfs.control.typed import field_types, matches

CACHE_DEFAULT_S = 60.0
CACHE_DEFAULT_BYTES = 20 << 30
CACHE_DEFAULTS = dict.fromkeys(("attr_cache", "entry_cache", "dir_entry_cache"), CACHE_DEFAULT_S)
CACHE_UNLIMITED_S = 315_360_000.0
"""Ten years: larger values only risk an overflow on their way into the kernel."""
ID_MAX = 2**32 - 2
"""The largest user or group id; the next one means "unchanged" to chown(2)."""
Transport = Literal["auto", "device", "uring"]
Mode = Literal["auto", "fuse", "copy"]
Uncommitted = Literal["resume", "discard", "refuse"]
COPY_LIMIT = "10GiB"

_OF_ONE_CALL = {
    "mode",
    "copy_limit",
    "take_over",
    "accept_unsafe_store",
    "max_uploads",
    "meta_dir",
    "uncommitted",
    "supervised",
}
"""Options that do not affect what a mount of a version looks like."""

TAKEN = {
    int: "a whole number, 1 or more",
    bool: "True or False",
    bool | None: "True, False or None",
    float | None: "seconds, 0 or more",
    int | None: "an open descriptor above 2",
    int | str | None: f"a number of bytes, or {byte_sizes.WANTED}",
    int | str: f"a number of bytes, or {byte_sizes.WANTED}",
    str | os.PathLike[str] | None: "a path",
    Transport: "auto, device or uring",
    Mode: "auto, fuse or copy",
    Uncommitted: "resume, discard or refuse",
    str | None: "caller, none, or numbers as UID:GID",
}
"""By type: the accepted values, for the error about a wrong one."""


class ReadOptions(TypedDict, total=False):
    """Options of any mount, with the types of `MountOptions`, which explains them."""

    max_uploads: int
    attr_cache: float | None
    entry_cache: float | None
    dir_entry_cache: float | None
    cache_dir: str | os.PathLike[str] | None
    cache_size: int | str | None
    store_timeout: float | None
    resident: bool
    show_versions: bool
    fast_lane: bool
    transport: Transport
    allow_other: bool | None
    map_owner: str | None
    fuse_fd: int | None
    foreground: bool
    supervised: bool | None
    mode: Mode
    copy_limit: int | str
    record: str | os.PathLike[str] | None
    replay: str | os.PathLike[str] | None


class WriteOptions(ReadOptions, total=False):
    """Further options of a writable mount."""

    meta_dir: str | os.PathLike[str] | None
    take_over: bool
    accept_unsafe_store: bool
    uncommitted: Uncommitted


@short_repr
@dataclass(frozen=True, kw_only=True)
class MountOptions:
    """Options of one mount; InvalidInputError names the wrong one.

    max_uploads           uploads that may run at once
    attr_cache, entry_cache, dir_entry_cache    see above
    cache_dir             chunks and index blocks; may be deleted at any time
    meta_dir              takes the place of the state directory: holds the working copy
    cache_size            most bytes cache_dir may hold ("20GiB" works too); None: COWFS_CACHE_SIZE, or what the disk allows
    store_timeout         seconds without any success after which a commit or a read gives the store up; nothing is lost by that.
                          None: COWFS_STORE_TIMEOUT, `store_timeout` in config.toml, or 900
    resident              load the whole namespace before the mount is ready, for about 150 bytes of memory a file: no lookup, stat or
                          listing waits for the store afterwards; COWFS_RESIDENT=1 makes it the default
    show_versions         list `.cowfs` in the mount's root; the volume's versions can be opened in `.cowfs/versions` either way
    fast_lane             answer requests natively; False, or COWFS_FAST_LANE=0: by pyfuse3 (an extra: cowfs-volumes[pyfuse3])
    transport             what carries requests: "device", "uring" (FUSE over io_uring, an error where it is not available), or
                          "auto", which is COWFS_TRANSPORT if that is set, and otherwise device
    take_over             take the volume from a writer that is gone; a writer that is not loses its line, not its work
    uncommitted           what happens to uncommitted work that an earlier mount has left on this machine: "resume" continues with it,
                          and the log says so; "discard" drops it, so that the mount begins with the last version; "refuse" is an error.
                          Work in a mount that other programs use is never dropped
    accept_unsafe_store   write to a store whose create-only puts failed their probe: two writers may lose work
    allow_other           let other users in: None where permitted, True demands it, False never
    map_owner             the user that the mount shows in place of the version's owner, who owns its root directory: "caller" is the
                          user that mounts, unless the version is theirs; "UID:GID" any user; "none" leaves owners as they are. None:
                          none for root, caller for others. Files that this user makes or is given are stored as the version's owner's
    fuse_fd               a /dev/fuse descriptor already mounted at the path, for example from outside a container, and unmounted
                          from there; close it afterwards, since a copy keeps the mount waiting when its daemon dies
    foreground            the daemon's log goes to this process' standard error
    supervised            a mount of a volume goes on if its daemon is killed: programs wait, and get no errors (a supervisor starts
                          the next daemon). True: an error where that cannot be; None: COWFS_SUPERVISE=1 makes it the default
    mode                  "fuse": a mount, an error where FUSE is not available; "copy": a folder of plain files, from which commits are
                          made; "auto": a mount where this machine can, else a copy. A copy heeds meta_dir, cache_dir and max_uploads
    copy_limit            most bytes of a version that a copy is made of; a larger one is a NeedsFuseError
    record                a file that gets the profile of what is read of the mount; written regularly, and at the end. Programs
                          read by requests then, at a lower speed. Never a copy
    replay                a profile: its files are fetched into the cache in the background, in its order
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
    show_versions: bool = False
    fast_lane: bool = True
    transport: Transport = "auto"
    take_over: bool = False
    accept_unsafe_store: bool = False
    uncommitted: Uncommitted = "resume"
    allow_other: bool | None = None
    map_owner: str | None = None
    fuse_fd: int | None = None
    foreground: bool = False
    supervised: bool | None = None
    mode: Mode = "auto"
    copy_limit: int | str = COPY_LIMIT
    record: str | os.PathLike[str] | None = None
    replay: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        for name, kind in field_types(MountOptions).items():
            value = getattr(self, name)
            if not matches(value, kind) or (isinstance(value, float | int) and not value >= 0):
                raise _wrong(name, value, TAKEN[kind])
        if self.max_uploads < 1:
            raise _wrong("max_uploads", self.max_uploads, "a whole number, 1 or more")
        if self.fuse_fd is not None and self.fuse_fd < 3:
            raise _wrong("fuse_fd", self.fuse_fd, "an open descriptor above 2")
        if self.map_owner not in (None, "caller", "none") and self.mapped_owner is None:
            raise _wrong("map_owner", self.map_owner, TAKEN[str | None])
        _ = self.cache_size_bytes, self.copy_limit_bytes

    def resolved(self) -> MountOptions:
        """The options with all values from environment, configuration and working directory filled
        in: they mean the same in every process."""
        return replace(
            self,
            attr_cache=_finite(self.attr_cache),
            entry_cache=_finite(self.entry_cache),
            dir_entry_cache=_finite(self.dir_entry_cache),
            cache_dir=str(self.cache_path),
            meta_dir=str(self.meta_path) if self.meta_path is not None else None,
            cache_size=self.cache_size_bytes,
            store_timeout=_finite(self.store_timeout_s),
            resident=self.is_resident,
            fast_lane=self.has_fast_lane,
            transport=self.wanted_transport,
            map_owner=self.map_owner or ("none" if os.geteuid() == 0 else "caller"),
            record=_whole(self.record),
            replay=_whole(self.replay),
        )

    @property
    def is_resolved(self) -> bool:
        paths = self.cache_dir, self.meta_dir, self.record, self.replay
        are_whole = all(isinstance(path, str) and os.path.isabs(path) for path in paths if path is not None)
        known = self.cache_dir, self.store_timeout, self.map_owner
        return are_whole and None not in known and not isinstance(self.cache_size, str)

    @property
    def sharing_key(self) -> str:
        """For resolved options: mounts of a version with the same key are alike. "": the mount
        cannot be shared."""
        if self.foreground or self.fuse_fd is not None or self.record is not None:
            return ""
        alike = {name: getattr(self, name) for name in field_types(MountOptions) if name not in _OF_ONE_CALL}
        numbers = {name: float(value) for name, value in alike.items() if isinstance(value, int | float)}
        return hashlib.sha256(json.dumps(alike | numbers, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def cache_size_bytes(self) -> int | None:
        if self.cache_size is not None:
            return _size_bytes("cache_size", self.cache_size)
        given = os.environ.get("COWFS_CACHE_SIZE")
        return _size_bytes("COWFS_CACHE_SIZE", given) if given else None

    @property
    def copy_limit_bytes(self) -> int:
        return _size_bytes("copy_limit", self.copy_limit)

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
    def is_supervised(self) -> bool:
        """Whether the mount is to be supervised, if it can be."""
        if self.supervised is not None:
            return self.supervised
        return os.environ.get("COWFS_SUPERVISE", "") not in ("", "0")

    @property
    def wanted_transport(self) -> Transport:
        """COWFS_TRANSPORT applies to mounts that can use any transport; others use the device."""
        if self.transport != "auto" or self.fuse_fd is not None or not self.has_fast_lane:
            return self.transport
        wanted = os.environ.get("COWFS_TRANSPORT", "") or "auto"
        if not matches(wanted, Transport):
            raise _wrong("COWFS_TRANSPORT", wanted, TAKEN[Transport])
        return cast(Transport, wanted)

    @property
    def mapped_owner(self) -> tuple[int, int] | None:
        """The user and group that `map_owner` gives as numbers."""
        user, colon, group = (self.map_owner or "").partition(":")
        if not (colon and user.isdecimal() and group.isdecimal() and user.isascii() and group.isascii()):
            return None
        found = int(user), int(group)
        return found if max(found) <= ID_MAX else None

    @property
    def cache_path(self) -> Path:
        return Path(_absolute(self.cache_dir)) if self.cache_dir is not None else config.cache_dir()

    @property
    def meta_path(self) -> Path | None:
        return Path(_absolute(self.meta_dir)) if self.meta_dir is not None else None


def _absolute(path: str | os.PathLike[str]) -> str:
    """ "~" is the user's home, as in the URL of a store."""
    return os.path.abspath(os.path.expanduser(path))


def _whole(path: str | os.PathLike[str] | None) -> str | None:
    """The path of a file, its directory without links."""
    if path is None:
        return None
    above, name = os.path.split(_absolute(path))
    return os.path.join(os.path.realpath(above), name)


def _finite(seconds: float | None) -> float | None:
    """Limits the value to what JSON can represent."""
    return min(seconds, CACHE_UNLIMITED_S) if seconds is not None else None


def _size_bytes(name: str, value: int | str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    parsed = byte_sizes.parse_size(value) if isinstance(value, str) else None
    if parsed is None:
        raise _wrong(name, value, byte_sizes.WANTED)
    return parsed


def _wrong(name: str, value: object, wanted: str) -> InvalidInputError:
    return InvalidInputError(f"{name} is {value!r}", hint=f"{name} takes {wanted}.")
