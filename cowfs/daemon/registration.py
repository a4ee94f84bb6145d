"""How other processes find the mount: its entry in the registry, and its control socket.

Both are in directories that may be removed while the mount lives: the runtime directory goes with
the user's last login, and temporary directories are cleaned. `keep`, which the keeper calls,
recreates the missing ones in the current runtime directory (`config.runtime_dir`). Processes that
share the mount hold a lock on the old entry; they lock the new one when they mount or unmount
again. Until then the locks on the earlier ones count as well (`held`).

Any thread may call.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from cowfs.base import log
from cowfs.base.errors import CowfsError
from cowfs.control import Server
from cowfs.machine import registry, sharing
from cowfs.machine.registry import MountEntry

_logger = log.get("mount")


class Registration:
    """A registered entry, until `end`."""

    def __init__(self, entry: MountEntry, held: sharing.Held | None = None) -> None:
        """held: the entries of the mount's daemons before."""
        self._entry = entry
        self.held = held or sharing.Held()
        self.held.follow(entry)
        self._lock = threading.Lock()
        self._is_lasting = False
        self._has_ended = False
        self._trouble = ""

    @property
    def entry(self) -> MountEntry:
        return self._entry

    def adopt(self, volume: str) -> None:
        """Records that the scratch writes to the volume from now on."""
        with self._lock:
            self._entry = replace(self._entry, adopted=volume)
            registry.adopt(self._entry)

    def detach(self) -> None:
        """Records that the mount is off its path."""
        with self._lock:
            self._entry = replace(self._entry, is_detached=True)
            registry.enter(self._entry)
            self.held.forget()
            self.held.follow(self._entry)

    def end(self) -> None:
        with self._lock:
            self._has_ended = True
            registry.unregister(self._entry)

    def keep(self, control: Server) -> None:
        """Makes sure that others find the mount, and reach its socket."""
        with self._lock:
            if self._has_ended:
                return
            try:
                self._keep(control)
                self._trouble = ""
            except (CowfsError, OSError) as error:
                if str(error) != self._trouble:
                    _logger.warning("other processes cannot reach this mount: %s", error)
                self._trouble = str(error)

    def _keep(self, control: Server) -> None:
        if not control.is_there:
            path = registry.socket_path(self._entry.id)
            control.listen_at(path)
            self._entry = registry.with_socket(self._entry, path)
            _logger.warning("the control socket was removed; there is a new one, %s", path)
        self._is_lasting = self._is_lasting or registry.is_lasting(self._entry)
        if registry.restore(self._entry, is_lasting=self._is_lasting):
            self.held.follow(self._entry)
