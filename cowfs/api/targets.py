"""PATH|NAME: which mount, or which volume, a command is about; and what can be done with a mount
that somebody else made.

Anything with a slash, and "." and "..", is a path. A bare word is a volume's name, unless a mount
of cowfs is at that path below the current directory; when both are mounted, and differ, the word is
refused rather than guessed.

A mount is found in the registry of this machine, whether its store answers or not. The store is
asked for a name that is not mounted, and for one that is mounted only from other URLs: they may
mean the same store.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from cowfs.api import hints, mount_paths, mounts, overview, scratch, stores, unmounted
from cowfs.api.mounts import Released
from cowfs.api.overview import WorkingCopySummary
from cowfs.api.provenance import commit_request
from cowfs.api.ro_volume import ROVolume
from cowfs.api.rw_volume import RWVolume
from cowfs.api.unmounted import Dropped
from cowfs.api.volume import Volume
from cowfs.errors import (
    AccessDeniedError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    NotFoundError,
    from_local_disk,
)
from cowfs.format.locator import Locator
from cowfs.format.store_url import StoreUrl
from cowfs.machine import dead_mounts, mount_table, mounting, registry
from cowfs.machine.mount_table import MountInfo
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy
from cowfs.version.commit import ProgressListener


class Mounted:
    """A live mount of this machine, reached through its daemon."""

    def __init__(self, entry: MountEntry) -> None:
        self._entry = entry

    @property
    def path(self) -> str:
        return self._entry.mount_path

    @property
    def volume(self) -> str:
        """Which it writes to; of any other mount where it is from."""
        return self._entry.written or self._entry.volume

    @property
    def is_scratch(self) -> bool:
        return self._entry.is_scratch

    @property
    def is_copy(self) -> bool:
        return self._entry.is_copy

    @property
    def is_gone(self) -> bool:
        """Whether it is a copy whose folder is not there any more."""
        return self.is_copy and not mount_paths.is_there(self._entry)

    def commit(
        self,
        message: str = "",
        *,
        name: str | None = None,
        author: str | None = None,
        labels: Mapping[str, str] | None = None,
        progress: ProgressListener | None = None,
    ) -> ROVolume:
        """Publishes what was written before the call; the mount stays. name: of a scratch, as for
        `ROVolume.commit_scratch`."""
        request, volume = commit_request(message, author, None, labels), self.volume
        with hints.of_store(self._entry.store_url):
            if self.is_scratch:
                volume, done = scratch.commit(self._entry, name, request, progress, strict=name is not None)
            else:
                scratch.require_none(name)
                done = mounts.commit(self._entry, request, progress)
        found = Locator(StoreUrl.parse(self._entry.store_url), volume, done.version)
        return ROVolume(found, done.known, is_new=done.is_new)

    def commit_and_unmount(
        self, message: str = "", *, force: bool = False, progress: ProgressListener | None = None
    ) -> tuple[ROVolume, Released]:
        """The version, once it is published, whatever happens to the mount; and how that was taken
        away."""
        self._require_unshared(force)
        if not force:
            mount_table.require_nothing_inside(self.path)
        version = self.commit(message, progress=progress)
        released = mounts.release(self._entry, force=force)
        try:
            mount_paths.leave(self.path)
            self._tidy()
        except (CowfsError, OSError) as error:
            released = replace(released, trouble=released.trouble or str(error))
        return version, released

    def unmount(self, *, force: bool = False) -> bool:
        """Whether uncommitted work is kept for the next mount. force: also while in use; programs
        that use it get errors."""
        self._require_unshared(force)
        with hints.of_store(self._entry.store_url):
            left = mounts.unmount(self._entry, force=force)
        mount_paths.leave(self.path)
        self._tidy()
        return left.is_dirty

    def _require_unshared(self, force: bool) -> None:
        if not force:
            mount_paths.require_unshared(self._entry)

    def _tidy(self) -> None:
        """A working copy without work is of no use: the next mount makes one."""
        if self._entry.working_copy is not None:
            WorkingCopy(Path(self._entry.working_copy)).delete_if_committed()

    def discard(self, *, force: bool = False) -> bool | None:
        """Unmounts and drops uncommitted work for good; whether there was any. None, that is not
        known: of a copy whose folder is gone, and of a scratch whose daemon did not answer, and was
        killed by force."""
        self._require_unshared(force)
        if force and self.is_scratch and mounts.end_silent(self._entry):
            mount_paths.leave(self.path)
            return None
        had_work = None if self.is_gone else mounts.has_uncommitted(self._entry)
        with hints.of_store(self._entry.store_url):
            mounts.discard(self._entry, force=force)
        mount_paths.leave(self.path)
        return had_work


def keep_mounted(path: Path) -> None:
    """The mount there, which was asked for by command, stays until it is unmounted by command. One
    of which that cannot be noted stays as well, and the error says so."""
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
    """A working directory of this process that lies in a mount keeps it in use: leaves it for the
    time of the block."""
    before = os.getcwd()
    if registry.find_by_path(before, inside=True) is None:
        yield
        return
    os.chdir("/")
    try:
        yield
    finally:
        with suppress(OSError):  # unmounted by force
            os.chdir(before)


def detach_dead(target: str, store: str | None = None, *, wants_work: bool) -> str | None:
    """Takes a mount whose daemon has died off its path, which is returned; None when target is no
    such mount. A name means the dead mount of the volume of that store, unless a live one is meant
    by it.

    wants_work: InvalidStateError instead, since nobody is there to commit or discard its work; a
    name then means the volume."""
    path = registry.canonical(os.path.expanduser(target))
    if path in scratch.clear():
        if wants_work:
            raise InvalidStateError(
                f"the daemon of the scratch mount {path} has died; what was written there is gone",
                hint="Mount the version again. Work that must outlive its mount belongs into a volume.",
            )
        return path
    if wants_work and dead_mounts.find_at(path) is not None:
        mount_paths.require_alive(path)
    if not (_is_path(target) or wants_work):
        path = _dead_mount_of(target, store) or path
        if store is not None and (mount := dead_mounts.find_at(path)) is not None and not _is_of(mount, _url(store)):
            return None
    if not mounting.detach_dead(path):
        return None
    mount_paths.leave(path)
    return path


def _dead_mount_of(volume: str, store: str | None) -> str | None:
    """Where it is. None also for a word that means a live mount, or a dead one at that path."""
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
    """Whether a dead mount is known to be of that store."""
    entry = dead_mounts.registration(mount)
    return entry is not None and entry.store_url == url


def discard_kept(target: str, *, force: bool = False) -> Dropped | None:
    """Drops the work of a volume that is not mounted, in the directory that `status` shows. None:
    target is no such directory. force: as for `unmounted.discard_at`."""
    if not _is_path(target):
        return None
    return unmounted.discard_at(Path(os.path.abspath(os.path.expanduser(target))), force=force)


def find_mount(
    target: str, store: str | None, *, inside: bool = False, read_only: bool = False, detached: bool = False
) -> Mounted | RWVolume:
    """The live mount that target means, else the volume of that name (which exists, and is not
    mounted here). A name also means a scratch that writes to the volume.

    inside: a path (with a slash) below a mount point will do. read_only: a name also means the one
    read-only mount of the volume, if it is not mounted writable. detached: if there is none of
    these, a name also means the oldest mount of the volume that is off its path and served still.
    NotFoundError for a path that is no mount, and for an unknown volume.
    """
    target = os.path.expanduser(target) if _is_path(target) else target
    here = registry.find_by_path(target, inside=inside and _is_path(target)) if target else None
    if _is_path(target):
        return _at(target, here)
    url, so_named = _url(store), registry.find_by_name(target)
    named = next((entry for entry in so_named if entry.store_url == url), None)
    of_versions = registry.find_read_only(url, target) if read_only and url is not None else []
    if detached and url is not None and (left := registry.find_detached(url, target)):
        # Of the same store, whatever URL it is mounted from: one of another store is another volume.
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
    return volume


def _also_here(word: str, here: MountEntry, left: MountEntry) -> InvalidInputError:
    """A mount of another volume is at that path, and a mount of the volume is off its own."""
    there = f"{Mounted(here).volume} of {here.store_url}"
    return InvalidInputError(
        f"{word!r} is a mount point here, of {there}, and a volume of which a mount is off its path ({left.mount_path}), "
        f"and served still by process {left.pid}",
        hint=f"Write ./{word} for the first; for the second, write the name in another directory.",
    )


def _at(path: str, entry: MountEntry | None) -> Mounted:
    """The mount there. NotFoundError: there is none."""
    if entry is not None:
        return Mounted(entry)
    mount_paths.require_alive(canonical := registry.canonical(path))
    if (found := mount_table.mount_at(canonical)) is not None and found.is_cowfs and not found.is_ours:
        raise AccessDeniedError(
            f"volume {found.volume} is mounted at {path} by another user",
            hint="Its files are used as theirs allow; who has mounted it commits and unmounts it.",
        )
    if found is not None and found.is_cowfs:
        raise NotFoundError(
            f"volume {found.volume} is mounted at {path}, by a process that is not to be seen here",
            hint=f"It runs in another container or pid namespace, or with other directories (COWFS_STATE_DIR, XDG_RUNTIME_DIR): "
            f"`cowfs unmount {shlex.quote(path)}`, unmount() there.",
        )
    raise NotFoundError(
        f"no volume is mounted at {path}", hint="`cowfs status` lists mounts, and work that waits for one."
    )


def require_one_store(volume: RWVolume) -> None:
    """InvalidInputError when work of volumes of that name, in other stores, is kept here, too, and
    no store was named: which one is to be dropped was not said."""
    if os.environ.get("COWFS_STORE"):
        return
    urls = {each.store_url for each in _kept_work(volume.name)}
    others = sorted(url for url in urls if url is not None and url != volume.store_url)
    if others and volume.store_url in urls:
        drop = f"`cowfs unmount {volume.name} --discard --store"
        commands = [f"{drop} {shlex.quote(url)}`" for url in (volume.store_url, *others) if url is not None]
        raise InvalidInputError(
            f"uncommitted work of several volumes {volume.name!r} may lie here: of {volume.store_url}, {', '.join(others)}",
            hint=f"Say which one is to be dropped: {', or '.join(commands)}; in a program, discard() of that volume.",
        )


def _kept_work(name: str) -> list[WorkingCopySummary]:
    """Of volumes of that name, whatever store they are in."""
    return [each for each in overview.status().working_copies if each.volume == name and each.uncommitted is not False]


def _about_kept_work(name: str, store: str | None) -> str:
    """What can be done about work of volumes of that name which are not there, or in other
    stores."""
    said = ""
    for each in _kept_work(name):
        drop = f"`cowfs unmount {shlex.quote(each.folder or each.working_copy)} --discard` drops it"
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
    """What mounts of that store are registered with; None: it is no store."""
    try:
        return stores.canonical_url(store)
    except InvalidInputError:
        return None


def _volume(name: str, store: str | None, *, is_guess: bool) -> RWVolume | None:
    """The volume of that name; None when there is none and a mount of that path was found
    already."""
    try:
        volume = Volume.open(name, store=store).resolve()
    except (NotFoundError, InvalidInputError) as error:
        if is_guess:
            return None
        mount_paths.require_alive(registry.canonical(name))
        if os.path.isdir(name):
            raise NotFoundError(
                f"{error.message}; and nothing is mounted at ./{name}",
                hint=f"Write ./{name} for a directory in a mount. `cowfs status` lists mounts, and work that waits for one. {error.hint}",
            ) from error
        error.set_hint(error.hint + _about_kept_work(name, store))
        raise
    return volume


def _is_path(target: str) -> bool:
    return os.sep in target or target in ("", os.curdir, os.pardir)
