"""Resolves PATH|NAME to a mount or a volume, and provides the operations on a mount that another
process made.

Anything with a slash, and "." and "..", is a path. A bare word is a volume's name, unless a cowfs
mount is at that path below the current directory. If both are mounted and differ, the word is
refused rather than guessed.

A mount is found in the registry of this machine, whether its store answers or not. The store is
queried for a name that is not mounted, and for a name that is mounted only from other URLs, since
these may mean the same store.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from cowfs.api import hints, names, stores
from cowfs.api.access.volume_handle import VolumeHandle
from cowfs.api.mounts import mount_paths, overview, scratch, unmounted, volume_mount
from cowfs.api.mounts.base import Released, mount_of
from cowfs.api.mounts.folder import MAY_BE_REPEATED
from cowfs.api.mounts.summaries import WorkingCopySummary
from cowfs.api.mounts.unmounted import Dropped
from cowfs.api.provenance import commit_request
from cowfs.api.versions import committing
from cowfs.api.versions.labels import Labels
from cowfs.base.errors import (
    AccessDeniedError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    NotFoundError,
    from_local_disk,
)
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.format.locator import Locator
from cowfs.format.store_url import StoreUrl
from cowfs.machine import dead_mounts, mount_table, mounting, registry
from cowfs.machine.mount_table import MountInfo
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy
from cowfs.store import store_names
from cowfs.version.commit import ProgressListener

if TYPE_CHECKING:
    from cowfs.api.mounts.launch import Started
    from cowfs.api.ro_volume import ROVolume
    from cowfs.api.rw_volume import RWVolume


class Mounted:
    """A live mount of this machine, controlled through its daemon."""

    def __init__(self, entry: MountEntry) -> None:
        self._entry = entry
        self._mount = mount_of(entry)

    @property
    def path(self) -> str:
        return self._entry.mount_path

    @property
    def volume(self) -> str:
        """The volume that the mount writes to, or else the volume of its version."""
        return self._entry.written or self._entry.volume

    @property
    def keeps_work(self) -> bool:
        """Whether uncommitted work outlives the mount. False for a scratch."""
        return self._mount.keeps_work

    def commit(
        self,
        message: str = "",
        *,
        name: str | None = None,
        author: str | None = None,
        labels: Labels | None = None,
        progress: ProgressListener | None = None,
    ) -> ROVolume:
        """Publishes the writes made before the call; the mount stays. name: for a scratch, as in
        `ROVolume.commit_scratch`."""
        from cowfs.api.ro_volume import ROVolume

        request = commit_request(message, author, None, labels)
        with hints.of_store(self._entry.store_url):
            volume, done = self._mount.commit_as(name, request, progress)
        found = Locator(StoreUrl.parse(self._entry.store_url), volume, done.version)
        return ROVolume(found, done.known, is_new=done.is_new)

    def commit_and_unmount(
        self,
        message: str = "",
        *,
        author: str | None = None,
        labels: Labels | None = None,
        force: bool = False,
        progress: ProgressListener | None = None,
    ) -> tuple[ROVolume, Released]:
        """Returns the version once it is published, even if unmounting fails, and the outcome of
        the unmount."""
        self._require_unshared(force)
        if not force:
            mount_table.require_nothing_inside(self.path)
        version = self.commit(message, author=author, labels=labels, progress=progress)
        released = self._mount.release(force=force)
        try:
            mount_paths.leave(self.path)
            self._tidy()
        except (CowfsError, OSError) as error:
            released = replace(released, trouble=released.trouble or str(error))
        return version, released

    def unmount(self, *, force: bool = False) -> bool:
        """Returns whether uncommitted work is kept for the next mount. force: unmount even while in
        use; programs that use the mount get errors."""
        self._require_unshared(force)
        with hints.of_store(self._entry.store_url):
            left = self._mount.unmount(force=force)
        mount_paths.leave(self.path)
        self._tidy()
        return left.is_dirty

    def _require_unshared(self, force: bool) -> None:
        if not force:
            mount_paths.require_unshared(self._entry)

    def _tidy(self) -> None:
        """Deletes a working copy without uncommitted work. The next mount makes a new one."""
        if self._entry.working_copy is not None:
            WorkingCopy(Path(self._entry.working_copy)).delete_if_committed()

    def discard(self, *, force: bool = False) -> bool | None:
        """Unmounts and drops uncommitted work for good. Returns whether there was any, or None if
        that is unknown: for a copy whose folder was removed, and for a scratch whose daemon did not
        answer and was killed by force."""
        self._require_unshared(force)
        if force and self._mount.drop_silent():
            mount_paths.leave(self.path)
            return None
        had_work = None if self._mount.is_gone() else self._mount.has_uncommitted()
        with hints.of_store(self._entry.store_url):
            self._mount.discard(force=force)
        mount_paths.leave(self.path)
        return had_work

    def describe_interrupted_commit(self, name: str | None) -> str:
        """The outcome, in words, of a commit whose caller was interrupted. name: as for
        `commit`."""
        return hints.about(self._entry.store_url, self._mount.describe_interrupted_commit(name))

    def describe_interrupted_unmount(self) -> str:
        """The outcome, in words, of an unmount whose caller was interrupted."""
        return self._mount.describe_interrupted_unmount()

    def describe_late_writes(self) -> str:
        """What happens, in words, to late writes by programs that still have files open after
        `commit_and_unmount`."""
        return self._mount.describe_late_writes()


class Unmounted:
    """A volume that exists and is not mounted on this machine. It may have uncommitted work
    here."""

    def __init__(self, handle: VolumeHandle, *, is_store_named: bool) -> None:
        self._handle = handle
        self._is_store_named = is_store_named

    @property
    def volume(self) -> str:
        """The volume's name."""
        return self._handle.name

    def commit(
        self,
        message: str = "",
        *,
        name: str | None = None,
        author: str | None = None,
        labels: Labels | None = None,
        progress: ProgressListener | None = None,
    ) -> ROVolume:
        """Publishes the uncommitted work, in this process. name: must be None, since the volume has
        one."""
        from cowfs.api import ro_volume

        names.require_none(name)
        with hints.of_store(self._handle.store_url):
            request = commit_request(message, author, None, labels)
            return ro_volume.make_version(committing.commit(self._handle, request, progress))

    def unmount(self) -> NoReturn:
        """NotFoundError: it is not mounted. The hint says whether there is uncommitted work."""
        commit = hints.about(self._handle.store_url, Command("commit", self.volume))
        work = f" {commit} publishes what is uncommitted." if self._handle.has_changes() else ""
        raise NotFoundError(
            f"volume {self.volume!r} is not mounted here", hint=f"{Command('status')} lists mounts.{work}"
        )

    def discard(self, *, force: bool = False) -> bool:
        """Drops uncommitted work for good. Returns whether there was any. force: also work that a
        copy in another container has. InvalidInputError: no store was named, and work of several
        volumes of this name is here."""
        if not self._is_store_named:
            _require_one_store(self._handle)
        with hints.of_store(self._handle.store_url):
            kept = overview.working_copy_summary(self._handle.working_copy())
            is_unknown = kept is not None and (kept.is_gone or kept.is_elsewhere)
            had_work = not is_unknown and self._handle.has_changes()
            volume_mount.discard(self._handle, force=force, meta_dir=None)
        return had_work

    def describe_interrupted_commit(self, name: str | None) -> str:
        """The outcome, in words, of a commit whose caller was interrupted: this process makes
        it."""
        return MAY_BE_REPEATED


