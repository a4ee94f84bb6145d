"""Mount points, and the parts common to all mount specifications.

The default is one directory per volume under ~/cowfs. It is made when needed and removed with its
mount, so that nothing is written below it by mistake. A path that the user gave stays. If only its
last component is missing, the daemon makes it. Further parents are made below the user's home, and
for declared volumes below the file's directory; elsewhere a missing parent is more likely a
mistake. This module does not check a path in full; the daemon does, just before it mounts.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from cowfs.api.transfers.path_errors import NothingThere, errors_of_ours
from cowfs.base import config, log
from cowfs.base.beneath import Root
from cowfs.base.errors import (
    AccessDeniedError,
    ConflictError,
    InvalidInputError,
    InvalidStateError,
    NotFoundError,
    unusable,
)
from cowfs.base.hints import Command
from cowfs.base.ids import StoreId
from cowfs.folders import mounted_folders
from cowfs.machine import dead_mounts, mount_table, mounting, proc, registry, reservation, sharing
from cowfs.machine.registry import MountEntry

Find = Callable[[], MountEntry | None]
"""Returns the existing mount, if it is at its path and at the requested path."""

_log = log.get("copy")


def default_root() -> Path:
    return config.home_dir() / "cowfs"


@contextmanager
def chosen(given: str | os.PathLike[str] | None, name: str, store_id: StoreId) -> Iterator[str]:
    """The canonical path to mount on. If the block fails, a default path that it did not use is
    removed again."""
    if given is not None:
        path = checked(given)
        if path in mounted_folders.occupied_paths():
            raise ConflictError(
                f"{path} is the folder of a copy",
                hint=f"Choose another path, or unmount the copy ({Command('unmount', path)}, unmount()); "
                f"{Command('status')} shows its work.",
            )
        make_parent(path)
        with reservation.reserve(path) if _is_default(path) else contextlib.nullcontext():
            yield path
        return
    with reservation.first_free(_defaults(name, store_id)) as free:
        path = free or f"{registry.canonical(default_root() / name)}-{registry.new_id()}"
        try:
            yield path
        except BaseException:
            _remove(path)
            raise


def check_path(given: str | os.PathLike[str] | None, *, below: Path | None = None) -> None:
    """Refuses an unusable path before anything is claimed in a store: its parent is missing and
    would not be made, no directory or out of reach, as in a mount whose daemon has died. Refuses
    every path if /proc belongs to another PID namespace. below: as for `make_parent`."""
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
    if str(found) != parent and _root_of(Path(parent), below) is None:
        raise NotFoundError(f"{parent} does not exist", hint=f"Make it first: mkdir -p {shlex.quote(parent)}")


def make_parent(path: str, *, below: Path | None = None) -> None:
    """Makes the missing parents of a canonical path below the user's home, or below that
    directory."""
    parent = Path(path).parent
    root = _root_of(parent, below)
    if root is None or parent.is_dir():
        return
    try:
        with Root.open(root) as opened:  # others may write to the file's directory, and exchange parts of the path
            opened.make_directories(os.path.relpath(parent, root))
    except OSError as error:
        raise unusable(error, f"{parent} cannot be made", elsewhere="choose another path.") from error


def _root_of(parent: Path, below: Path | None) -> Path | None:
    """The directory below which this missing directory may be made; None: it may not."""
    roots = [below] if below is not None else []
    with contextlib.suppress(AccessDeniedError):  # a user without a home
        roots.append(config.home_dir())
    found = (Path(os.path.realpath(root)) for root in roots)
    return next((root for root in found if parent.is_relative_to(root)), None)


def require_alive(path: str) -> None:
    """InvalidStateError for a canonical path in a mount whose daemon has died."""
    if (dead := dead_mounts.find_around(path)) is not None:
        raise InvalidStateError(
            f"the daemon of the mount {dead.path} has died; what was written to a volume there is in its working copy",
            hint=f"{Command('unmount', dead.path)} takes it off; mount() of its volume, there or elsewhere, brings uncommitted work back.",
        )


def turn(what: str, find: Find) -> AbstractContextManager[bool]:
    """Serialises threads and processes of this user that mount the same volume or version: the
    first one mounts, the others find its mount. False: use an existing mount, but make none."""
    return reservation.turn(what, lambda: find() is not None, doing="mounts this volume")


def leave(*paths: str | None) -> None:
    """Cleans up after mounts at these paths have ended, or their daemons have died. A mount whose
    descriptor was handed in is left to the process that made it if this process may not unmount
    it."""
    for path in paths:
        if path is not None and registry.find_by_path(path) is None:
            if (dead := dead_mounts.find_at(path)) is not None and mounting.may_unmount(dead):
                mounting.unmount(dead, lazy=True)
            remove_default(path)


def is_same(entry: MountEntry, given: str | os.PathLike[str] | None) -> bool:
    """Whether the mount is at the requested path."""
    return given is None or checked(given) == entry.mount_path


def same(entry: MountEntry, given: str | os.PathLike[str] | None) -> Path:
    """The path of an existing mount; InvalidStateError when another path is requested."""
    if not is_same(entry, given):
        raise InvalidStateError(
            f"this volume is mounted at {entry.mount_path} already",
            hint="Unmount it first, or use the path it has.",
        )
    return Path(entry.mount_path)


def require_unshared(entry: MountEntry) -> None:
    """ConflictError while other processes share the mount, or while its daemon starts or ends it.
    Otherwise no other process can join until `sharing.forget` or `keep`."""
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


def is_mounted(path: str) -> bool:
    """Whether a FUSE mount of cowfs is at the path."""
    found = mount_table.mount_at(path)
    return found is not None and found.is_cowfs


def require_work_at(entry: MountEntry, place: Path, meta_dir: Path) -> None:
    """InvalidStateError: the work of the mount to be shared is not at `place`, below meta_dir."""
    if entry.working_copy is not None and os.path.realpath(place) != os.path.realpath(entry.working_copy):
        raise InvalidStateError(
            f"volume {entry.volume!r} is mounted at {entry.mount_path} with its work in {entry.working_copy}, not below {meta_dir}",
            hint="Leave meta_dir (--meta-dir) away to share that mount, or unmount it first.",
        )


def warn_that_it_stays(entry: MountEntry, error: ConflictError) -> None:
    """Warns that a mount in use was left mounted. If it is no longer registered, it is detached,
    and serves the programs that have it open."""
    if registry.find_by_id(entry.id) is None:
        _log.warning("%s. %s", error.message, error.hint)
    else:
        command = Command("unmount", entry.mount_path)
        _log.warning("%s. It stays mounted: %s unmounts it", error.message, command)


def remove_default(path: str) -> None:
    """Removes a mount point that `chosen` made. Leaves anything else, and anything in use, alone.

    A path also counts as in use if another process has chosen it and will mount on it as soon as
    the present mount has ended.
    """
    if _is_default(path):
        with reservation.reserve(path) as is_ours:
            is_used = (
                registry.find_by_path(path) is not None or path in mounted_folders.occupied_paths()
            )  # an empty one, too
            if is_ours and not is_used:
                _remove(path)


def _is_default(path: str) -> bool:
    with contextlib.suppress(AccessDeniedError):  # a user without a home has no default path
        return Path(path).parent == Path(registry.canonical(default_root()))
    return False


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(path)


def _defaults(name: str, store_id: StoreId) -> list[str]:
    """Default paths, best first: ~/cowfs/NAME, the same with six digits of the store's id, then
    NAME-2 to NAME-99, since another volume of that name or another mount may be there. Paths of
    existing folders are left out."""
    root = default_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(error, f"{root} cannot be made", elsewhere="give a mount path.") from error
    first = registry.canonical(root / name)
    paths = [first, f"{first}-{store_id.hex()[:6]}", *(f"{first}-{count}" for count in range(2, 100))]
    taken = mounted_folders.occupied_paths()
    return [path for path in paths if path not in taken]


def checked(given: object) -> str:
    """The canonical path. InvalidInputError: `given` is no usable path."""
    text: object = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidInputError(f"{given!r} is not a mount path", hint="Give the path of a directory.")
    return registry.canonical(os.path.expanduser(text))
