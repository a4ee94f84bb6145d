"""The registry of live mounts on this machine: one file per mount, written by its daemon.

    <state dir>/mounts/<id>.json     id, host, boot_id, pid, pid_started, mount_path, socket, store_url, store_id,
                                     volume, version_id | null, read_only, working_copy | null, since_ns, is_detached,
                                     is_scratch, is_copy, folder, sharing_key, shared_in

and the same in <runtime dir>/mounts, which is one for all of a user's mounts, wherever their state
lies: the daemon's, beside its socket, whatever others have in XDG_RUNTIME_DIR. Processes that share
the mount hold a lock on the entry there (`sharing`), or of a copy, which has no daemon that would
make it again, on that in the state directory; `shared_in` says where. There an empty <id>.lasting
says that `cowfs mount` was asked for the mount. In both <id>.volume names the volume that a scratch
writes to, once it does: the entry itself is not replaced, since locks are held on it.

A mount is believed while its process lives: same boot, same pid, same start time (so that a reused
pid is not mistaken for the daemon). Guarantees: an entry appears whole or not at all; `list_mounts`
removes entries of dead processes and files that do not parse, and returns the rest, but for those
of copies that the state directory has not got any more; entries of other hosts or containers that
share the directory are neither returned nor removed, unless the machine was started anew since
(`makers`). The entry of a dead process stays while there is a mount of cowfs at its path: it alone
says of which store that is (`find_dead`). It never touches a mount point itself, so a hanging mount
cannot hang it. Not here: detaching mounts whose daemon died (the next mount does), asking daemons
anything (control).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cowfs import clock, config
from cowfs.errors import CowfsError
from cowfs.machine import makers, mount_table, processes
from cowfs.machine.processes import ProcessIdentity
from cowfs.values import dataclass

ADOPTED = ".volume"


@dataclass(frozen=True)
class MountEntry:
    """One live mount. version_id is set for mounts of a version, working_copy for writable ones; a
    scratch has both."""

    id: str
    process: ProcessIdentity
    mount_path: str
    socket: str
    store_url: str
    store_id: str
    volume: str
    version_id: str | None
    read_only: bool
    working_copy: str | None
    since_ns: int
    is_scratch: bool = False
    is_copy: bool = False
    """A folder of plain files (`copies`): nobody serves it, and `process` is who made it."""
    is_detached: bool = False
    """Taken off its path; its daemon serves files that are still open. Only `list_mounts` knows
    it."""
    folder: str = ""
    """Of the version, which is mounted alone."""
    sharing_key: str = ""
    """Of a version: who asks for it with the same key may share the mount (`MountOptions`). "":
    nobody."""
    shared_in: str = ""
    """The directory whose entry of it processes lock that share it. Read it by `shared_file`."""
    adopted: str = ""
    """Of a scratch: the volume that its commits go to; "": none yet. Only `list_mounts` knows
    it."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_live(self) -> bool:
        """Whether its daemon lives; of a copy, whether the machine was not started anew."""
        if self.is_copy:
            return self.process.is_foreign or self.process.boot_id == processes.boot_id()
        return self.process.is_alive

    @property
    def written(self) -> str:
        """The volume that it writes to; "": none."""
        if self.is_scratch:
            return self.adopted
        return "" if self.read_only else self.volume

    def to_json(self) -> bytes:
        return json.dumps(
            {
                "id": self.id,
                **self.process.to_record(),
                "mount_path": self.mount_path,
                "socket": self.socket,
                "store_url": self.store_url,
                "store_id": self.store_id,
                "volume": self.volume,
                "version_id": self.version_id,
                "read_only": self.read_only,
                "working_copy": self.working_copy,
                "since_ns": self.since_ns,
                "is_detached": self.is_detached,
                "is_scratch": self.is_scratch,
                "is_copy": self.is_copy,
                "folder": self.folder,
                "sharing_key": self.sharing_key,
                "shared_in": self.shared_in,
            }
        ).encode()

    @classmethod
    def from_json(cls, data: bytes) -> MountEntry | None:
        """None for anything that is not an entry."""
        try:
            record: dict[str, Any] = json.loads(data)
            return cls(
                id=str(record["id"]),
                process=ProcessIdentity.from_record(record),
                mount_path=str(record["mount_path"]),
                socket=str(record["socket"]),
                store_url=str(record["store_url"]),
                store_id=str(record["store_id"]),
                volume=str(record["volume"]),
                version_id=record["version_id"],
                read_only=bool(record["read_only"]),
                working_copy=record["working_copy"],
                since_ns=int(record["since_ns"]),
                is_detached=bool(record.get("is_detached", False)),
                is_scratch=bool(record.get("is_scratch", False)),
                is_copy=bool(record.get("is_copy", False)),
                folder=str(record.get("folder", "")),
                sharing_key=str(record.get("sharing_key", "")),
                shared_in=str(record.get("shared_in", "")),
            )
        except (ValueError, KeyError, TypeError):
            return None


