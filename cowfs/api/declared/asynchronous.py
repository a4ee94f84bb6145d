"""The async twins of `Declared` and its `Plan`: the same names and arguments, awaited; under
asyncio and trio alike.

Generated from the blocking classes by `python -m tests.api.async_twin`; change those, not this
file. What each call does is as in `cowfs.api.asynchronous`.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cowfs.api.declared import model
from cowfs.api.declared import plan as plan_module
from cowfs.api.declared.model import DeclaredVolume
from cowfs.api.declared.store import AnyStore, DeclaredStore
from cowfs.api.storage.storage import Storage
from cowfs.api.twins import Twin
from cowfs.machine.applied import Applied
from cowfs.version.commit import ProgressListener

if TYPE_CHECKING:
    from cowfs.api.declared.applying import Hears
    from cowfs.api.declared.emitting import Kind
    from cowfs.api.declared.mounting import Outcome
    from cowfs.api.declared.plan import Step

__all__ = ["Declared", "Plan"]


class Declared(Twin, of=model.Declared):
    """Volumes and the stores they are in. InvalidInputError says all that is wrong, for a file with
    its lines. `plan`, `up` and `down` need one that was loaded from a file."""

    _blocking: model.Declared

    def __init__(
        self,
        *,
        volumes: Sequence[DeclaredVolume | Mapping[str, Any]] = (),
        stores: Mapping[str, DeclaredStore | Storage | Mapping[str, Any] | str] | None = None,
    ) -> None:
        super().__init__(model.Declared(volumes=volumes, stores={} if stores is None else stores))

    @property
    def volumes(self) -> tuple[DeclaredVolume, ...]: ...
    @property
    def stores(self) -> dict[str, AnyStore]: ...
    @property
    def file(self) -> Path | None:
        """The file it was loaded from; None for one made in Python."""

    def is_named(self, store: str) -> bool:
        """Whether the user has named that store: in Python, in the environment, in a file that the
        user named or that is the user's own. Else a file says so that was merely found."""
        return self._blocking.is_named(store)

    @staticmethod
    async def load(path: str | os.PathLike[str] | None = None) -> Declared:
        """From that file; None: the nearest one upwards from the working directory, else the user's
        own. NotFoundError, InvalidInputError with file and line."""

    async def plan(self, *, prune: bool = False, mounts: bool = True) -> Plan:
        """What has to be done so that stores and this machine are as declared; nothing is written.
        prune: what an earlier apply of this file has recorded, and is declared no more, is
        unmounted and forgotten, and deleted in its store if that apply has created it. mounts: plan
        mounts, too. NotFoundError: a volume that is neither optional nor to be created is not
        there.
        """

    async def plan_deletion(self) -> Plan:
        """What undoes what plans of this file have applied: each of its volumes is unmounted and
        forgotten, and deleted in its store if a plan has created it. Nothing is written."""

    def emit(self, kind: Kind) -> str:
        """A script ("sh"), a service ("systemd") or a manifest ("k8s") that mounts what is
        declared. Nothing is looked up, and no secret is read."""
        return self._blocking.emit(kind)

    async def up(self, *, progress: ProgressListener | None = None) -> list[Outcome]:
        """Mounts every volume at its path, or none: what was mounted is unmounted again when one
        fails that is not optional."""

    async def down(self, *, force: bool = False) -> list[Outcome]:
        """Unmounts what `up` or a plan of this file has mounted; uncommitted work is kept. An
        outcome with an error is mounted still."""


class Plan(Twin, of=plan_module.Plan):
    """What `Declared.plan` has found. steps: in the order in which `apply` does them; each has an
    action (create, register, change, mount, delete, keep, skip). has_changes: one of them does
    something. notes: what a person should know. recorded: what it was compared with."""

    _blocking: plan_module.Plan

    @property
    def declared(self) -> Declared: ...
    @property
    def recorded(self) -> Applied: ...
    @property
    def steps(self) -> tuple[Step, ...]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...
    @property
    def has_changes(self) -> bool: ...
    async def apply(
        self, *, progress: ProgressListener | None = None, hears: Hears | None = None, force: bool = False
    ) -> None:
        """Does it. What fails ends it; what was done until then is recorded, and no part of the
        next plan. hears: of each step that is done, and of what became of a mount. force: deletes
        also what is in use, and volumes with uncommitted work, which is kept (`Volume.delete`)."""
