"""The mount that an object works on. The object made it, or found it and shares it with other
objects and processes of this user (`machine.sharing`).

    none ── take, share ── used ── end, leave, leave_to_others ── none
                            └── ended by another object ── lost, until it is left or another one is used

Once a mount is lost, its path shows the directory below it: programs read and write there, and a
version made then would lack these writes. Commits are therefore refused until the object's user has
had an error about it; unmounting reports it, too. A mount whose daemon has died does not count as
lost while it is at its path, since every use of it fails.

Not thread-safe; the volume's lock guards it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from cowfs.api.mounts import mount_paths, new_mounts, process_binding
from cowfs.api.mounts.base import Mount, mount_of, require_mode
from cowfs.base import clock, interruptible, log
from cowfs.base.errors import ConflictError, InvalidStateError
from cowfs.base.hints import Command
from cowfs.control import MountOptions
from cowfs.control.binding import Binding
from cowfs.machine import dead_mounts, registry, sharing
from cowfs.machine.registry import MountEntry
from cowfs.store import Access

_log = log.get("volume")

ENDING_S = 90.0
"""As machine.lock has it."""
PAUSE_S = 0.05


class UsedMount:
    def __init__(self) -> None:
        self._id: str | None = None
        self._path: str | None = None
        self._is_handed_in = False
        self._joined: tuple[int, str] | None = None
        self._binding: Binding | None = None

    @property
    def path(self) -> str | None:
        """Where it was when it was last used; None: no mount is used."""
        return self._path

    def use(self, registration: str, path: str, *, is_handed_in: bool = False) -> None:
        """is_handed_in: the mount serves a descriptor that another process has mounted, and need
        not be visible at its path from here."""
        self._id, self._path, self._is_handed_in = registration, path, is_handed_in

    def join(self, entry: MountEntry) -> bool:
        """As `sharing.join`. Before this call, and in a forked child, the mount is not registered
        as used by this object, and other users may end it."""
        if not sharing.join(entry, self):
            return False
        if self._joined != (key := (os.getpid(), entry.id)):
            self._joined, self._binding = key, process_binding.find_binding()
            self._update_binding(entry)
        return True

    def _update_binding(self, entry: MountEntry) -> None:
        if self._binding is None and not process_binding.is_bound(entry):
            return
        users = [each for each in sharing.users(entry) if isinstance(each, UsedMount)]
        process_binding.update(entry, [each._binding for each in users])

    def take(self, made: new_mounts.NewMount, options: MountOptions) -> bool:
        """Uses a mount that was just made. False: another user has found and ended it already."""
        self.use(made.id, str(made.path), is_handed_in=options.fuse_fd is not None and made.started is not None)
        process_binding.note_made(made.id, made.binding)
        return options.foreground or _share_when_ready(self.at_its_path, self.join) is not None

    def share(self, find: mount_paths.Find, options: MountOptions, access: Access) -> MountEntry | None:
        """Uses the mount that `find` returns."""

        def join(found: MountEntry) -> bool:
            require_mode(found, options)
            return self.join(found) and mount_of(found).is_there()

        entry = _share_when_ready(find, join)
        if entry is None or not (mount := mount_of(entry)).settle():
            return None
        if access.identity is not None:
            mount.feed(access.identity)
        self.use(entry.id, entry.mount_path, is_handed_in=options.fuse_fd is not None)
        return entry

    def leave_found(self, entry: MountEntry) -> None:
        """After `share`, for a mount that is not to be used after all: it stays as it is."""
        if sharing.users(entry) <= {self}:
            sharing.forget(entry)
        self.forget()

    def is_left(self, source: str, live: MountEntry | None) -> bool:
        """Call it before ending the mount. If others use the mount as well, or `cowfs mount`
        requested it, this object leaves it to them. Returns whether it did. A mount that neither
        this object uses nor `cowfs mount` requested is ended for all. InvalidStateError: as for
        `leave_lost`."""
        self.leave_lost(source, live)
        if live is None or not (self in sharing.users(live) or registry.is_lasting(live)) or self.is_last(live):
            return False
        self.leave_to_others(source)
        return True

    def require_no_sharer(self, live: MountEntry) -> None:
        """ConflictError: other objects of this process use the mount as well as this one."""
        users = sharing.users(live)
        if self in users and len(users) > 1:
            raise ConflictError(
                f"other objects of this process use the mount {live.mount_path}, too",
                hint="It goes when the last of them unmounts or finalizes. To end it now all the same: force=True; then "
                "they are told when they commit.",
            )

    def is_last(self, live: MountEntry) -> bool:
        """As `sharing.is_last`. If it is not, this object no longer binds the mount."""
        if sharing.is_last(live, self):
            return True
        self._update_binding(live)
        return False

    def entry(self) -> MountEntry | None:
        return registry.find_by_id(self._id) if self._id else None

    def at_its_path(self) -> MountEntry | None:
        """Its entry, if it can be used."""
        entry = self.entry()
        return entry if entry is not None and (self._is_handed_in or mount_of(entry).is_there()) else None

    def end(self, live: MountEntry | None, end: Callable[[Mount], object], *, force: bool) -> None:
        """Ends the mount, if there is one, by one of its methods. ConflictError, unless forced,
        while other processes share it."""
        if live is not None:
            is_sharer = sharing.holds(live)
            if not force:
                mount_paths.require_unshared(live)
            try:
                end(mount_of(live))
            except BaseException:
                if is_sharer:
                    sharing.keep(live, self if self._id == live.id else None)
                else:
                    sharing.forget(live)
                raise
        self.leave(live)

    def release(self, live: MountEntry, *, force: bool) -> str:
        """As `Mount.release`, after `is_last`. Returns the trouble."""
        try:
            return mount_of(live).release(force=force).trouble
        except BaseException:
            sharing.keep(live, self)
            raise

    def leave(self, ended: MountEntry | None) -> None:
        """Cleans up after the mount has ended."""
        if ended is not None:
            sharing.forget(ended)
            process_binding.forget(ended)
        mount_paths.leave(ended.mount_path if ended is not None else None, self._path)
        self.forget()

    def leave_to_others(self, source: str) -> None:
        """Call it when `is_last` is false."""
        _log.info("%s stays mounted: others share it, or %s was asked for it", source, Command("mount"))
        self.forget()

    def forget(self) -> None:
        self._id = self._path = self._joined = self._binding = None

    def is_lost(self, live: MountEntry | None) -> bool:
        """Whether it has ended without this object. live: the volume's mount."""
        if self._id is None or self._path is None:
            return False
        if live is not None and live.id == self._id:  # an ending mount leaves its path first
            return not self._is_handed_in and not mount_of(live).is_there()
        return live is not None or dead_mounts.find_at(self._path) is None

    def require_kept(self, volume: str, live: MountEntry | None) -> None:
        """InvalidStateError if the mount is lost: a version would silently lack later writes."""
        if self.is_lost(live):
            raise self._describe_loss(
                f"volume {volume!r}",
                "Call mount() again: uncommitted work is there again unless it was discarded. What was written to "
                f"{self._path} since then lies in the directory below the mount, not in the volume.",
            )

    def leave_lost(self, source: str, live: MountEntry | None) -> None:
        """InvalidStateError: the mount is lost, and there is nothing to unmount. Raised once; the
        object then has no mount. A folder that was moved away or half removed is unmounted all the
        same."""
        can_end = live is not None and live.id == self._id and mount_of(live).ends_off_path
        if not can_end and self.is_lost(live):
            lost = self._describe_loss(
                source,
                f"What was read from {self._path} or written to it since then is of the directory below the mount. "
                "Nothing is mounted for this object any more; mount() mounts again.",
            )
            self.leave(None)
            raise lost

    def _describe_loss(self, source: str, hint: str) -> InvalidStateError:
        return InvalidStateError(
            f"the mount of {source} at {self._path} has ended, and this object did not end it",
            hint=f"Another process (or object) has unmounted it. {hint}",
        )


def _share_when_ready(find: mount_paths.Find, join: Callable[[MountEntry], bool]) -> MountEntry | None:
    """The mount that `find` returns, shared from now on (join). Waits for a mount that is not ready
    yet, or that its last user is ending."""
    end_s = clock.monotonic_s() + ENDING_S
    while clock.monotonic_s() < end_s and (entry := find()) is not None:
        if mount_of(entry).is_dying():
            continue
        if join(entry):
            return entry
        interruptible.require_wanted()
        clock.sleep_s(PAUSE_S)
    return None
