"""Stores that were copied object by object: a copy has the id of its original.

What this machine has of a volume, mounts and uncommitted work, is found by the store's id, since
one store may be reached by several URLs. So it must be told whose it is where a store and its copy
are both there. That they are two is said of directories alone, and where it is certain: both are
there, have the same record, lie on file systems that only this kernel can have mounted
(`mount_table.is_local`), and are not one by device and inode. Two buckets, prefixes or endpoints
may always lead to one store, or be where it has moved to.

No request is made, and what lies on other file systems is not touched: it may not answer.
"""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.errors import CowfsError, InvalidStateError
from cowfs.format import keys
from cowfs.format.store_url import StoreUrl
from cowfs.machine import mount_table, registry
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy

if TYPE_CHECKING:
    from cowfs.api.file_session import FileSession
    from cowfs.api.stores import OpenStore


def is_same(one: OpenStore, other: OpenStore) -> bool:
    """Whether two open stores may be one, reached in two ways."""
    return one.record.store_id == other.record.store_id and not are_apart(one.url, other.url)


def find_mount(store: OpenStore, volume: str) -> MountEntry | None:
    """As `registry.find_by_volume`, without mounts of a store of which this one is a copy."""
    so_named = (each for each in registry.find_by_name(volume) if each.store_id == store.record.store_id.hex())
    return next((each for each in so_named if not are_apart(each.store_url, store.url)), None)


def locate(store: OpenStore, volume: str, *, meta_dir: Path | None = None) -> WorkingCopy:
    """As `WorkingCopy.locate`. InvalidStateError: what is there is the work of another store."""
    found = WorkingCopy.locate(
        store.record.store_id,
        volume,
        meta_dir=meta_dir,
        is_others=lambda copy: _original(copy, store) is not None,
    )
    require_of(store, found)
    return found


def known(store: OpenStore, volume: str) -> list[WorkingCopy]:
    """As `WorkingCopy.known`, without those of a store of which this one is a copy."""
    return [each for each in WorkingCopy.known(store.record.store_id, volume) if _original(each, store) is None]


def require_of(store: OpenStore, working_copy: WorkingCopy) -> None:
    """InvalidStateError: it is that of another store. One that is not used, and has no work, is
    nobody's."""
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
        f"(`cowfs commit {name} {named}`, commit()) and unmount it, or mount with a meta_dir (--meta-dir) of its own. If {store.url} "
        f"is to take the place of {url}, move that one away. A copy that a push makes has an id of its own.",
        details={"working_copy": str(path), "store_url": url},
    )


def require_session_of(store: OpenStore, held: FileSession, volume: str) -> None:
    """InvalidStateError: the process's session is that of another store."""
    if are_apart(held.store_url, store.url):
        raise InvalidStateError(
            f"this process has volume {volume!r} of the store {held.store_url} open; {store.url} is another place, with a copy of "
            "that store, which has its id",
            hint="End that first (unmount() of the volume that it was opened with), or use another process.",
            details={"store_url": held.store_url},
        )


def _original(working_copy: WorkingCopy, store: OpenStore) -> str | None:
    """The store whose work it is, if that is another place."""
    with suppress(CowfsError):
        url = working_copy.state.store_url if working_copy.exists else store.url
        if are_apart(url, store.url):
            return url
    return None


def are_apart(one: str, other: str) -> bool:
    """Whether two URLs of stores of one id certainly lead to two places."""
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
        # Another record: the store that was there has gone, and may be the one that is named.
        return Path(one, keys.STORE).read_bytes() == Path(other, keys.STORE).read_bytes()
    return False
