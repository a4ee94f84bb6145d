"""Where mounts go and what every mount specification has in common.

The default is one directory per volume under ~/cowfs: made when it is needed, removed again when
its mount is gone, so that nothing is written below it by mistake. A path the user gave is the
user's: the daemon makes it if only its last component is missing, and it stays. Not here: judging
the path in full (the daemon does, just before it mounts).
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from cowfs import apart, clock, config
from cowfs.api.path_errors import NothingThere, errors_of_ours
from cowfs.control import live_mount
from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    NotFoundError,
    unusable,
)
from cowfs.ids import StoreId
from cowfs.machine import copies, dead_mounts, mount_table, mounting, proc, registry, reservation, sharing, working_copy
from cowfs.machine.copies import Copy
from cowfs.machine.registry import MountEntry

Find = Callable[[], MountEntry | None]
"""Says which mount there is now, at its path and where it is asked for."""

ENDING_S = 90.0
"""As machine.lock has it."""
PAUSE_S = 0.05


def default_root() -> Path:
    return config.home_dir() / "cowfs"


@contextmanager
def chosen(given: str | os.PathLike[str] | None, name: str, store_id: StoreId) -> Iterator[str]:
    """The canonical path to mount on; a default one that the block fails to use is removed
    again."""
    if given is not None:
        path = checked(given)
        if path in _folders_of_copies():
            raise ConflictError(
                f"{path} is the folder of a copy",
                hint=f"Choose another path, or unmount the copy (`cowfs unmount {shlex.quote(path)}`, unmount()); "
                "`cowfs status` shows its work.",
            )
        with reservation.reserved(path) if _is_default(path) else contextlib.nullcontext():
            yield path
        return
    with reservation.first_free(_defaults(name, store_id)) as free:
        path = free or f"{registry.canonical(default_root() / name)}-{registry.new_id()}"
        try:
            yield path
        except BaseException:
            _remove(path)
            raise


def check(given: str | os.PathLike[str] | None) -> None:
    """Refuses, before anything is claimed in a store, a path that can't be mounted on because its
    parent is missing, or no directory, or out of reach, as in a mount whose daemon has died; and
    any where /proc is not ours."""
    proc.require_own()
    if given is None:
        return
    parent = os.path.dirname(checked(given))
    require_alive(parent)
    with errors_of_ours(parent, ""), NothingThere():
        os.stat(parent)
    found = next(path for path in (Path(parent), *Path(parent).parents) if os.path.lexists(path))
    if not found.is_dir():
        raise InvalidInputError(f"{found} is not a directory", hint="Choose a path below one.")
    if str(found) != parent:
        raise NotFoundError(f"{parent} does not exist", hint=f"Make it first: mkdir -p {shlex.quote(parent)}")


def require_alive(path: str) -> None:
    """InvalidStateError for a canonical path in a mount whose daemon has died."""
    if (dead := dead_mounts.find_around(path)) is not None:
        quoted = shlex.quote(dead.path)
        raise InvalidStateError(
            f"the daemon of the mount {dead.path} has died; what was written to a volume there is in its working copy",
            hint=f"`cowfs unmount {quoted}` takes it off; mount() of its volume, there or elsewhere, brings uncommitted work back.",
        )


def turn(what: str, find: Find) -> AbstractContextManager[bool]:
    """Of several threads and processes of this user that mount a volume or version at the same
    moment, one at a time: the others then find its mount. False: it may be found, but not made."""
    return reservation.turn(what, lambda: find() is not None, doing="mounts this volume")


def shared(find: Find, join: Callable[[MountEntry], bool]) -> MountEntry | None:
    """The mount that is found, shared from now on (join). One that is not ready yet, or that the
    last of its users ends at this moment, is waited for."""
    end_s = clock.monotonic_s() + ENDING_S
    while clock.monotonic_s() < end_s and (entry := find()) is not None:
        if not entry.is_copy and live_mount.is_dying(entry):
            continue
        if join(entry):
            return entry
        apart.require_wanted()
        clock.sleep_s(PAUSE_S)
    return None


def leave(*paths: str | None) -> None:
    """After mounts at these paths have ended, or their daemons have died: nothing of ours stays
    there. A mount whose descriptor was handed in is left to whoever made it, where this process may
    not unmount it."""
    for path in paths:
        if path is not None and registry.find_by_path(path) is None:
            if (dead := dead_mounts.find_at(path)) is not None and mounting.may_unmount(dead):
                mounting.unmount(dead, lazy=True)
            remove_default(path)


def is_same(entry: MountEntry, given: str | os.PathLike[str] | None) -> bool:
    """Whether the mount is where it is asked for."""
    return given is None or checked(given) == entry.mount_path


def same(entry: MountEntry, given: str | os.PathLike[str] | None) -> Path:
    """The path of a mount that exists already; InvalidStateError when another one is asked for."""
    if not is_same(entry, given):
        raise InvalidStateError(
            f"this volume is mounted at {entry.mount_path} already",
            hint="Unmount it first, or use the path it has.",
        )
    return Path(entry.mount_path)


def require_unshared(entry: MountEntry) -> None:
    """ConflictError while other processes share the mount, or its daemon is beginning or ending it.
    Else others are kept away, until `sharing.forget` or `keep`."""
    if sharing.is_alone(entry):
        return
    others = sharing.others(entry)
    if others == [entry.pid]:
        raise ConflictError(
            f"the mount at {entry.mount_path} is being made, or ended, by its process {entry.pid}",
            hint="Try again in a moment. To end it now all the same, unmount it with force (force=True, --force).",
        )
    pids = ", ".join(map(str, others))
    stays = "It goes when the last of them unmounts, finalizes or ends."
    if registry.is_lasting(entry):
        stays = "It was mounted by command, and can be unmounted so when they are done."
    raise ConflictError(
        f"other processes of yours use the mount {entry.mount_path}, too" + (f": {pids}" if pids else ""),
        hint=f"{stays} To end it now all the same, unmount it with force (force=True, --force); then they are told when "
        "they commit.",
    )


def is_there(entry: MountEntry) -> bool:
    """Whether the mount is at its path still. A daemon that is told to end takes its mount off
    first, and then may need seconds."""
    if entry.is_copy:
        copy = copy_of(entry)
        return copy.exists and not copy.is_leaving and copy.is_there
    found = mount_table.mount_at(entry.mount_path)
    return found is not None and found.is_cowfs


def copy_of(entry: MountEntry) -> Copy:
    """Of an entry that is one."""
    return copies.of_version(entry.id) if entry.working_copy is None else Copy(Path(entry.working_copy))


def remove_default(path: str) -> None:
    """Removes a mount point that `chosen` made; leaves anything else, and anything in use, alone.

    In use is also what another process has chosen and will mount on as soon as the mount before it
    has ended.
    """
    if _is_default(path):
        with reservation.reserved(path) as is_ours:
            is_used = registry.find_by_path(path) is not None or path in _folders_of_copies()  # an empty one, too
            if is_ours and not is_used:
                _remove(path)


def _is_default(path: str) -> bool:
    with contextlib.suppress(AccessDeniedError):  # who has no home has no default path
        return Path(path).parent == Path(registry.canonical(default_root()))
    return False


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(path)


def _defaults(name: str, store_id: StoreId) -> list[str]:
    """~/cowfs/NAME, and with a few digits more, for when a volume of that name in another store or
    another mount is there."""
    root = default_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(error, f"{root} cannot be made", elsewhere="give a mount path.") from error
    first = registry.canonical(root / name)
    paths = [first, f"{first}-{store_id.hex()[:6]}", *(f"{first}-{count}" for count in range(2, 100))]
    taken = _folders_of_copies()
    return [path for path in paths if path not in taken]


def _folders_of_copies() -> set[str]:
    """Where copies are, or have left work. Not those that are gone, or elsewhere."""
    found = {entry.mount_path for entry in registry.list_mounts() if entry.is_copy and is_there(entry)}
    for each in working_copy.list_working_copies():
        with contextlib.suppress(CowfsError):
            if (copy := each.copy) is not None and not copy.is_out_of_sight:
                found.add(copy.record.mount_path)
    return found


def checked(given: object) -> str:
    """The canonical path that is meant. InvalidInputError: it is none."""
    text: object = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidInputError(f"{given!r} is not a mount path", hint="Give the path of a directory.")
    return registry.canonical(os.path.expanduser(text))
