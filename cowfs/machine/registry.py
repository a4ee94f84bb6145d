"""The registry of live mounts on this machine: one file per mount, written by its daemon.

    <state dir>/mounts/<id>.json     id, host, boot_id, pid, pid_started, mount_path, socket, store_url, store_id,
                                     volume, version_id | null, read_only, working_copy | null, since_ns, is_detached,
                                     is_scratch, is_copy, folder, sharing_key, shared_in

`MountEntry.kind` is stored as the two booleans; both are false for a mount by FUSE. The same is in
<runtime dir>/mounts, which is one for all of a user's mounts, wherever their state lies: the
daemon's runtime directory, beside its socket, whatever XDG_RUNTIME_DIR is for others.
Processes that share the mount hold a lock on the entry there (`sharing`). A folder has no daemon
that would restore the entry there, so they lock the one in the state directory; `shared_in` says
which. Beside the locked entry, an empty <id>.lasting says that `cowfs mount` requested the mount.
In both directories <id>.volume names the volume that a scratch writes to, once there is one: the
entry itself is not replaced, since it is locked. <id>.supervisor names the process that starts the
daemon again when it dies: until then the mount is paused, and counts as live.

A mount is believed while its process lives: same boot, same pid, same start time (so that a reused
pid is not mistaken for the daemon). Guarantees: an entry appears completely or not at all.
`list_mounts` removes entries of dead processes and files that do not parse, and returns the rest,
except copies without an entry in the state directory. Entries of other hosts or containers that
share the directory are neither returned nor removed, unless the machine was rebooted since
(`makers`). The entry of a dead process stays while a mount of cowfs is at its path: only the entry
knows the store of that mount (`find_dead`). It never touches a mount point itself, so a hanging
mount
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

from cowfs.base import clock, config, private_directories
from cowfs.base.errors import CowfsError
from cowfs.base.fast_dataclass import dataclass
from cowfs.machine import last_mounts, makers, mount_table, processes
from cowfs.machine.mount_table import MountKind
from cowfs.machine.processes import ProcessIdentity

ADOPTED = ".volume"
SUPERVISOR = ".supervisor"


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
    kind: MountKind = "fuse"
    """A folder has no daemon: `process` is its maker."""
    is_detached: bool = False
    """Detached from its path; its daemon serves files that are still open. Only `list_mounts` sets
    it."""
    folder: str = ""
    """The folder of the version that is mounted alone."""
    sharing_key: str = ""
    """Of a version: requests with the same key may share the mount (`MountOptions`). "": the mount
    is not shared."""
    shared_in: str = ""
    """The directory with the entry that sharing processes lock. Read it by `sharing_file`."""
    supervisor: ProcessIdentity | None = None
    """Of a mount whose daemon is dead: the process that starts it again."""
    adopted: str = ""
    """Of a scratch: the volume that its commits go to; "": none yet. Only `list_mounts` sets it."""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_live(self) -> bool:
        """Whether its daemon lives; without one, whether the machine was not rebooted since."""
        if self.has_daemon:
            return self.process.is_alive or self.is_paused
        return self.process.is_foreign or self.process.boot_id == processes.boot_id()

    @property
    def is_paused(self) -> bool:
        """Whether its daemon is dead, and is being started again."""
        return self.supervisor is not None and self.supervisor.is_alive

    @property
    def has_daemon(self) -> bool:
        """Whether a process serves it. A folder is served by the local file system."""
        return self.kind != "folder"

    @property
    def written(self) -> str:
        """The volume that it writes to; "": none."""
        if self.kind == "scratch":
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
                "is_scratch": self.kind == "scratch",
                "is_copy": self.kind == "folder",
                "folder": self.folder,
                "sharing_key": self.sharing_key,
                "shared_in": self.shared_in,
            }
        ).encode()

    @classmethod
    def from_json(cls, data: bytes) -> MountEntry | None:
        """None: the data is not an entry."""
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
                kind="scratch" if record.get("is_scratch") else "folder" if record.get("is_copy") else "fuse",
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
    kind: MountKind = "fuse",
    folder: str = "",
    sharing_key: str = "",
) -> MountEntry:
    """Enters a mount served by the calling process, or a copy that it has made, under an id from
    `new_id`.

    Call it before mounting: afterwards this process must not look at the path.
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
        kind=kind,
        folder=folder,
        sharing_key=sharing_key,
        shared_in=str(_directory() if socket is None else _mounts_directory(socket)),
    )
    enter(entry)
    return entry


