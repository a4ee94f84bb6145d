"""Scratch mounts as users have them: what is written to a version without becoming its volume's
writer.

Committing one makes a volume: a fork of the version it stands on, under a name of its own, with one
version more. The scratch writes to that volume from then on, and what is not committed is gone at
its end all the same.
"""

from __future__ import annotations

from pathlib import Path

from cowfs import store as stores_layer
from cowfs.api import mount_paths, names, stores
from cowfs.api.claiming import claimed
from cowfs.api.provenance import author
from cowfs.control import live_mount
from cowfs.control.messages import Committed
from cowfs.errors import InvalidInputError, InvalidStateError
from cowfs.machine import scratch
from cowfs.machine.registry import MountEntry
from cowfs.version import volumes
from cowfs.version.commit import CommitRequest, ProgressListener
from cowfs.version.volumes import Head


def commit(
    entry: MountEntry, name: str | None, request: CommitRequest, progress: ProgressListener | None, *, strict: bool
) -> tuple[str, Committed]:
    """Publishes what was written to the scratch before the call; the volume that has it, and the
    version.

    name: of the new volume; None: one is made up, or what an earlier commit has made goes on.
    """
    said = live_mount.status(entry)
    if said.writer is not None:
        if name is not None and names.checked(name) != said.volume:
            raise InvalidStateError(
                f"this scratch writes to volume {said.volume!r} already",
                hint="Commit it without a name, and fork that version.",
            )
        return said.volume, live_mount.commit(entry, request, progress)
    assert said.version is not None
    wanted = names.checked(name) if name is not None else names.beside(said.volume)
    store = stores.open_located(said.store_url)
    stores_layer.require_writable(store.record)
    base = volumes.locator(store.objects, said.volume, said.version)

    def fork(new_name: str) -> Head:
        return volumes.fork_volume(store.objects, new_name, base, owner=author())

    volume = claimed(wanted, fork, strict=strict).volume
    live_mount.adopt(entry, volume)
    return volume, live_mount.commit(entry, request, progress)


def require_none(name: str | None) -> None:
    """For mounts that are no scratch: their volume has a name."""
    if name is not None:
        raise InvalidInputError(
            f"only a scratch mount is committed under a name, {name!r} here",
            hint="Commit without a name, and fork the version.",
        )


def clear(meta_dir: Path | None = None) -> list[str]:
    """Removes what scratch mounts have left whose daemons were killed: nobody can use it again. The
    paths that were taken off."""
    detached = scratch.sweep(meta_dir)
    mount_paths.leave(*detached)
    return detached