def get_daemon(volume: RWVolume | ROVolume) -> Started | None:
    """The daemon that the last mount of this object has started. None: it has mounted nothing, has
    found a mount, or has made a copy, which has no daemon."""
    from cowfs.api import ro_volume, rw_volume

    if isinstance(volume, rw_volume.RWVolume):
        return rw_volume.get_handle(volume).started
    return ro_volume.get_daemon(volume)


def keep_mounted(path: Path) -> None:
    """Marks a mount that a command requested: it stays until a command unmounts it. If the mark
    cannot be stored, the mount stays as well, and the error says so."""
    if (entry := registry.find_by_path(path)) is None:
        return
    try:
        registry.mark_lasting(entry)
    except OSError as error:
        raise from_local_disk(
            error, f"{path} is mounted, but not noted as kept, so programs that share the mount may end it"
        ) from error


@contextmanager
def out_of_mounts() -> Iterator[None]:
    """Changes to another directory for the duration of the block if the working directory of this
    process lies in a mount, since it would keep the mount in use."""
    before = os.getcwd()
    if registry.find_by_path(before, inside=True) is None:
        yield
        return
    os.chdir("/")
    try:
        yield
    finally:
        with suppress(OSError):  # the old directory was unmounted by force
            os.chdir(before)


@dataclass(frozen=True)
class DetachedMount:
    """A mount whose daemon had died and that was detached from its path. work: the fate of its
    uncommitted work; "" if the mount was read-only."""

    path: str
    work: str


