"""Which jobs one volume can serve: all processes write below one mount, so all are on one
machine."""

from __future__ import annotations

import os
from pathlib import Path

from cowfs.blocking import RWVolume
from cowfs.errors import InvalidInputError, InvalidStateError


def require_one_machine() -> None:
    """By the variables that torchrun sets. InvalidStateError: there are several machines, of which
    only one can write to the volume."""
    world, local = os.environ.get("WORLD_SIZE"), os.environ.get("LOCAL_WORLD_SIZE")
    if world is not None and local is not None and world != local:
        raise InvalidStateError(
            f"the job has {world} processes, {local} of them on this machine: one volume has one writing machine",
            hint="Use a volume of its own for each machine, such as run-17-node-0, and commit with cowfs.checkpoints; "
            "or gather the state on rank 0.",
        )


def require_below(volume: RWVolume, path: str | os.PathLike[str]) -> None:
    """InvalidInputError: files there are in no version of the volume."""
    if not Path(path).resolve().is_relative_to(volume.path.resolve()):
        raise InvalidInputError(
            f"checkpoints are written to {os.fspath(path)}, which is not below the mount of {volume.name!r}",
            hint=f"Write them below {volume.path}.",
        )
