"""The specification of a mount daemon: one JSON document on its standard input.

`api` writes it, `python -m cowfs.daemon` reads it. It is strict both ways: an unknown field, a
missing one or a value of the wrong type is refused, so that a newer caller and an older daemon
notice each other. It holds no credentials: the daemon gets those from the environment it inherits.
The tuning of the mount is one field, `options`; code that passes it on names none of them.
"""

from __future__ import annotations

import json
import os
from typing import Any, Literal

from cowfs.base.errors import InvalidInputError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.control.binding import Binding
from cowfs.control.options import CACHE_DEFAULT_S, CACHE_UNLIMITED_S, MountOptions
from cowfs.control.typed import field_types, from_json, matches, to_json
from cowfs.machine.mount_table import MountKind

SPEC_FORMAT = 2


@dataclass(frozen=True, kw_only=True)
class SessionSpec:
    """What defines an opened volume or version, with or without a kernel. Paths are absolute.

    options        `MountOptions.resolved`: a daemon has another working directory, and perhaps another environment.
                   Those that concern the kernel count for mounts only
    mode           "rw": a volume; "ro": a version; "scratch": a writable version whose changes are not kept
    working_copy   directory of the working copy; given for "rw" and "scratch", None for "ro"
    folder         for "ro": the directory of the version that is its root here; "" for all of it. Bytes that are not UTF-8
                   as surrogates
    version        64 hex digits for "ro" and "scratch", None if the volume has no versions yet; None for "rw", where the
                   working copy knows its base
    head_number    for "rw": of the head that the caller saw last, where the daemon looks first; 0 if it saw none
    head_version   that head's version, 64 hex digits; None if it has none
    lease_epoch    for "rw": of the volume's lease that the caller saw last, 0 if there was none; None if it did not look
    quota_bytes    for "rw": of the volume, 0 if it has none; None if the caller did not look
    compress       for "rw": whether contents are compressed; None if the caller did not look
    """

    store_url: str
    volume: str
    mode: Literal["rw", "ro", "scratch"]
    options: MountOptions
    working_copy: str | None = None
    version: str | None = None
    folder: str = ""
    head_number: int = 0
    head_version: str | None = None
    lease_epoch: int | None = None
    quota_bytes: int | None = None
    compress: bool | None = None

    def __post_init__(self) -> None:
        own: Any = type(self)
        for name, kind in field_types(own).items():
            if not matches(getattr(self, name), kind):
                raise _bad(f"{name} has the wrong type: {getattr(self, name)!r}")
        if not self.options.is_resolved:
            raise _bad("its options are not resolved")
        self._check_paths("working_copy")
        if self.is_read_only == (self.working_copy is not None):
            raise _bad("a writable mount needs a working copy, a read-only one has none")
        if self.mode == "rw" and self.version is not None:
            raise _bad("a mount of a volume has no version")
        if self.folder and (not self.is_read_only or self.version is None):
            raise _bad("only a read-only mount of a version may be one of a folder")
        if self.version is not None:
            VersionId.from_hex(self.version)

    @property
    def is_read_only(self) -> bool:
        return self.mode == "ro"

    @property
    def kind(self) -> MountKind:
        return "scratch" if self.mode == "scratch" else "fuse"

    @property
    def place(self) -> str:
        """The place of the work, as shown to other writers."""
        return f"process {os.getpid()}, without a mount"

    def _check_paths(self, *names: str) -> None:
        for name in names:
            path = getattr(self, name)
            if path is not None and not path.startswith("/"):
                raise _bad(f"{name} is not an absolute path: {path!r}")


@dataclass(frozen=True, kw_only=True)
class MountSpec(SessionSpec):
    """One mount, complete. Fields without a default must be given.

    source         what the user named (NAME, NAME@TAG, locator): for `status`, never parsed
    registration   id of this mount in the registry (machine.registry)
    socket         its control socket; the directory must be private to the user
    log            file that gets the daemon's log once it has detached
    binding        the process that the mount ends with; None: it does not end with a process
    """

    source: str
    mount_path: str
    registration: str
    socket: str
    log: str
    binding: Binding | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_paths("mount_path", "socket", "log")
        if self.is_read_only and self.version is None:
            raise _bad("a mount of a version needs one")
        for path in (self.options.record, self.options.replay):
            if path is not None and os.path.join(path, "").startswith(os.path.join(self.mount_path, "")):
                raise InvalidInputError(
                    f"the profile {path} is inside the mount that it is for", hint="Choose a file outside of it."
                )

    @property
    def place(self) -> str:
        return self.mount_path

    def cache_s(self, name: Literal["attr_cache", "entry_cache", "dir_entry_cache"]) -> float:
        """The cache time the mount uses: the value given, else the mode's default."""
        value: float | None = getattr(self.options, name)
        if value is None:
            return CACHE_UNLIMITED_S if self.is_read_only else CACHE_DEFAULT_S
        return value

    def to_json(self) -> str:
        return json.dumps({"format": SPEC_FORMAT, **to_json(self)}, allow_nan=False)

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
        return from_json(cls, record, "it")


def _bad(reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"the mount daemon cannot use its mount specification: {reason}",
        hint=f"Specifications are written by {Command('mount')} and Volume.mount of the same version.",
    )