def detach_dead(target: str, store: str | None = None, *, wants_work: bool) -> DetachedMount | None:
    """Detaches a mount whose daemon has died; None when target is no such mount. A name means the
    dead mount of that volume in that store, unless it means a live mount.

    wants_work: raise InvalidStateError instead, since no daemon is left to commit or discard the
    work. A name then means the volume."""
    path = registry.canonical(os.path.expanduser(target))
    if path in scratch.clear():
        if wants_work:
            raise InvalidStateError(
                f"the daemon of the scratch mount {path} has died; what was written there is gone",
                hint="Mount the version again. Work that must outlive its mount belongs into a volume.",
            )
        return DetachedMount(path, "what was not committed there is gone")
    if wants_work and dead_mounts.find_at(path) is not None:
        mount_paths.require_alive(path)
    if not (_is_path(target) or wants_work):
        path = _dead_mount_of(target, store) or path
        if store is not None and (mount := dead_mounts.find_at(path)) is not None and not _is_of(mount, _url(store)):
            return None
    found = dead_mounts.find_at(path)
    entry = dead_mounts.registration(found) if found is not None else None
    if not mounting.detach_dead(path):
        return None
    mount_paths.leave(path)
    if found is not None and "ro" in found.options:
        return DetachedMount(path, "")
    return DetachedMount(path, _fate_of_work(entry))


def _fate_of_work(entry: MountEntry | None) -> str:
    """entry: of a dead mount; None: its registration is not here."""
    if entry is not None and entry.working_copy is not None and not WorkingCopy(Path(entry.working_copy)).is_kept:
        return "nothing is uncommitted"
    return "uncommitted work comes back at the volume's next mount"


def _dead_mount_of(volume: str, store: str | None) -> str | None:
    """The path of the dead mount. None also for a word that means a live mount, or that is the path
    of a dead one."""
    path, url = registry.canonical(volume), _url(store)
    live = [each for each in registry.list_mounts() if not each.is_detached]
    is_live = any(
        path == each.mount_path or (each.store_url == url and volume in (each.volume, each.written)) for each in live
    )
    if is_live or dead_mounts.find_at(path) is not None:
        return None
    paths = [mount.path for mount in dead_mounts.find() if mount.volume == volume and _is_of(mount, url)]
    if len(paths) > 1:
        raise InvalidInputError(
            f"the daemons of {len(paths)} mounts of {volume!r} have died: {', '.join(paths)}",
            hint="Give the path of one.",
        )
    return paths[0] if paths else None


def _is_of(mount: MountInfo, url: str | None) -> bool:
    """Whether a dead mount is known to belong to that store."""
    entry = dead_mounts.registration(mount)
    return entry is not None and entry.store_url == url


def discard_kept(target: str, *, force: bool = False) -> Dropped | None:
    """Drops the work of a volume that is not mounted, given the directory that `status` shows.
    None: target is no such directory. force: as for `unmounted.discard_at`."""
    if not _is_path(target):
        return None
    return unmounted.discard_at(Path(os.path.abspath(os.path.expanduser(target))), force=force)


