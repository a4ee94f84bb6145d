"""The volumes of one call: mounted before the body, published after it, or left when it fails.

    open       mounts the listed volumes in their order
    finish     replaces the writers in the result by the versions that finalizing them makes; then publishes the listed
               rw, fork and shared volumes that are not in the result; then unmounts what is left
    leave      after an exception or a stop, each volume of the call by its policy:
               keep      unmount and keep uncommitted work; a note of the exception and the log say how to go on
               commit    publish it with a message and a label that name the exception
               discard   drop uncommitted work, except for a volume that had some before the call
               Forks that hold nothing of their own are deleted.

Everything here is blocking and runs in one thread at a time. The volumes are blocking objects.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from cowfs.api import arguments, names, ro_volume, rw_volume, stores
from cowfs.api.declared import placeholders
from cowfs.api.mounts import abandoned
from cowfs.api.mounts.process_binding import ERROR_LABEL
from cowfs.api.ro_volume import ROVolume
from cowfs.api.rw_volume import RWVolume
from cowfs.api.tasks.returned import replace_volumes
from cowfs.api.tasks.task_volume import FORKING
from cowfs.api.twins import volume_fields
from cowfs.api.twins.one_type import unwrap
from cowfs.api.twins.twin import as_async
from cowfs.api.versions import deleting, waiting
from cowfs.api.versions.labels import Labels
from cowfs.api.volume import Volume
from cowfs.base import clock, interruptible, log
from cowfs.base.errors import (
    ConflictError,
    CowfsError,
    InvalidStateError,
    LeaseHeldError,
    LeaseLostError,
    NotFoundError,
)
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.version.names import volumes

if TYPE_CHECKING:
    from cowfs.api.tasks.scope import Opened, Scope
    from cowfs.api.tasks.task_volume import TaskVolume

Policy = Literal["keep", "commit", "discard"]
Returns = Literal["version", "locator"]
PAUSE_S = 0.2
"""Between looks at a mount of this machine."""

_log = log.get("task")


@dataclass(frozen=True)
class Plan:
    """What the decorator says. name: of the function, for names of forks. message, author, labels:
    of the versions that the call makes."""

    volumes: Sequence[TaskVolume]
    name: str
    on_error: Policy = "keep"
    on_stop: Policy = "keep"
    returns: Returns = "version"
    wait: float | str | None = None
    message: str = ""
    author: str | None = None
    labels: Labels | None = None

    @property
    def may_discard(self) -> bool:
        return "discard" in (self.on_error, self.on_stop)


class Call:
    def __init__(self, plan: Plan, scope: Scope) -> None:
        self.plan = plan
        self.scope = scope
        self._pid = os.getpid()
        self._is_open = False
        self._published: dict[int, ROVolume] = {}
        """By the id of the writer, which the scope or the result keeps alive."""

    @property
    def is_in_child(self) -> bool:
        """Whether this is a child that the body has forked. The volumes are its parent's."""
        return os.getpid() != self._pid

    def require_parent(self) -> None:
        if self.is_in_child:
            raise InvalidStateError(
                f"a child that was forked in {self.plan.name} has returned from it",
                hint="Only the process that was called publishes. End the child with os._exit().",
            )

    # -- before the body

    def open(self) -> None:
        """An error leaves volumes mounted, for `leave`."""
        for spec in self.plan.volumes:
            self._open(spec)
        self._is_open = True

    def _open(self, spec: TaskVolume) -> None:
        source = placeholders.filled(spec.source)
        if spec.mode == "rw":
            volume: Opened = Volume.open(source, create=True)
        elif spec.mode in FORKING:
            base = self._base(spec, source)
            volume = base.fork(self._fork_name(spec, base))
        else:
            volume = Volume.version(source)
        self.scope.listed.append((spec, volume))
        if spec.mode == "rw":
            _mount_alone(volume, spec, self.plan.wait)
        elif spec.mode == "scratch":
            volume.mount(spec.path, options=spec.options, scratch=True)
        else:
            volume.mount(spec.path, options=spec.options)

    def _base(self, spec: TaskVolume, source: str) -> ROVolume:
        """For a shared one, the first of several calls makes the volume and an empty version."""
        end_s = clock.monotonic_s() + waiting.WAIT_S
        while True:
            try:
                return Volume.version(source)
            except NotFoundError:
                if spec.mode != "shared":
                    raise
            try:
                return Volume.open(source, create=True).commit()
            except (LeaseHeldError, LeaseLostError):  # another call makes it
                if clock.monotonic_s() > end_s:
                    raise
            clock.sleep_s(waiting.SHORTEST_PAUSE_S)

    def _fork_name(self, spec: TaskVolume, base: ROVolume) -> str:
        if spec.fork_name is not None:
            return placeholders.filled(spec.fork_name)
        function = re.sub(r"[^A-Za-z0-9]+", "-", self.plan.name).strip("-")
        return f"{base.name}-{function}"[: names.LONGEST - 7].rstrip("-")

    # -- after the body

    def finish(self, result: Any) -> Any:
        """The result with versions in place of writers. After an error the work that is not
        published is kept, whatever the policy: the body has succeeded."""
        try:
            result = replace_volumes(result, self._as_result)
            for spec, volume in self.scope.listed:
                if isinstance(volume, RWVolume) and (not volume.is_over or spec.mode == "shared"):
                    self._publish(volume)
            for volume in self._volumes():
                _end(volume)
        except BaseException as error:
            self.leave(error, "keep")
            raise
        return result

    def _as_result(self, value: Any) -> Any:
        if not isinstance(value, RWVolume | ROVolume):
            return value
        volume = unwrap(value)
        version = self._publish(volume) if isinstance(volume, RWVolume) else volume
        if self.plan.returns == "locator":
            return cast("ROVolume", version).locator
        if version is volume:
            return value
        return version if volume is value else as_async(version)

    def _publish(self, volume: RWVolume) -> ROVolume:
        """Finalizes the volume and, for a shared one, merges it; once. A volume that the body has
        finalized or discarded has its last version already."""
        if id(volume) not in self._published:
            version = _last_version(volume) if volume.is_over else self._finalize(volume)
            spec = self._spec_of(volume)
            if spec is not None and spec.mode == "shared":
                version = _merge(spec, volume.name, version, self.plan)
            self._published[id(volume)] = version
        return self._published[id(volume)]

    def _finalize(self, volume: RWVolume) -> ROVolume:
        """A volume without changes gets no version that differs in the message only."""
        if volume.locator is not None and not volume.has_changes():
            return volume.finalize()
        return volume.finalize(self.plan.message, author=self.plan.author, labels=self.plan.labels)

    def _spec_of(self, volume: Opened) -> TaskVolume | None:
        return next((spec for spec, each in self.scope.listed if each is volume), None)

    def _volumes(self) -> list[Opened]:
        """Those of the call, the last one first. One that could not be mounted is listed only."""
        every = [*(each for _, each in self.scope.listed), *self.scope.mounted]
        return list({id(each): each for each in reversed(every)}.values())

    # -- instead of that

    def leave(self, error: BaseException, policy: Policy) -> None:
        """Leaves each volume that is still mounted. Never hides the error. If the body did not
        begin, any work is of an earlier call, and is kept."""
        policy = policy if self._is_open else "keep"
        for volume in self._volumes():
            try:
                if isinstance(volume, RWVolume):
                    self._leave_writer(volume, error, policy)
                else:
                    _leave_version(volume)
            except (CowfsError, OSError) as failure:
                abandoned.tell(error, [f"{volume!r} could not be left: {failure}"], is_logged=True)

    def version_after(self, volume: Opened) -> tuple[str | None, bool]:
        """(locator, is new) of a volume that was left: of a writer, the version that leaving it has
        made."""
        if not isinstance(volume, RWVolume):
            return volume.locator, False
        is_committed = rw_volume.get_handle(volume).ended == "finalized"
        return (volume.locator, True) if is_committed else (None, False)

    def _leave_writer(self, volume: RWVolume, error: BaseException, policy: Policy) -> None:
        if not volume.is_over:
            if policy == "commit":
                _commit_after(volume, error, self.plan)
            had_no_work = any(each is volume for each in self.scope.had_no_work)
            if policy == "discard" and had_no_work and rw_volume.get_handle(volume).is_last_user():
                volume.discard(force=True)
            else:
                volume.leave(error)
        if (spec := self._spec_of(volume)) is not None and spec.mode in FORKING:
            _delete_if_empty(volume)


