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

from cowfs.api.declared import declared
from cowfs.api.declared import plan as plan_module
from cowfs.api.declared.declared_store import AnyStore, DeclaredStore
from cowfs.api.declared.model import Declaration, DeclaredVolume
from cowfs.api.storage.definition import Storage
from cowfs.api.twins import Twin
from cowfs.machine.applied import Applied
from cowfs.version.commit import ProgressListener

if TYPE_CHECKING:
    from cowfs.api.declared.applying import Hears
    from cowfs.api.declared.emitting import Kind
    from cowfs.api.declared.mounting import Outcome
    from cowfs.api.declared.plan import Step

__all__ = ["Declared", "Plan"]


class Declared(Twin, of=declared.Declared):
    """Volumes and the stores they are in. InvalidInputError reports all problems at once, with line
    numbers if they are in a file. `plan`, `up` and `down` need a declaration that was loaded from a
    file."""

    _blocking: declared.Declared

    def __init__(
        self,
        *,
        volumes: Sequence[DeclaredVolume | Mapping[str, Any]] = (),
        stores: Mapping[str, DeclaredStore | Storage | Mapping[str, Any] | str] | None = None,
    ) -> None:
        super().__init__(declared.Declared(volumes=volumes, stores={} if stores is None else stores))

    @property
    def volumes(self) -> tuple[DeclaredVolume, ...]: ...
    @property
    def stores(self) -> dict[str, AnyStore]: ...
    @property
    def file(self) -> Path | None:
        """The file it was loaded from; None for one made in Python."""

    @property
    def is_merely_found(self) -> bool:
        """Whether its file was found upwards from the working directory, and the user has neither
        named nor allowed it (`cowfs allow FILE`). Such a file mounts below its own directory only.
        """

    def is_named(self, store: str) -> bool:
        """Whether the user has named that store: in Python, in the environment, in the user's own
        file, or in a file that the user named or allowed. False if only a file that was merely
        found defines it."""
        return self._blocking.is_named(store)

    @staticmethod
    async def load(path: str | os.PathLike[str] | None = None) -> Declared:
        """Loads that file; None: the nearest one upwards from the working directory, else the
        user's own. NotFoundError; InvalidInputError with the file and the key's path."""

    async def plan(self, *, prune: bool = False, mounts: bool = True) -> Plan:
        """The steps that bring stores and this machine into the declared state. Nothing is written.
        prune: a volume that an earlier apply of this file has recorded, but that is no longer
        declared, is unmounted and dropped from the record. If that apply had created it, it is also
        deleted in its store. mounts: plan mounts, too. NotFoundError: a volume does not exist, and
        is neither optional nor to be created.
        """

    async def plan_deletion(self) -> Plan:
        """The steps that undo the plans applied for this file. Each of its volumes is unmounted and
        dropped from the record. If a plan had created it, it is also deleted in its store. Nothing
        is written."""

    def emit(self, kind: Kind) -> str:
        """A script ("sh"), a service ("systemd") or a manifest ("k8s") that mounts the declared
        volumes. No store is queried, and no secret is read."""
        return self._blocking.emit(kind)

    async def up(self, *, progress: ProgressListener | None = None) -> list[Outcome]:
        """Mounts every volume at its path, or none. If a volume fails that is not optional, the
        mounts made by this call are unmounted again."""

    async def down(self, *, force: bool = False) -> list[Outcome]:
        """Unmounts the volumes that `up` or a plan of this file has mounted. Uncommitted work is
        kept. A volume whose outcome has an error is still mounted."""


class Plan(Twin, of=plan_module.Plan):
    """The result of `Declared.plan`. steps: in the order in which `apply` runs them; each has an
    action (create, register, change, mount, delete, keep, skip). has_changes: at least one step
    does something. notes: remarks for the user. recorded: the record that the plan was compared
    with."""

    _blocking: plan_module.Plan

    @property
    def declared(self) -> Declaration: ...
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
        """Runs the steps. The first error ends it. The steps done by then are recorded and left out
        of the next plan. hears: called after each step, and with the outcome of each mount. force:
        delete volumes even if they are in use or have uncommitted work, which is kept
        (`Store.delete`)."""