def with_socket(entry: MountEntry, socket: Path) -> MountEntry:
    """The entry for the time after its daemon has begun to answer at the socket."""
    return replace(entry, socket=str(socket), shared_in=str(_mounts_directory(socket)))


def enter(entry: MountEntry) -> None:
    """Writes the entry, or replaces it. On replacement, processes that share the mount lose their
    lock, unless the disk is full."""
    for directory in _directories_of(entry):
        _place(directory / f"{entry.id}.json", entry.to_json())
    last_mounts.note(entry.store_id, entry.volume)


def adopt(entry: MountEntry) -> None:
    """Records the volume that a scratch writes to from now on."""
    for directory in _directories_of(entry):
        _place(directory / f"{entry.id}{ADOPTED}", entry.adopted.encode())


def note_supervisor(entry: MountEntry, supervisor: ProcessIdentity) -> None:
    """Records that this process starts the mount's daemon again when it dies."""
    for directory in _directories_of(entry):
        _place(directory / f"{entry.id}{SUPERVISOR}", json.dumps(supervisor.to_record()).encode())


def has_supervisor(entry: MountEntry) -> bool:
    return any((directory / f"{entry.id}{SUPERVISOR}").exists() for directory in _directories_of(entry))


def drop_supervisor(entry: MountEntry) -> None:
    """Records that none does any more."""
    for directory in {*_directories(), *_directories_of(entry)}:
        (directory / f"{entry.id}{SUPERVISOR}").unlink(missing_ok=True)


def restore(entry: MountEntry, *, is_lasting: bool) -> bool:
    """Writes missing or foreign files of an entry again: its directories may be deleted while the
    mount lives. is_lasting: whether to restore the note of `mark_lasting`. Returns whether the file
    that sharing processes lock is new."""
    parts = {".json": entry.to_json()}
    if entry.adopted:
        parts[ADOPTED] = entry.adopted.encode()
    is_new = False
    for directory in _directories_of(entry):
        for suffix, data in parts.items():
            path = directory / f"{entry.id}{suffix}"
            if _read(path) != data:
                _place(path, data)
                is_new = is_new or path == sharing_file(entry)
    if is_lasting and not _lasting_file(entry).exists():
        mark_lasting(entry)
    return is_new


def new_id() -> str:
    """An id for one mount, which names its registration and its control socket."""
    return clock.random_bytes(8).hex()


def unregister(entry: MountEntry) -> None:
    """Removes the entry, if it is still there."""
    for volume in {entry.volume, entry.written} - {""}:
        last_mounts.note(entry.store_id, volume)
    for directory in {*_directories(), sharing_file(entry).parent}:
        _remove(directory / f"{entry.id}.json")


def log_path(registration: str) -> Path:
    """The log of a version's mount (writable volumes log in their working copy); deleted with the
    entry."""
    return _directory() / f"{registration}.log"


def socket_path(registration: str) -> Path:
    """The control socket of a mount; in memory on most systems, and private to the user."""
    return config.runtime_dir() / f"{registration}.sock"


def sharing_file(entry: MountEntry) -> Path:
    """The file that processes sharing the mount lock (`sharing`); deleted with the mount."""
    return Path(entry.shared_in or _runtime_directory()) / f"{entry.id}.json"