def _mount_alone(volume: RWVolume, spec: TaskVolume, wait: float | str | None) -> None:
    """Mounts the volume for this call alone. The users of a mount are one writer: each would
    publish what the others have half written. LeaseHeldError: it is mounted on this machine
    already, also after `wait`."""
    end_s, handle = clock.monotonic_s() + arguments.wait_s(wait), rw_volume.get_handle(volume)
    while True:
        volume.resolve()
        entry = handle.live()
        if entry is None:
            left_s = max(0.0, end_s - clock.monotonic_s())
            volume.mount(spec.path, options=spec.options, wait=left_s)
            entry = handle.live()
            made = handle.started.ready.registration if handle.started is not None else None
            is_alone = entry is None or (entry.id == made if entry.has_daemon else handle.is_last_user())
            if is_alone:
                return
            volume.unmount()
        if clock.monotonic_s() >= end_s or interruptible.is_cancelled():
            at = f" at {entry.mount_path}" if entry is not None else ""
            raise LeaseHeldError(
                f"volume {volume.name!r} is mounted{at} by another call or program of this machine",
                hint="Wait until that ends (wait=...), or list the volume as shared, which gives each call a fork.",
            )
        interruptible.require_wanted()
        clock.sleep_s(PAUSE_S)


def _end(volume: Opened) -> None:
    """Ends the use of a version, or of a writer that the body has mounted and did not return."""
    if not isinstance(volume, RWVolume):
        _leave_version(volume)
    elif not volume.is_over and volume_fields.owns_mount(volume):
        if volume.has_changes():
            _log.warning("%s", abandoned.resume_hint(volume.name, volume.store_url))
        volume.unmount()


