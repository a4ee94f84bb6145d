"""Scratch mounts as users have them: what is written to a version without becoming its volume's
writer.

Committing one makes a volume: a fork of the version it stands on, under a name of its own, with one
version more. The scratch writes to that volume from then on, and what is not committed is gone at
its end all the same.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from cowfs import log
from cowfs import store as stores_layer
from cowfs.api import mount_paths, names, stores
from cowfs.api.claiming import claimed
from cowfs.api.provenance import author
from cowfs.api.storage.storage import Storage
from cowfs.control import live_mount
from cowfs.control.messages import Committed, MountStatus
from cowfs.errors import ConflictError, InvalidInputError, LeaseLostError, UnavailableError
from cowfs.machine import reservation, scratch
from cowfs.machine.registry import MountEntry
from cowfs.version import volumes
from cowfs.version.commit import CommitRequest, ProgressListener
from cowfs.version.volumes import Head

_log = log.get("volume")


def commit(
    entry: MountEntry,
    name: str | None,
    request: CommitRequest,
    progress: ProgressListener | None,
    *,
    storage: Storage | None = None,
    strict: bool,
) -> tuple[str, Committed]:
    """Publishes what was written to the scratch before the call; the volume that has it, and the
    version.

    storage: how the store is asked. name: of the volume; None: what an earlier commit has made goes
    on, or a name is made up. Another name than before makes another volume, from the last version
    on. One follows the other: what a scratch commits to is asked, changed and used by three
    requests.
    """
    with _turn(entry):
        return _commit(entry, name, request, progress, storage, strict=strict)


def commit_to(entry: MountEntry, request: CommitRequest, progress: ProgressListener | None) -> Committed:
    """As `commit`, to the volume that the scratch was found by. ConflictError: it writes to another
    one by now, to which its work belongs."""
    with _turn(entry):
        if (now := live_mount.status(entry).volume) != entry.adopted:
            raise ConflictError(
                f"the scratch at {entry.mount_path} does not write to {entry.adopted} any more, but to {now}",
                hint=f"What it has uncommitted belongs to {now}: `cowfs commit {now}`, or commit() of that volume.",
            )
        return _committed(entry, entry.adopted, request, progress)


def _turn(entry: MountEntry) -> AbstractContextManager[bool]:
    return reservation.turn(f"commit of {entry.id}", lambda: False, doing="commits this scratch")


def _commit(
    entry: MountEntry,
    name: str | None,
    request: CommitRequest,
    progress: ProgressListener | None,
    storage: Storage | None,
    *,
    strict: bool,
) -> tuple[str, Committed]:
    said = live_mount.status(entry)
    volume = said.volume
    if said.writer is None or (name is not None and names.checked(name) != volume):
        volume = _forked(said, name, storage, strict=strict)
        live_mount.adopt(entry, volume)
    return volume, _committed(entry, volume, request, progress)


def _committed(entry: MountEntry, volume: str, request: CommitRequest, progress: ProgressListener | None) -> Committed:
    try:
        return live_mount.commit(entry, request, progress)
    except LeaseLostError as error:
        raise LeaseLostError(
            error.message,
            hint=f"Commit it under another name: `cowfs commit {entry.mount_path} --name NAME`, or commit_scratch() with a name.",
            details=error.details,
        ) from error
    except UnavailableError as error:
        if not live_mount.has_died(entry):
            raise
        raise UnavailableError(
            error.message,
            hint=f"`cowfs log {volume}`, or history(), shows whether the commit was published. What is not published is gone: "
            "a scratch ends with its daemon. Mount the version again.",
            details=error.details,
        ) from error


def _forked(said: MountStatus, name: str | None, storage: Storage | None, *, strict: bool) -> str:
    """A new volume that stands on what the scratch stands on."""
    assert said.version is not None
    store = stores.open_located(said.store_url, storage)
    stores_layer.require_writable(store.record)
    base = volumes.locator(store.objects, said.volume, said.version)

    def fork(new_name: str) -> Head:
        return volumes.fork_volume(store.objects, new_name, base, owner=author())

    wanted = names.checked(name) if name is not None else names.beside(said.volume)
    return claimed(wanted, fork, strict=strict).volume


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
    for path in detached:
        _log.warning("the daemon of the scratch mount %s has died; what was not committed there is gone", path)
    mount_paths.leave(*detached)
    return detached
