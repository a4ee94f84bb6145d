"""The mount that an object works on: one it made, or found and shares with other objects and
processes of this user (`machine.sharing`).

    none ── take, share ── used ── end, leave, leave_to_others ── none
                            └── ended by somebody else ── lost, until it is left or another one is used

What a program reads and writes at the path of a lost one is of the directory below the mount, and
a version that is made then would be without it. So commits are refused until the object's user has
seen that, and unmounting says it, too. A mount whose daemon died is not lost while it is at its
path: every use of it fails.

Not thread-safe; the volume's lock guards it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from cowfs import log
from cowfs.api import copies, feeding, mount_paths, mounts, new_mounts
from cowfs.control import MountOptions
from cowfs.errors import ConflictError, InvalidStateError
from cowfs.machine import dead_mounts, registry, sharing
from cowfs.machine.registry import MountEntry
from cowfs.store import Access

_log = log.get("volume")


class UsedMount:
    def __init__(self) -> None:
        self._id: str | None = None
        self._path: str | None = None
        self._is_handed_in = False

    def use(self, registration: str, path: str, *, is_handed_in: bool = False) -> None:
        """is_handed_in: it serves a descriptor that somebody else has mounted, and need not be seen
        at its path from here."""
        self._id, self._path, self._is_handed_in = registration, path, is_handed_in

    def join(self, entry: MountEntry) -> bool:
        """As `sharing.join`. A mount is this object's only then: before, and in a forked child,
        others do not know of it, and end it."""
        return sharing.join(entry, self)

    def take(self, made: new_mounts.NewMount, options: MountOptions) -> bool:
        """Uses a mount that was just made. False: others have found and ended it already."""
        self.use(made.id, str(made.path), is_handed_in=options.fuse_fd is not None and made.started is not None)
        return options.foreground or mount_paths.shared(self.at_its_path, self.join) is not None

    def share(self, find: mount_paths.Find, options: MountOptions, access: Access) -> MountEntry | None:
        """Uses the mount that is found."""

        def join(found: MountEntry) -> bool:
            copies.require_mode(found, options)
            return self.join(found) and mount_paths.is_there(found)

        entry = mount_paths.shared(find, join)
        if entry is None or not copies.is_whole(entry):
            return None
        if not entry.is_copy and access.identity is not None:
            feeding.start(entry.id, entry.socket, access.identity)
        self.use(entry.id, entry.mount_path, is_handed_in=options.fuse_fd is not None)
        return entry

    def is_left(self, source: str, live: MountEntry | None) -> bool:
        """Before the mount is ended: whether others have it, too, or `cowfs mount` was asked for
        it; it is left to them then. One that this object does not use is ended for all.
        InvalidStateError: as of `leave_lost`."""
        self.leave_lost(source, live)
        if live is None or not (self in sharing.users(live) or registry.is_lasting(live)) or self.is_last(live):
            return False
        self.leave_to_others(source)
        return True

    def require_no_sharer(self, live: MountEntry) -> None:
        """ConflictError: this object uses the mount, and others of this process do, too."""
        users = sharing.users(live)
        if self in users and len(users) > 1:
            raise ConflictError(
                f"other objects of this process use the mount {live.mount_path}, too",
                hint="It goes when the last of them unmounts or finalizes. To end it now all the same: force=True; then "
                "they are told when they commit.",
            )

    def is_last(self, live: MountEntry) -> bool:
        """As `sharing.is_last`."""
        return sharing.is_last(live, self)

    def entry(self) -> MountEntry | None:
        return registry.find_by_id(self._id) if self._id else None

    def at_its_path(self) -> MountEntry | None:
        """Its entry, if it can be used."""
        entry = self.entry()
        return entry if entry is not None and (self._is_handed_in or mount_paths.is_there(entry)) else None

    def end(self, live: MountEntry | None, end: Callable[..., object], *, force: bool) -> None:
        """Ends the mount, if there is one, with one of live_mount's functions.
        ConflictError while other processes share it; not with force."""
        if live is not None:
            is_sharer = sharing.holds(live)
            if not force:
                mount_paths.require_unshared(live)
            try:
                end(live, force=force)
            except BaseException:
                if is_sharer:
                    sharing.keep(live, self if self._id == live.id else None)
                else:
                    sharing.forget(live)
                raise
        self.leave(live)

    def release(self, live: MountEntry, *, force: bool) -> str:
        """As `mounts.release`, after `is_last`; the trouble."""
        try:
            return mounts.release(live, force=force).trouble
        except BaseException:
            sharing.keep(live, self)
            raise

    def leave(self, ended: MountEntry | None) -> None:
        """After the mount has ended: nothing of it stays."""
        if ended is not None:
            sharing.forget(ended)
        mount_paths.leave(ended.mount_path if ended is not None else None, self._path)
        self.forget()

    def leave_to_others(self, source: str) -> None:
        """`is_last` has said no."""
        _log.info("%s stays mounted: others share it, or `cowfs mount` was asked for it", source)
        self.forget()

    def forget(self) -> None:
        self._id = self._path = None

    def is_lost(self, live: MountEntry | None) -> bool:
        """Whether it has ended without this object. live: the volume's mount."""
        if self._id is None or self._path is None:
            return False
        if live is not None and live.id == self._id:  # one that is ending is off its path first
            return not self._is_handed_in and not mount_paths.is_there(live)
        return live is not None or dead_mounts.find_at(self._path) is None

    def require_kept(self, volume: str, live: MountEntry | None) -> None:
        """What was written since would be missing in a version, and nobody would notice."""
        if self.is_lost(live):
            raise self._lost(
                f"volume {volume!r}",
                "Call mount() again: uncommitted work is there again unless it was discarded. What was written to "
                f"{self._path} since then lies in the directory below the mount, not in the volume.",
            )

    def leave_lost(self, source: str, live: MountEntry | None) -> None:
        """InvalidStateError: there is nothing to unmount. Told once; this object has no mount then.
        A copy whose folder was moved away, or half removed, is unmounted all the same."""
        is_copy = live is not None and live.is_copy and live.id == self._id
        if not is_copy and self.is_lost(live):
            lost = self._lost(
                source,
                f"What was read from {self._path} or written to it since then is of the directory below the mount. "
                "Nothing is mounted for this object any more; mount() mounts again.",
            )
            self.leave(None)
            raise lost

    def _lost(self, source: str, hint: str) -> InvalidStateError:
        return InvalidStateError(
            f"the mount of {source} at {self._path} has ended, and this object did not end it",
            hint=f"Another process (or object) has unmounted it. {hint}",
        )


def require_work_at(entry: MountEntry | None, place: Path, meta_dir: Path) -> None:
    """Refuses to share a mount whose work lies elsewhere than below meta_dir, at `place`."""
    if entry is None or entry.is_scratch or entry.working_copy is None or not mount_paths.is_there(entry):
        return
    if os.path.realpath(place) != os.path.realpath(entry.working_copy):
        raise InvalidStateError(
            f"volume {entry.volume!r} is mounted at {entry.mount_path} with its work in {entry.working_copy}, not below {meta_dir}",
            hint="Leave meta_dir (--meta-dir) away to share that mount, or unmount it first.",
        )
