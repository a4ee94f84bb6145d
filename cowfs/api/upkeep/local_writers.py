"""The mounts of this user on this machine that write to a store, as a collection asks them.

A mount without uncommitted work reads the condemned lists once a minute. Asked on its control
socket, it reads and acknowledges them at once. Other writers (another machine, another user, a
program that uses `vol.files`) are not asked: they acknowledge at their next heartbeat.
"""

from __future__ import annotations

from collections.abc import Set

from cowfs.api import stores
from cowfs.base import log
from cowfs.base.errors import CowfsError
from cowfs.base.thread_pool import Helpers
from cowfs.control import live_mount
from cowfs.machine import registry
from cowfs.machine.registry import MountEntry

TIMEOUT_S = 10.0
"""How long a mount may take. Twice the time for which it waits for a head that is being put."""
AT_ONCE = 16

_log = log.get("mount")


class LocalWriters:
    """One collection's view of them. A mount that has not answered is not asked again."""

    def __init__(self, store: stores.OpenStore) -> None:
        self._store_id = store.record.store_id.hex()
        self._silent: set[str] = set()

    def ask(self, volumes: Set[str]) -> bool:
        """Has the mounts that write to these volumes acknowledge what collections condemn. Returns
        whether any has answered."""
        found = [entry for entry in registry.list_mounts() if self._is_asked(entry, volumes)]
        if not found:
            return False
        with Helpers(min(len(found), AT_ONCE), name="cowfs-ask") as threads:
            return any(list(threads.map(self._acknowledge, found)))

    def _is_asked(self, entry: MountEntry, volumes: Set[str]) -> bool:
        is_ours = entry.store_id == self._store_id and entry.written in volumes
        return is_ours and entry.has_daemon and entry.id not in self._silent

    def _acknowledge(self, entry: MountEntry) -> bool:
        try:
            live_mount.acknowledge(entry, timeout_s=TIMEOUT_S)
        except CowfsError as error:  # it is waited for, as a writer of another machine
            _log.debug("%s was asked to acknowledge a collection: %s", entry.mount_path, error)
            self._silent.add(entry.id)
            return False
        return True