def mark_lasting(entry: MountEntry) -> None:
    """Records that a command requested the mount: it stays until a command unmounts it, even if no
    process shares it any more."""
    _lasting_file(entry).touch()


def is_lasting(entry: MountEntry) -> bool:
    return _lasting_file(entry).exists()


def list_mounts() -> list[MountEntry]:
    """Live mounts of this user on this host, oldest first; deletes dead entries. Mounts whose
    daemon is in another pid namespace are left out. A copy has no daemon, and is listed wherever
    its folder is visible."""
    live: dict[str, MountEntry] = {}
    for path, entry in _entries():
        if entry is not None and _lacks_its_lock(entry):
            continue
        if entry is None or not entry.is_live or makers.is_of_the_past(entry.process, path):
            if entry is None or not _may_be_left(entry):
                _remove(path)
                if entry is not None:
                    last_mounts.note(entry.store_id, entry.volume)  # it has ended some time before
            continue
        if entry.kind == "scratch":
            entry = replace(entry, adopted=(_read(path.with_suffix(ADOPTED)) or b"").decode())
        if not entry.has_daemon or not entry.process.is_foreign:
            live.setdefault(entry.id, entry)
    return sorted(live.values(), key=lambda entry: (entry.since_ns, entry.id))


def find_dead(path: str) -> MountEntry | None:
    """The latest entry of a mount at this canonical path whose daemon has died."""
    left = [entry for _, entry in _entries() if entry is not None and entry.mount_path == path]
    dead = [entry for entry in left if entry.has_daemon and not (entry.is_live or entry.is_detached)]
    return max(dead, key=lambda entry: entry.since_ns, default=None)


def find_by_id(registration: str) -> MountEntry | None:
    """The live mount of that id."""
    return next((entry for entry in _list_attached() if entry.id == registration), None)


def find_by_path(path: str | Path, *, inside: bool = False) -> MountEntry | None:
    """The mount at path; with `inside`, also the innermost mount that path lies in."""
    wanted = canonical(path)
    entries = _list_attached()
    found = [entry for entry in entries if entry.mount_path == wanted]
    if not found and inside:
        found = [entry for entry in entries if wanted.startswith(entry.mount_path.rstrip("/") + "/")]
    return max(found, key=_closeness, default=None)


def _closeness(entry: MountEntry) -> tuple[int, bool, int]:
    """Orders mounts at one path: the newer one is visible; a copy of another container may have the
    same path there."""
    return len(entry.mount_path), not entry.process.is_foreign, entry.since_ns


def find_by_volume(store_id: str, volume: str) -> MountEntry | None:
    """The mount that writes to a volume on this machine: a writable one, or a scratch that has
    become the volume."""
    return next((entry for entry in find_by_name(volume) if entry.store_id == store_id), None)


def find_detached(store_url: str, volume: str) -> list[MountEntry]:
    """The mounts of a volume, writable or not, that are detached from their paths and still served,
    oldest first."""
    found = sorted((entry for entry in list_mounts() if entry.is_detached), key=lambda entry: entry.since_ns)
    return [entry for entry in found if volume == (entry.written or entry.volume) and store_url == entry.store_url]


def find_read_only(store_url: str, volume: str) -> list[MountEntry]:
    """The mounts of a volume's versions on this machine."""
    found = _list_attached()
    return [entry for entry in found if entry.read_only and (entry.store_url, entry.volume) == (store_url, volume)]


def find_shareable(store_id: str, volume: str, version_id: str, folder: str, sharing_key: str) -> list[MountEntry]:
    """The mounts of a version, or of that folder in it, that may be shared with that key."""
    wanted = (store_id, volume, version_id, folder, sharing_key)
    return [
        entry
        for entry in _list_attached()
        if (entry.store_id, entry.volume, entry.version_id, entry.folder, entry.sharing_key) == wanted
    ]


def find_by_url(store_url: str, volume: str) -> MountEntry | None:
    """As find_by_volume, for a store whose id is not known yet."""
    return next((entry for entry in find_by_name(volume) if entry.store_url == store_url), None)