def _leave_version(version: ROVolume) -> None:
    """Also takes the mount of a daemon that has died off its path."""
    try:
        version.__exit__(None, None, None)
    except ConflictError:  # a scratch with open files, often of the frames of a traceback
        version.unmount(force=True)


def _last_version(volume: RWVolume) -> ROVolume:
    locator = volume.locator
    if locator is None:
        raise InvalidStateError(
            f"volume {volume.name!r} was returned, and has no version",
            hint="Return it before it is discarded, or leave it out of the result.",
        )
    return Volume.from_locator(locator, store=stores.storage_of(rw_volume.get_handle(volume).named))


def _merge(spec: TaskVolume, fork: str, version: ROVolume, plan: Plan) -> ROVolume:
    """Merges the fork into the volume that it started from, and deletes it."""
    target = Volume.open(placeholders.filled(spec.source))
    try:
        report = target.merge(
            [version], strategy=spec.strategy, message=version.message, author=plan.author, labels=plan.labels
        )
    except ConflictError as error:
        error.details["fork"] = fork
        error.set_hint(
            f"Volume {fork!r} has the work, in version {version.id[:12]}. Merge it with a strategy: "
            f"{Command('merge', fork, '--into', target.name, '--strategy', '…')}, or merge(). {error.open_hint}"
        )
        raise
    _delete(fork, version)
    merged = Volume.from_locator(report.locator)
    return ro_volume.make_version(replace(ro_volume.locate(merged), is_new=report.is_new))


def _commit_after(volume: RWVolume, error: BaseException, plan: Plan) -> None:
    kind = type(error).__name__
    labels = {**(plan.labels or {}), ERROR_LABEL: kind}
    try:
        version = volume.finalize(plan.message or f"after an error: {kind}", author=plan.author, labels=labels)
    except CowfsError as failure:
        abandoned.tell(error, [f"Volume {volume.name!r} could not be committed: {failure}"], is_logged=True)
    else:
        abandoned.tell(error, [f"Volume {volume.name!r} was committed: {version.locator}"], is_logged=True)


def _delete_if_empty(fork: RWVolume) -> None:
    """Deletes a fork that has neither a version nor work of its own: a task that is tried again
    would leave one each time."""
    base = fork.forked_from
    if base is not None and not fork.has_changes():
        _delete(fork.name, base)


def _delete(fork: str, version: ROVolume) -> None:
    """Deletes the fork if that version is still its last one. A fork that cannot be deleted stays:
    it is no failure of the task."""
    located = ro_volume.locate(version)
    store = located.storage or version.store_url
    try:
        if volumes.read_head(stores.open_store(store).objects, fork).version == located.version:
            deleting.delete(fork, store, force=False)
    except CowfsError as error:
        _log.info("the fork %s stays: %s", fork, error)