def register(
    registration: str,
    *,
    mount_path: Path,
    socket: Path | None,
    store_url: str,
    store_id: str,
    volume: str,
    version_id: str | None,
    read_only: bool,
    working_copy: Path | None,
    is_scratch: bool = False,
    is_copy: bool = False,
    folder: str = "",
    sharing_key: str = "",
) -> MountEntry:
    """Enters a mount served by the calling process, or a copy that it has made, under an id from
    `new_id`.

    Call it before mounting: afterwards the path must not be looked at.
    """
    entry = MountEntry(
        id=registration,
        process=processes.this_process(),
        mount_path=canonical(mount_path),
        socket=str(socket) if socket is not None else "",
        store_url=store_url,
        store_id=store_id,
        volume=volume,
        version_id=version_id,
        read_only=read_only,
        working_copy=str(working_copy) if working_copy else None,
        since_ns=clock.now_ns(),
        is_scratch=is_scratch,
        is_copy=is_copy,
        folder=folder,
        sharing_key=sharing_key,
        shared_in=str(_directory() if socket is None else _beside(socket)),
    )
    enter(entry)
    return entry


def moved(entry: MountEntry, socket: Path) -> MountEntry:
    """As it is entered once its daemon answers there."""
    return replace(entry, socket=str(socket), shared_in=str(_beside(socket)))


def enter(entry: MountEntry) -> None:
    """Enters it, or enters it anew. Processes that share the mount lose it then, unless the disk is
    full."""
    for directory in _directories_of(entry):
        _place(directory / f"{entry.id}.json", entry.to_json())


def adopt(entry: MountEntry) -> None:
    """Notes which volume a scratch writes to from now on."""
    for directory in _directories_of(entry):
        _place(directory / f"{entry.id}{ADOPTED}", entry.adopted.encode())


def restore(entry: MountEntry, *, is_lasting: bool) -> bool:
    """Writes what is gone of an entry again, or was of another one: its directories may be removed
    while the mount lives. is_lasting: as `mark_lasting` notes. Whether what its sharers lock is
    new."""
    parts = {".json": entry.to_json()}
    if entry.adopted:
        parts[ADOPTED] = entry.adopted.encode()
    is_new = False
    for directory in _directories_of(entry):
        for suffix, data in parts.items():
            path = directory / f"{entry.id}{suffix}"
            if _read(path) != data:
                _place(path, data)
                is_new = is_new or path == shared_file(entry)
    if is_lasting and not _lasting_file(entry).exists():
        mark_lasting(entry)
    return is_new


def new_id() -> str:
    """An id for one mount: names its registration and its control socket."""
    return clock.random_bytes(8).hex()


def unregister(entry: MountEntry) -> None:
    """Removes the entry; it may be gone already."""
    for directory in {*_directories(), shared_file(entry).parent}:
        _remove(directory / f"{entry.id}.json")


def log_path(registration: str) -> Path:
    """Where a mount of a version logs (writable volumes log in their working copy); it goes with
    the entry."""
    return _directory() / f"{registration}.log"


