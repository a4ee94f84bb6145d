"""The record of what `apply` and `up` of one declaring file have done on this machine, to compare
it with the file and to undo it.

    <state dir>/declared/<24 hex>.json     the hex is of the file's path
    {"format": 1, "file",
     "volumes": [{"store_url", "volume", "path", "made", "settings",         made: "created" or "registered"
                  "write_id"}],                                              of the first head of a created volume
     "mounts":  [{"mount_path", "id", "store_url", "volume", "source"}]}     id: of the registry, "" before it is known

A volume is entered by `apply`, either as created or, if it already existed, as registered. A mount
is entered if `apply` or `up` made it; mounts made in any other way are not. A mount is entered
before it is made, so that it is found again if its maker was killed.

Guarantees: the file is replaced whole and is on stable storage before a step counts as done. One
process at a time works on it (`hold_lock`); a second one is refused at once. Losing it loses no
data: the next apply registers the volumes as existing ones, and mounts are unmounted by hand. Not
here: stores, plans (`api.declared`). Format: docs/format/applied.md.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, asdict, fields, replace
from io import FileIO
from pathlib import Path
from typing import Any, Literal

from cowfs.base import config, private_directories
from cowfs.base.errors import ConflictError, CorruptError, CowfsError, UnsupportedFormatError, unusable
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.machine.state import replace_durably

FORMAT = 1
ELSEWHERE = "set COWFS_STATE_DIR."
Made = Literal["created", "registered"]
Setting = str | int | bool | None


@dataclass(frozen=True)
class AppliedVolume:
    store_url: str
    volume: str
    path: str
    made: Made
    settings: dict[str, Setting]
    write_id: str = ""


@dataclass(frozen=True)
class AppliedMount:
    mount_path: str
    id: str
    store_url: str
    volume: str
    source: str


@dataclass(frozen=True)
class Applied:
    """The record of one declaring file. Immutable: changes return a new record, and `store` writes
    it."""

    file: str
    volumes: tuple[AppliedVolume, ...] = ()
    mounts: tuple[AppliedMount, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.volumes and not self.mounts

    def with_volume(self, volume: AppliedVolume) -> Applied:
        """Replaces the entry for that volume at that path, if there is one."""
        return replace(self, volumes=(*self._others(volume), volume))

    def without_volume(self, volume: AppliedVolume) -> Applied:
        return replace(self, volumes=tuple(self._others(volume)))

    def with_mount(self, mount: AppliedMount) -> Applied:
        others = (each for each in self.mounts if each.mount_path != mount.mount_path)
        return replace(self, mounts=(*others, mount))

    def without_mount(self, mount: AppliedMount) -> Applied:
        return replace(self, mounts=tuple(each for each in self.mounts if each.mount_path != mount.mount_path))

    def _others(self, volume: AppliedVolume) -> Iterator[AppliedVolume]:
        key = (volume.store_url, volume.volume, volume.path)
        return (each for each in self.volumes if (each.store_url, each.volume, each.path) != key)

    def to_json(self) -> bytes:
        record = {
            "format": FORMAT,
            "file": self.file,
            "volumes": [asdict(each) for each in self.volumes],
            "mounts": [asdict(each) for each in self.mounts],
        }
        return json.dumps(record, indent=1).encode() + b"\n"


def load(file: Path) -> Applied:
    """The record of the file; an empty one if none is stored. CorruptError, UnsupportedFormatError,
    AccessDeniedError."""
    path = place_of(file)
    try:
        return parse(path.read_bytes(), path)
    except (FileNotFoundError, NotADirectoryError):
        return Applied(str(file))
    except OSError as error:
        raise config.inaccessible(path, error) from error


def records() -> list[Applied]:
    """The records of all files, except those that cannot be read."""
    found = []
    for path in config.list_directory(config.state_subdirectory("declared")):
        if path.suffix == ".json":
            with suppress(CowfsError, OSError):
                found.append(parse(path.read_bytes(), path))
    return found


def parse(data: bytes, path: Path) -> Applied:
    hint = f"Remove the file: volumes are registered again by the next apply, and mounts are listed by {Command('status')}."
    try:
        record: dict[str, Any] = json.loads(data)
        if record["format"] != FORMAT:
            raise UnsupportedFormatError(
                f"{path} has format {record['format']}; this cowfs reads format {FORMAT}", hint="Use a newer cowfs."
            )
        return Applied(
            str(record["file"]),
            tuple(AppliedVolume(**_pick_fields(AppliedVolume, each)) for each in record["volumes"]),
            tuple(AppliedMount(**_pick_fields(AppliedMount, each)) for each in record["mounts"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"{path} is not a record of applied files", hint=hint) from error


def _pick_fields(kind: type[AppliedVolume | AppliedMount], record: dict[str, Any]) -> dict[str, Any]:
    """The known fields of the record. Unknown ones, of a later cowfs, are ignored; missing ones, of
    an earlier cowfs, get their defaults."""
    known = fields(kind)
    return {each.name: record[each.name] for each in known if each.name in record or each.default is MISSING}


def store(applied: Applied) -> None:
    """On stable storage when this returns. Call it within `hold_lock`."""
    path = place_of(Path(applied.file))
    try:
        replace_durably(path, applied.to_json())
    except OSError as error:
        raise unusable(error, f"{path} cannot be written", elsewhere=ELSEWHERE) from error


@contextmanager
def hold_lock(file: Path) -> Iterator[None]:
    """Keeps other processes from applying, mounting, unmounting or locking what the file declares.
    ConflictError: another process is doing so."""
    path = place_of(file).with_suffix(".lock")
    lock: FileIO | None = None
    try:
        try:
            lock = _open_lock(path)
            _take(lock.fileno(), file)
            yield
        finally:
            if lock is not None:
                lock.close()
    finally:
        if lock is not None:
            lock.close()  # here, since Ctrl-C may come before any statement of the block


def _open_lock(path: Path) -> FileIO:
    try:
        private_directories.make(path.parent)
        return FileIO(path, "r+", opener=_create_file)
    except OSError as error:
        raise unusable(error, f"{path} cannot be opened", elsewhere=ELSEWHERE) from error


def _create_file(path: str, _: int) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _take(fd: int, file: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        pid = os.read(fd, 32).decode(errors="replace").strip()
        raise ConflictError(
            f"process {pid or '?'} is applying, mounting or locking what {file} declares",
            hint="Try again when it has ended.",
        ) from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)


def place_of(file: Path) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.realpath(file))).hexdigest()[:24]
    return config.state_subdirectory("declared") / f"{name}.json"