def find_by_name(volume: str) -> list[MountEntry]:
    """The mounts that write to volumes of that name, in any store. Scratches come last: a mount
    beside one has taken over its volume."""
    found = [entry for entry in _list_attached() if entry.written == volume]
    return sorted(found, key=lambda entry: entry.kind == "scratch")


def canonical(path: str | Path) -> str:
    """The absolute path without symbolic links. The last component is only read as a link, never
    examined: at a mount point whose daemon hangs, stat would hang with it."""
    text = os.path.abspath(path)
    for _ in range(40):  # as many links as the kernel follows
        parent, name = os.path.split(text)
        text = os.path.join(os.path.realpath(parent), name)
        try:
            text = os.path.abspath(os.path.join(os.path.dirname(text), os.readlink(text)))
        except OSError:
            return text
    return text


def _list_attached() -> list[MountEntry]:
    return [entry for entry in list_mounts() if not entry.is_detached]


def _entries() -> Iterator[tuple[Path, MountEntry | None]]:
    """The files of all entries, latest first; None for a file that is not an entry."""
    for path in (
        path for directory in _directories() for path in config.list_directory(directory) if path.suffix == ".json"
    ):
        try:
            yield path, _with_supervisor(path, MountEntry.from_json(path.read_bytes()))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise config.inaccessible(path, error) from error


def _with_supervisor(path: Path, entry: MountEntry | None) -> MountEntry | None:
    if entry is None or not entry.has_daemon or entry.process.is_alive:
        return entry
    try:
        noted = _read(path.with_suffix(SUPERVISOR))
        return entry if noted is None else replace(entry, supervisor=ProcessIdentity.from_record(json.loads(noted)))
    except (ValueError, KeyError, TypeError):
        return entry


def _may_be_left(entry: MountEntry) -> bool:
    """Whether a mount may still be at its path, although its process is dead."""
    if not entry.has_daemon or entry.is_detached or entry.process.boot_id != processes.boot_id():
        return False
    mount = mount_table.mount_at(entry.mount_path)
    return mount is not None and mount.is_cowfs


def _lacks_its_lock(entry: MountEntry) -> bool:
    """Whether it is the entry of a folder whose mount has ended, or whose state directory lost the
    entry, as in a crash: no daemon restores the file that its sharers lock."""
    if entry.has_daemon or not entry.shared_in or entry.process.is_foreign:
        return False
    try:
        sharing_file(entry).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # cannot be determined
        return False
    return False


def _lasting_file(entry: MountEntry) -> Path:
    return sharing_file(entry).with_suffix(".lasting")


def _place(path: Path, data: bytes) -> None:
    """Writes the file completely or not at all. On a full disk the data replaces that of the
    existing file, padded with spaces; it fails if the data is longer."""
    private_directories.make(path.parent)
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
            file.write(data.ljust(path.stat().st_size))  # in one call: a damaged entry is deleted


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes().rstrip(b" ")  # see `_place`
    except FileNotFoundError:
        return None


def _directory() -> Path:
    return config.state_subdirectory("mounts")


def _runtime_directory() -> Path:
    return config.runtime_dir() / "mounts"


def _mounts_directory(socket: Path) -> Path:
    return socket.parent / "mounts"


def _directories_of(entry: MountEntry) -> tuple[Path, Path]:
    return _directory(), _mounts_directory(Path(entry.socket)) if entry.socket else _runtime_directory()


def _directories() -> Iterator[Path]:
    """Directories that may hold entries, the last one written to first."""
    yield _directory()
    with contextlib.suppress(CowfsError, OSError):
        yield _runtime_directory()


def _remove(entry_path: Path) -> None:
    entry_path.unlink(missing_ok=True)
    for suffix in (".log", ".lasting", ADOPTED, SUPERVISOR):
        entry_path.with_suffix(suffix).unlink(missing_ok=True)