def find(
    target: str, store: str | None = None, *, inside: bool = False, read_only: bool = False, detached: bool = False
) -> Mounted | Unmounted:
    """The live mount that target means, PATH or NAME, else the volume of that name, which exists
    and is not mounted here. A name also means a scratch that writes to the volume.

    inside: accept a path (with a slash) below a mount point. read_only: if the volume has no
    writable mount, a name also means its only read-only mount. detached: if none of these exists, a
    name also means the oldest mount of the volume that is detached but still served.
    NotFoundError: no mount at that path, or an unknown volume.
    """
    target = os.path.expanduser(target) if _is_path(target) else target
    here = registry.find_by_path(target, inside=inside and _is_path(target)) if target else None
    if _is_path(target):
        return _make_mounted(target, here)
    url, so_named = _url(store), registry.find_by_name(target)
    named = next((entry for entry in so_named if entry.store_url == url), None)
    of_versions = registry.find_read_only(url, target) if read_only and url is not None else []
    if detached and url is not None and (left := registry.find_detached(url, target)):
        # Of the same store, whichever URL it is mounted from. The volume of another store differs.
        is_at_a_path = bool(of_versions) or any(entry.store_id == left[0].store_id for entry in so_named)
        if here is not None and not is_at_a_path:
            raise _also_here(target, here, left[0])
        if not is_at_a_path:
            return Mounted(left[0])
    if here is not None and store is None and Mounted(here).volume == target:
        return Mounted(here)
    may_have_another_url = named is None and any(entry != here for entry in so_named)
    volume = None
    if may_have_another_url or not (here or named or of_versions):
        try:
            volume = _volume(target, store, is_guess=here is not None)
        except (NotFoundError, InvalidInputError) as error:
            if not so_named:
                raise
            there = " and ".join(f"{entry.mount_path} (of {entry.store_url})" for entry in so_named)
            raise NotFoundError(
                f"{error.message}; mounted here is {there}", hint="Give the path of the mount."
            ) from error
        named = volume.live() if volume is not None else None
    if here is not None and named is not None and here.id != named.id:
        raise InvalidInputError(
            f"{target!r} is a mount point here and a volume mounted at {named.mount_path}",
            hint=f"Write ./{target} for the first, {named.mount_path} for the second.",
        )
    if (entry := here or named) is not None:
        return Mounted(entry)
    if of_versions:
        return Mounted(_only(of_versions))
    assert volume is not None
    return Unmounted(volume, is_store_named=store is not None)


def _also_here(word: str, here: MountEntry, left: MountEntry) -> InvalidInputError:
    """The error for a word that is both the path of another volume's mount and the name of a volume
    with a detached mount."""
    there = f"{Mounted(here).volume} of {here.store_url}"
    return InvalidInputError(
        f"{word!r} is a mount point here, of {there}, and a volume of which a mount is off its path ({left.mount_path}), "
        f"and served still by process {left.pid}",
        hint=f"Write ./{word} for the first; for the second, write the name in another directory.",
    )


def _make_mounted(path: str, entry: MountEntry | None) -> Mounted:
    """The mount at that path. NotFoundError if it has none."""
    if entry is not None:
        return Mounted(entry)
    _require_not_mounted(path)
    store, name = store_names.split_name(path)
    meant = ""
    if store is not None and store_names.has_store(store):
        meant = f"The volume {name} of the store {store} is {name} with --store {store} (store=). "
    raise NotFoundError(
        f"no volume is mounted at {path}", hint=f"{meant}{Command('status')} lists mounts, and work that waits for one."
    )


def _require_not_mounted(path: str) -> None:
    """Raises an error if a cowfs mount that is not registered is at that path."""
    mount_paths.require_alive(canonical := registry.canonical(path))
    found = mount_table.mount_at(canonical)
    if found is None or not found.is_cowfs:
        return
    if not found.is_ours:
        raise AccessDeniedError(
            f"volume {found.volume} is mounted at {path} by another user",
            hint="Its files are used as theirs allow; who has mounted it commits and unmounts it.",
        )
    entries = registry.list_mounts()
    places = {entry.mount_path: mount_table.mount_at(entry.mount_path) for entry in entries}
    for entry in entries:
        if (own := places[entry.mount_path]) is not None and own.device == found.device:
            raise NotFoundError(
                f"{path} is a bind mount of volume {Mounted(entry).volume} at {entry.mount_path}",
                hint=f"Give the path {shlex.quote(entry.mount_path)} instead. `umount {shlex.quote(path)}`, as root, takes off "
                "the bind mount alone.",
            )
    for entry in entries:
        if places[entry.mount_path] is None and Mounted(entry).volume == found.volume:
            raise NotFoundError(
                f"volume {found.volume} is mounted at {path}, and not at {entry.mount_path} any more, where it was: "
                "this was moved, or is a bind mount that has stayed",
                hint=f"`umount {shlex.quote(path)}`, as root, takes off what has stayed. What was moved can be moved back by "
                "mount(8), or named by its volume instead of the path.",
            )
    raise NotFoundError(
        f"volume {found.volume} is mounted at {path}, by a process that is not to be seen here",
        hint=f"It runs in another container or pid namespace, or with other directories (COWFS_STATE_DIR, XDG_RUNTIME_DIR): "
        f"{Command('unmount', path)}, unmount() there.",
    )


