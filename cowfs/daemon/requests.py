"""What the control socket can ask of a mount: ping, status, commit, unmount, detach, discard.

    ping                                                    {"pid"}
    status                                                  what `cowfs status` shows
    commit   message, author, labels, produced_by, given    {"version", "locator", "head_number", "changed", "stats"}
    unmount  commit (bool, with commit's arguments), force  {"version", "head_number", "is_dirty"}; the process ends after the reply
    detach                                                  {}; off its path at once, served until the last file is closed
    discard  force                                          {}; as unmount, and the working copy is deleted

These run on connection threads, one commit at a time. A commit begins with `Mappings.flush`, so that it has everything
that was written or stored before it was asked for. Progress of a commit goes to all who have asked for one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cowfs import clock, failpoints
from cowfs.control import Handler, MountSpec
from cowfs.daemon.audience import Audience
from cowfs.daemon.mappings import Mappings
from cowfs.errors import InvalidInputError, InvalidStateError, ReadOnlyError
from cowfs.format.manifest import Manifest
from cowfs.session.keeper import Keeper
from cowfs.session.session import Session, Writer
from cowfs.version.commit import GIVABLE, Base, CommitRequest, ProgressListener
from cowfs.version.volumes import locator

COMMIT_ARGUMENTS = frozenset({"message", "author", "labels", "produced_by", "given"})


class Requests:
    """`end(force, discard)` takes the mount down and returns once everything is released; raises ConflictError while in use.
    `detach()` takes it off its path; it ends when nobody uses it any more.
    `transport()` says what carries the kernel's requests, `waiting()` which of them wait."""

    def __init__(
        self,
        spec: MountSpec,
        session: Session,
        keeper: Keeper,
        mappings: Mappings,
        end: Callable[[bool, bool], None],
        detach: Callable[[], None],
        transport: Callable[[], str],
        waiting: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._spec = spec
        self._session = session
        self._mappings = mappings
        self._keeper = keeper
        self._end = end
        self._take_off = detach
        self._transport = transport
        self._waiting = waiting
        self._since_ns = clock.now_ns()
        self._commits = threading.Lock()
        self._audience = Audience()
        self._ended = False
        self.is_committing = False

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "ping": self._ping,
            "status": self._status,
            "commit": self._commit,
            "unmount": self._unmount,
            "detach": self._detach,
            "discard": self._discard,
        }

    def finish(self, timeout_s: float) -> None:
        """Lets no commit begin any more, and waits for one under way, at most timeout_s."""
        self._ended = True
        if self._commits.acquire(timeout=timeout_s):
            self._commits.release()

    def _ping(self, arguments: dict[str, Any], progress: ProgressListener) -> dict[str, Any]:
        _only(arguments)
        return {"pid": os.getpid()}

    def _status(self, arguments: dict[str, Any], progress: ProgressListener) -> dict[str, Any]:
        _only(arguments)
        session, spec, base = self._session, self._spec, self._session.base
        status = {
            "pid": os.getpid(),
            "registration": spec.registration,
            "mount_path": spec.mount_path,
            "source": spec.source,
            "store_url": session.store.url,
            "store_id": session.record.store_id.hex(),
            "volume": spec.volume,
            "read_only": spec.mode == "ro",
            "version": base.version_id.hex() if base.version_id else None,
            "head_number": base.head_number,
            "since_ns": self._since_ns,
            "cache_dir": spec.cache_dir,
            "working_copy": spec.working_copy,
            "transport": self._transport(),
            "inodes_in_memory": session.engine.statfs()[1],
            "memory_bytes": _memory_bytes(),
            "abandoned_loads": self._keeper.abandoned_loads,
            **self._waiting(),
        }
        if (writer := session.writer) is not None:
            status |= {
                "is_dirty": session.engine.is_dirty(),
                "is_committing": self.is_committing,
                "epoch": writer.lease.epoch,
                "lease_lost": writer.lease_lost.message if writer.lease_lost else None,
                "heartbeat_age_s": round(clock.monotonic_s() - self._keeper.renewed_s, 1),
                "uploaded_bytes": self._keeper.uploaded_bytes,
                "upload_error": self._keeper.upload_error.message if self._keeper.upload_error else None,
                "resumed_records": session.resumed.records,
                "lost_files": [{"path": path, "bytes": size} for path, size in writer.committer.lost.paths()],
            }
        return status

    def _commit(self, arguments: dict[str, Any], progress: ProgressListener) -> dict[str, Any]:
        _only(arguments, *COMMIT_ARGUMENTS)
        request = _commit_request(arguments)
        writer = self._writer()
        with self._audience.joined(progress), self._commits:
            if self._ended:
                raise InvalidStateError(
                    "the mount is being taken down", hint="Mount the volume again; its work is kept."
                )
            if writer.lease_lost is not None:
                raise writer.lease_lost
            self.is_committing = True
            try:
                before = writer.committer.base
                self._mappings.flush()
                self._mappings.check()
                failpoints.hit("commit-mappings-flushed")
                base = self._session.commit(request, self._audience.tell)
            finally:
                self._audience.end()
                self.is_committing = False
        return self._committed(base, changed=base.version_id != before.version_id)

    def _unmount(self, arguments: dict[str, Any], progress: ProgressListener) -> dict[str, Any]:
        _only(arguments, "commit", "force", *COMMIT_ARGUMENTS)
        commit, force = _flag(arguments, "commit"), _flag(arguments, "force")
        result: dict[str, Any] = {}
        if commit:
            result = self._commit({key: arguments[key] for key in COMMIT_ARGUMENTS & arguments.keys()}, progress)
        elif COMMIT_ARGUMENTS & arguments.keys():
            raise InvalidInputError("a message without a commit", hint="Pass commit: true as well.")
        self._end(force, False)
        base = self._session.base
        return {
            "version": base.version_id.hex() if base.version_id else None,
            "head_number": base.head_number,
            "is_dirty": self._session.is_left_dirty,
            **result,
        }

    def _detach(self, arguments: dict[str, Any], progress: ProgressListener) -> dict[str, Any]:
        _only(arguments)
        self._take_off()
        return {}

    def _discard(self, arguments: dict[str, Any], progress: ProgressListener) -> dict[str, Any]:
        _only(arguments, "force")
        self._writer()
        self._end(_flag(arguments, "force"), True)
        return {}

    def _writer(self) -> Writer:
        writer = self._session.writer
        if writer is None:
            raise ReadOnlyError(
                f"{self._spec.mount_path} is a read-only mount of {self._spec.source}",
                hint="Fork the version and mount the fork.",
            )
        return writer

    def _committed(self, base: Base, *, changed: bool) -> dict[str, Any]:
        assert base.version_id is not None
        assert base.manifest is not None
        return {
            "version": base.version_id.hex(),
            "locator": str(locator(self._session.store, self._spec.volume, base.version_id)),
            "head_number": base.head_number,
            "changed": changed,
            "stats": _stats(base.manifest),
        }