def socket_path(registration: str) -> Path:
    """Where a mount answers control requests; in memory on most systems, and private to the
    user."""
    return config.runtime_dir() / f"{registration}.sock"


def shared_file(entry: MountEntry) -> Path:
    """What processes that share the mount hold a lock on (`sharing`); it goes with the mount."""
    return Path(entry.shared_in or _runtime_directory()) / f"{entry.id}.json"


def mark_lasting(entry: MountEntry) -> None:
    """Notes that somebody has asked for the mount by command: it stays until it is unmounted by
    command, whoever else is done with it."""
    _lasting_file(entry).touch()


def is_lasting(entry: MountEntry) -> bool:
    return _lasting_file(entry).exists()


def list_mounts() -> list[MountEntry]:
    """Live mounts of this user on this host, oldest first; sweeps dead entries. Without those whose
    daemon is in another pid namespace; a copy has none, and is there for all that see its
    folder."""
    live: dict[str, MountEntry] = {}
    for path, entry in _entries():
        if entry is not None and _lacks_its_lock(entry):
            continue
        if entry is None or not entry.is_live or makers.is_of_the_past(entry.process, path):
            if entry is None or not _may_be_left(entry):
                _remove(path)
            continue
        if entry.is_scratch:
            entry = replace(entry, adopted=(_read(path.with_suffix(ADOPTED)) or b"").decode())
        if entry.is_copy or not entry.process.is_foreign:
            live.setdefault(entry.id, entry)
    return sorted(live.values(), key=lambda entry: (entry.since_ns, entry.id))


def find_dead(path: str) -> MountEntry | None:
    """What was entered last of a mount at this canonical path whose daemon has died."""
    left = [entry for _, entry in _entries() if entry is not None and entry.mount_path == path]
    dead = [entry for entry in left if not (entry.is_live or entry.is_copy or entry.is_detached)]
    return max(dead, key=lambda entry: entry.since_ns, default=None)


def find_by_id(registration: str) -> MountEntry | None:
    """The live mount of that id."""
    return next((entry for entry in _at_their_paths() if entry.id == registration), None)


def find_by_path(path: str | Path, *, inside: bool = False) -> MountEntry | None:
    """The mount at path; with `inside`, also the innermost mount that path lies in."""
    wanted = canonical(path)
    entries = _at_their_paths()
    found = [entry for entry in entries if entry.mount_path == wanted]
    if not found and inside:
        found = [entry for entry in entries if wanted.startswith(entry.mount_path.rstrip("/") + "/")]
    return max(found, key=_closeness, default=None)


def _closeness(entry: MountEntry) -> tuple[int, bool, int]:
    """Of two mounts over each other the newer one is seen; a copy of another container may have the
    same path there."""
    return len(entry.mount_path), not entry.process.is_foreign, entry.since_ns


def find_by_volume(store_id: str, volume: str) -> MountEntry | None:
    """The mount that writes to a volume on this machine: a writable one, or a scratch that has
    become the volume."""
    return next((entry for entry in find_by_name(volume) if entry.store_id == store_id), None)


def find_detached(store_url: str, volume: str) -> list[MountEntry]:
    """The mounts of a volume, writable or not, that are off their paths and served still, the
    oldest first."""
    found = sorted((entry for entry in list_mounts() if entry.is_detached), key=lambda entry: entry.since_ns)
    return [entry for entry in found if volume == (entry.written or entry.volume) and store_url == entry.store_url]


def find_read_only(store_url: str, volume: str) -> list[MountEntry]:
    """The mounts of a volume's versions on this machine."""
    found = _at_their_paths()
    return [entry for entry in found if entry.read_only and (entry.store_url, entry.volume) == (store_url, volume)]


def find_shareable(store_id: str, volume: str, version_id: str, folder: str, sharing_key: str) -> list[MountEntry]:
    """The mounts of a version, or of that folder of it, that whoever has the key may share."""
    wanted = (store_id, volume, version_id, folder, sharing_key)
    return [
        entry
        for entry in _at_their_paths()
        if (entry.store_id, entry.volume, entry.version_id, entry.folder, entry.sharing_key) == wanted
    ]


