"""The async twins of `Declared` and its `Plan`: the same names and arguments, awaited; under asyncio and trio
alike.

Generated from the blocking classes by `python -m tests.api.async_twin`; change those, not this file.
What each call does is as in `cowfs.api.asynchronous`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cowfs.api.declared import model
from cowfs.api.declared import plan as plan_module
from cowfs.api.declared.model import DeclaredVolume
from cowfs.api.declared.store import AnyStore, DeclaredStore
from cowfs.api.storage.storage import Storage
from cowfs.api.threads import in_thread
from cowfs.machine.applied import Applied
from cowfs.version.commit import ProgressListener

if TYPE_CHECKING:
    from cowfs.api.declared.applying import Hears
    from cowfs.api.declared.emitting import Kind
    from cowfs.api.declared.mounting import Outcome
    from cowfs.api.declared.plan import Step

__all__ = ["Declared", "Plan"]


class Declared:
    """Volumes and the stores they are in. InvalidInputError says all that is wrong, for a file with its
    lines. `plan`, `up` and `down` need one that was loaded from a file."""

    def __init__(
        self,
        *,
        volumes: Sequence[DeclaredVolume | Mapping[str, Any]] = (),
        stores: Mapping[str, DeclaredStore | Storage | Mapping[str, Any] | str] | None = None,
    ) -> None:
        self._blocking = model.Declared(volumes=volumes, stores={} if stores is None else stores)

    @classmethod
    def _of(cls, blocking: model.Declared) -> Declared:
        made = cls.__new__(cls)
        made._blocking = blocking
        return made

    @property
    def volumes(self) -> tuple[DeclaredVolume, ...]:
        return self._blocking.volumes

    @property
    def stores(self) -> dict[str, AnyStore]:
        return self._blocking.stores

    @property
    def file(self) -> Path | None:
        """The file it was loaded from; None for one made in Python."""
        return self._blocking.file

    def is_named(self, store: str) -> bool:
        """Whether the user has named that store: in Python, in the environment, in a file that the user
        named or that is the user's own. Else a file says so that was merely found."""
        return self._blocking.is_named(store)

    @staticmethod
    async def load(path: str | os.PathLike[str] | None = None) -> Declared:
        """From that file; None: the nearest one upwards from the working directory, else the user's
        own. NotFoundError, InvalidInputError with file and line."""
        return Declared._of(await in_thread(partial(model.Declared.load, path)))

    async def plan(self, *, prune: bool = False, mounts: bool = True) -> Plan:
        """What has to be done so that stores and this machine are as declared; nothing is written.
        prune: what an earlier apply of this file has recorded, and is declared no more, is
        unmounted and forgotten, and deleted in its store if that apply has created it. mounts: plan
        mounts, too. NotFoundError: a volume that is neither optional nor to be created is not there.
        """
        return Plan._of(await in_thread(partial(self._blocking.plan, prune=prune, mounts=mounts)))

    async def plan_deletion(self) -> Plan:
        """What undoes what plans of this file have applied: each of its volumes is unmounted and
        forgotten, and deleted in its store if a plan has created it. Nothing is written."""
        return Plan._of(await in_thread(self._blocking.plan_deletion))

    def emit(self, kind: Kind) -> str:
        """A script ("sh"), a service ("systemd") or a manifest ("k8s") that mounts what is declared.
        Nothing is looked up, and no secret is read."""
        return self._blocking.emit(kind)

    async def up(self, *, progress: ProgressListener | None = None) -> list[Outcome]:
        """Mounts every volume at its path, or none: what was mounted is unmounted again when one
        fails that is not optional."""
        return await in_thread(partial(self._blocking.up, progress=progress))

    async def down(self, *, force: bool = False) -> list[Outcome]:
        """Unmounts what `up` or a plan of this file has mounted; uncommitted work is kept. An outcome
        with an error is mounted still."""
        return await in_thread(partial(self._blocking.down, force=force))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Declared) and other._blocking == self._blocking

    def __hash__(self) -> int:
        return hash(self._blocking)

    def __repr__(self) -> str:
        return repr(self._blocking)


class Plan:
    """What `Declared.plan` has found. steps: in the order in which `apply` does them; each has an action
    (create, register, change, mount, delete, keep, skip). has_changes: one of them does something.
    notes: what a person should know. recorded: what it was compared with."""

    _blocking: plan_module.Plan

    @classmethod
    def _of(cls, blocking: plan_module.Plan) -> Plan:
        made = cls.__new__(cls)
        made._blocking = blocking
        return made

    @property
    def declared(self) -> Declared:
        return Declared._of(self._blocking.declared)

    @property
    def recorded(self) -> Applied:
        return self._blocking.recorded

    @property
    def steps(self) -> tuple[Step, ...]:
        return self._blocking.steps

    @property
    def notes(self) -> tuple[str, ...]:
        return self._blocking.notes

    @property
    def has_changes(self) -> bool:
        return self._blocking.has_changes

    async def apply(
        self, *, progress: ProgressListener | None = None, hears: Hears | None = None, force: bool = False
    ) -> None:
        """Does it. What fails ends it; what was done until then is recorded, and no part of the next
        plan. hears: of each step that is done, and of what became of a mount. force: deletes also
        what is in use, and volumes with uncommitted work, which is kept (`Volume.delete`)."""
        await in_thread(partial(self._blocking.apply, progress=progress, hears=hears, force=force))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and other._blocking == self._blocking

    def __hash__(self) -> int:
        return hash(self._blocking)

    def __repr__(self) -> str:
        return repr(self._blocking)
