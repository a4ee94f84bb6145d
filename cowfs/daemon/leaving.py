"""Leaves the mount for a process that is gone, by its binding (`control.binding`).

Nothing happens while other processes share the mount, or if `cowfs mount` requested it. Otherwise a
commit under way finishes first, the work is published or dropped as the binding says, and the mount
ends: programs with open files lose them. The end releases the lease. A read-only mount, and a
scratch that no volume was made of, have no work.

Runs on the thread of `bound_processes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cowfs.base import clock, log
from cowfs.base.errors import CowfsError
from cowfs.base.quantities import format_time
from cowfs.control import MountSpec
from cowfs.control.binding import Binding
from cowfs.daemon.registration import Registration
from cowfs.daemon.requests import Requests
from cowfs.machine import left_notes, registry, sharing
from cowfs.machine.processes import ProcessIdentity
from cowfs.machine.sharing import Sharers

_logger = log.get("mount")

FORK_S = 2.0
"""A child that the process forked just before its end shares the mount until it has run its first
instructions."""

End = Callable[[bool], None]
"""Takes the mount down and waits until everything is released. The argument: whether the working
copy is deleted."""


class Leaving:
    """end: called while no process can join the mount."""

    def __init__(self, spec: MountSpec, registration: Registration, requests: Requests, end: End) -> None:
        self._spec = spec
        self._registration = registration
        self._requests = requests
        self._end = end
        self._shared_since_s: dict[ProcessIdentity, float] = {}

    def leave(self, binding: Binding) -> bool:
        """False: call it again after a pause, since another process is ending the mount and may
        give up, or was just forked."""
        entry = self._registration.entry
        if entry.is_detached or registry.is_lasting(entry):
            self._stay(binding, "`cowfs mount` requested it, or files are open")
            return True
        sharers = self._with_sharers(lambda: None)
        if sharers == "none":
            if binding.process in self._shared_since_s and binding.on_error == "discard":
                binding = replace(binding, on_error="keep")  # the other process may have written, too
            note = self._settle_work(binding)
            sharers = self._with_sharers(lambda: self._take_down(binding, note))
        if sharers == "some":
            since_s = self._shared_since_s.setdefault(binding.process, clock.monotonic_s())
            if clock.monotonic_s() < since_s + FORK_S:
                return False
            self._stay(binding, "other processes share it")
        return sharers != "ending"

    def _stay(self, binding: Binding, why: str) -> None:
        _logger.info("process %d, which used this mount, is gone; the mount stays: %s", binding.process.pid, why)

    def _with_sharers(self, if_none: Callable[[], None]) -> Sharers:
        with sharing.excluding(self._registration.entry, self._registration.held) as sharers:
            if sharers == "none":
                if_none()
            return sharers

    def _settle_work(self, binding: Binding) -> str:
        """Commits, if the binding says so. Returns the note for the working copy."""
        when = format_time(clock.now_ns(), to_the_second=True)
        gone = f"process {binding.process.pid}, which used the mount at {self._spec.mount_path}, was gone at {when}"
        if not self._requests.has_writer:
            return gone
        if binding.on_error == "discard":
            self._requests.wait_for_commit()
            return f"{gone}; its uncommitted work is dropped"
        if binding.on_error == "keep":
            self._requests.wait_for_commit()
            return f"{gone}; its uncommitted work, if there is any, is kept"
        try:
            committed = self._requests.commit_left(binding.commit)
        except CowfsError as error:
            return f"{gone}; its work could not be committed and was kept: {error.message}"
        if committed is None:
            return f"{gone}; there was nothing to commit"
        return f"{gone}; its work was committed as version {committed.version.hex()[:12]}"

    def _take_down(self, binding: Binding, note: str) -> None:
        is_discarded = binding.on_error == "discard"
        _logger.warning("%s. Unmounting %s", note, self._spec.mount_path)
        if self._spec.mode == "rw" and self._spec.working_copy is not None and not is_discarded:
            left_notes.write(Path(self._spec.working_copy), note)
        self._end(is_discarded)