def find_by_url(store_url: str, volume: str) -> MountEntry | None:
    """As find_by_volume, for a store that nobody has asked for its id yet."""
    return next((entry for entry in find_by_name(volume) if entry.store_url == store_url), None)


def find_by_name(volume: str) -> list[MountEntry]:
    """The mounts that write to volumes of that name, in whatever store they are. Scratches come
    last: a mount beside one has taken the volume over from it."""
    return sorted((entry for entry in _at_their_paths() if entry.written == volume), key=lambda entry: entry.is_scratch)


def canonical(path: str | Path) -> str:
    """Absolute path without symbolic links. The last component is only read as a link, never
    examined: on a mount point whose daemon hangs, stat would hang with it."""
    text = os.path.abspath(path)
    for _ in range(40):  # as many links as the kernel follows
        parent, name = os.path.split(text)
        text = os.path.join(os.path.realpath(parent), name)
        try:
            text = os.path.abspath(os.path.join(os.path.dirname(text), os.readlink(text)))
        except OSError:
            return text
    return text


def _at_their_paths() -> list[MountEntry]:
    return [entry for entry in list_mounts() if not entry.is_detached]


def _entries() -> Iterator[tuple[Path, MountEntry | None]]:
    """All files of entries, the ones written last first; None for what is no entry."""
    for path in (path for directory in _directories() for path in config.listed(directory) if path.suffix == ".json"):
        try:
            yield path, MountEntry.from_json(path.read_bytes())
        except FileNotFoundError:
            continue
        except OSError as error:
            raise config.inaccessible(path, error) from error


def _may_be_left(entry: MountEntry) -> bool:
    """Whether a mount may be at its path still, although its process is dead."""
    if entry.is_copy or entry.is_detached or entry.process.boot_id != processes.boot_id():
        return False
    mount = mount_table.mount_at(entry.mount_path)
    return mount is not None and mount.is_cowfs


def _lacks_its_lock(entry: MountEntry) -> bool:
    """Whether it is of a copy, and left of one that has ended, or whose state directory lost the
    entry, as in a crash: nobody would make what its sharers lock again."""
    if not entry.is_copy or not entry.shared_in or entry.process.is_foreign:
        return False
    try:
        shared_file(entry).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # nobody can tell
        return False
    return False


def _lasting_file(entry: MountEntry) -> Path:
    return shared_file(entry).with_suffix(".lasting")


def _place(path: Path, data: bytes) -> None:
    """Whole or not at all. Where the disk has no room for another file it goes into the one that
    is there, with spaces behind it; not if it is longer."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f"{path.name}.new")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not (is_full and path.exists() and path.stat().st_size >= len(data)):
            raise
        with path.open("r+b", buffering=0) as file:
            file.write(data.ljust(path.stat().st_size))  # in one step: what is damaged is swept


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes().rstrip(b" ")  # see `_place`
    except FileNotFoundError:
        return None


def _directory() -> Path:
    return config.state_dir() / "mounts"


def _runtime_directory() -> Path:
    return config.runtime_dir() / "mounts"


def _beside(socket: Path) -> Path:
    return socket.parent / "mounts"


def _directories_of(entry: MountEntry) -> tuple[Path, Path]:
    return _directory(), _beside(Path(entry.socket)) if entry.socket else _runtime_directory()


def _directories() -> Iterator[Path]:
    """Where entries may be, the ones written last first."""
    yield _directory()
    with contextlib.suppress(CowfsError, OSError):
        yield _runtime_directory()
    if (earlier := config.earlier_state_dir()) is not None:
        yield earlier / "mounts"


def _remove(entry_path: Path) -> None:
    entry_path.unlink(missing_ok=True)
    for suffix in (".log", ".lasting", ADOPTED):
        entry_path.with_suffix(suffix).unlink(missing_ok=True)