def _memory_bytes() -> int:
    """What of this process lies in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _stats(manifest: Manifest) -> dict[str, int]:
    stats = manifest.stats
    return {
        "files": stats.files,
        "directories": stats.directories,
        "bytes": stats.bytes,
        "added_bytes": stats.added_bytes,
        "stored_bytes_added": stats.stored_bytes_added,
    }


def _commit_request(arguments: Mapping[str, Any]) -> CommitRequest:
    for name in ("message", "author"):
        if not isinstance(arguments.get(name, ""), str):
            raise InvalidInputError(f"{name} is not text: {arguments[name]!r}")
    for name in ("labels", "produced_by"):
        table = arguments.get(name, {})
        if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
            raise InvalidInputError(f"{name} is not a table of texts: {table!r}")
    given = arguments.get("given", [])
    if not isinstance(given, list) or any(name not in list(GIVABLE) for name in given):
        raise InvalidInputError(f"given is not a list of what may be given: {given!r}")
    return CommitRequest(
        message=arguments.get("message", ""),
        author=arguments.get("author", ""),
        labels=arguments.get("labels", {}),
        produced_by=arguments.get("produced_by", {}),
        given=frozenset(given),
    )


def _flag(arguments: Mapping[str, Any], name: str) -> bool:
    value = arguments.get(name, False)
    if not isinstance(value, bool):
        raise InvalidInputError(f"{name} is neither true nor false: {value!r}")
    return value


def _only(arguments: Mapping[str, Any], *known: str) -> None:
    if unknown := arguments.keys() - set(known):
        raise InvalidInputError(f"unknown arguments: {', '.join(sorted(unknown))}", hint="Use cowfs' own client.")
