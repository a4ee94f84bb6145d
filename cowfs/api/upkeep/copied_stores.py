"""Handles stores that were copied object by object: a copy has the id of its original.

Mounts and uncommitted work of a volume on this machine are found by the store's id, because one
store may be reachable by several URLs. If a store and its copy both exist, the owner of such a
mount or work must be determined. Two stores are reported as distinct only if they are directories
and this is certain: both exist, have the same record, lie on file systems that only this kernel can
have mounted (`mount_table.is_local`), and differ by device and inode. Two buckets, prefixes or
endpoints may always lead to one store, or to its new location.

No request is made, and other file systems are not accessed, because they may not answer.
"""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.base.errors import CowfsError, InvalidStateError
from cowfs.base.hints import Command
from cowfs.format import keys
from cowfs.format.store_url import StoreUrl
from cowfs.machine import mount_table, registry
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy

if TYPE_CHECKING:
    from cowfs.api.access.file_session import FileSession
    from cowfs.api.stores import OpenStore


def is_same(one: OpenStore, other: OpenStore) -> bool:
    """Whether two open stores may be the same store, reached in two ways."""
    return one.record.store_id == other.record.store_id and not are_apart(one.url, other.url)


def find_mount(store: OpenStore, volume: str) -> MountEntry | None:
    """As `registry.find_by_volume`, without mounts of a store that is the original or a copy of
    this one."""
    so_named = (each for each in registry.find_by_name(volume) if each.store_id == store.record.store_id.hex())
    return next((each for each in so_named if not are_apart(each.store_url, store.url)), None)


def locate(store: OpenStore, volume: str, *, meta_dir: Path | None = None) -> WorkingCopy:
    """As `WorkingCopy.locate`. InvalidStateError: the working copy there belongs to another
    store."""
    found = WorkingCopy.locate(
        store.record.store_id,
        volume,
        meta_dir=meta_dir,
        is_others=lambda copy: _original(copy, store) is not None,
    )
    require_of(store, found)
    return found


def known(store: OpenStore, volume: str) -> list[WorkingCopy]:
    """As `WorkingCopy.list_places`, without those of a store that is the original or a copy of this
    one."""
    return [each for each in WorkingCopy.list_places(store.record.store_id, volume) if _original(each, store) is None]


def require_of(store: OpenStore, working_copy: WorkingCopy) -> None:
    """InvalidStateError: the working copy belongs to another store. A working copy that is unused
    and has no work belongs to no store."""
    url = _original(working_copy, store)
    is_used = working_copy.is_kept or working_copy.holder() is not None or working_copy.copy is not None
    if url is None or not is_used:
        return
    name, path = working_copy.volume, working_copy.path
    named = f"--store {shlex.quote(url)}"
    raise InvalidStateError(
        f"what this machine works on as volume {name!r}, in {path}, is of the store {url}; {store.url} is another place, "
        "with a copy of that store, which has its id",
        hint=f"Name the store that is meant ({named}, store=). To work on the volume of {store.url}, commit the other work first "
        f"({Command('commit', name, '--store', url)}, commit()) and unmount it, or mount with a meta_dir "
        f"(--meta-dir) of its own. If {store.url} "
        f"is to take the place of {url}, move that one away. A copy that a push makes has an id of its own.",
        details={"working_copy": str(path), "store_url": url},
    )


def require_session_of(store: OpenStore, held: FileSession, volume: str) -> None:
    """InvalidStateError: the process's session belongs to another store."""
    if are_apart(held.store_url, store.url):
        raise InvalidStateError(
            f"this process has volume {volume!r} of the store {held.store_url} open; {store.url} is another place, with a copy of "
            "that store, which has its id",
            hint="End that first (unmount() of the volume that it was opened with), or use another process.",
            details={"store_url": held.store_url},
        )


def _original(working_copy: WorkingCopy, store: OpenStore) -> str | None:
    """The store that owns the work, if that is another place."""
    with suppress(CowfsError):
        url = working_copy.state.store_url if working_copy.exists else store.url
        if are_apart(url, store.url):
            return url
    return None


def are_apart(one: str, other: str) -> bool:
    """Whether two URLs of stores with the same id certainly lead to two places."""
    if one == other:
        return False
    a, b = StoreUrl.parse(one), StoreUrl.parse(other)
    return a.protocol == b.protocol == "file" and _are_two_directories(f"/{a.path}", f"/{b.path}")


def _are_two_directories(one: str, other: str) -> bool:
    with suppress(OSError, CowfsError):
        if not (mount_table.seems_local(one) and mount_table.seems_local(other)):
            return False
        fds = [os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) for path in (one, other)]
        try:
            found, its = (os.fstat(fd) for fd in fds)
            if (found.st_dev, found.st_ino) == (its.st_dev, its.st_ino) or not all(map(mount_table.is_local, fds)):
                return False
        finally:
            for fd in fds:
                os.close(fd)
        # Another record: the former store is gone, and may be the named one.
        return Path(one, keys.STORE).read_bytes() == Path(other, keys.STORE).read_bytes()
    return False