def _require_one_store(volume: VolumeHandle) -> None:
    """InvalidInputError if no store was named and work of volumes of that name in other stores is
    kept here too: it would be unclear which work to drop."""
    if os.environ.get("COWFS_STORE"):
        return
    known = {each.store_url for each in _find_kept_work(volume.name)}
    others = sorted(url for url in known if url is not None and url != volume.store_url)
    if others and volume.store_url in known:
        urls = [url for url in (volume.store_url, *others) if url is not None]
        commands = [str(Command("unmount", volume.name, "--discard", "--store", url)) for url in urls]
        raise InvalidInputError(
            f"uncommitted work of several volumes {volume.name!r} may lie here: of {volume.store_url}, {', '.join(others)}",
            hint=f"Say which one is to be dropped: {', or '.join(commands)}; in a program, discard() of that volume.",
        )


def _find_kept_work(name: str) -> list[WorkingCopySummary]:
    """The kept work of volumes of that name in all stores."""
    return [
        each for each in overview.status().working_copies if each.volume == name and each.has_uncommitted is not False
    ]


def _describe_kept_work(name: str, store: str | None) -> str:
    """Advice on kept work of volumes of that name that do not exist or are in other stores."""
    said = ""
    for each in _find_kept_work(name):
        drop = f"{Command('unmount', each.folder or each.working_copy, '--discard')} drops it"
        is_elsewhere = each.store_url is not None and each.store_url != _url(store)
        named = f"--store {shlex.quote(each.store_url or '')} (store=) names its store, and " if is_elsewhere else ""
        said += f" Uncommitted work of {name!r}{f' of {each.store_url}' if is_elsewhere else ''} is kept here: {named}{drop}."
    return said


def _only(mounts: list[MountEntry]) -> MountEntry:
    if len(mounts) > 1:
        paths = ", ".join(entry.mount_path for entry in mounts)
        raise InvalidInputError(
            f"volume {mounts[0].volume!r} is mounted read-only {len(mounts)} times: {paths}",
            hint="Give the path of one.",
        )
    return mounts[0]


def _url(store: str | None) -> str | None:
    """The URL under which mounts of that store are registered; None if `store` names no store."""
    try:
        return stores.canonical_url(store)
    except InvalidInputError:
        return None


def _volume(name: str, store: str | None, *, is_guess: bool) -> VolumeHandle | None:
    """The volume of that name. is_guess: None instead of an error if it does not exist, since a
    mount at that path was found already."""
    try:
        named = stores.name(store)
        volume = VolumeHandle(named, names.checked(name), "existing")
        with hints.of_store(named):
            volume.resolve()
    except (NotFoundError, InvalidInputError) as error:
        if is_guess:
            return None
        _require_not_mounted(f"{os.curdir}/{name}")
        if os.path.isdir(name):
            raise NotFoundError(
                f"{error.message}; and nothing is mounted at ./{name}",
                hint=f"Write ./{name} for a directory in a mount. {Command('status')} lists mounts, and work that waits for "
                f"one. {error.open_hint}",
            ) from error
        error.set_hint(error.open_hint + _describe_kept_work(name, store))
        raise
    return volume


def _is_path(target: str) -> bool:
    return os.sep in target or target in ("", os.curdir, os.pardir)
