"""Starts mount daemons: `python -m cowfs.daemon` in a session of its own, which reads its
specification from standard input. Once ready, it is no child of this process (`daemon.parting`),
except with `foreground`.

    to the daemon      stdin: one MountSpec as JSON, followed by a line with the credentials of a Storage, if it has
                       any (control.handover). Its environment has all other credentials, except the key of an
                       encrypted store (`programs`): the line has that store's key. A daemon that was started in
                       advance (`prepared`) opens its log at this point
    from the daemon    stdout: lines {"progress": {stage, done, total}} while it replays a journal, at last one line,
                       {"ready": {…}} or {"error": {kind, message, hint, details}}

The only descriptor that the daemon inherits is a handed-in /dev/fuse. The daemon outlives the
process that started it; a thread here reaps it if it is a child of this process. If it sends
nothing for too long, its process group is ended before the error is raised. Progress reports extend
that time without limit.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cowfs.api.mounts import feeding, prepared
from cowfs.api.mounts.prepared import Prepared, signal_all
from cowfs.base import clock, interruptible
from cowfs.base.errors import InvalidInputError, MountFailedError, from_record
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.programs import Program
from cowfs.control import MountSpec
from cowfs.control.handover import Handover
from cowfs.control.messages import Ready
from cowfs.control.typed import from_json
from cowfs.machine import daemon_log, mounting
from cowfs.store import AMBIENT, Access
from cowfs.store.credentials import trust
from cowfs.store.credentials.unlocking import StoreKey
from cowfs.version.commit import Progress, ProgressListener

READY_TIMEOUT_S = 300.0
"""Counts from the last progress report. A guess: it must suffice for everything except loading
and replaying, and a hang must not pass for work."""
END_TIMEOUT_S = 10.0
END_LOOK_S = 0.01


@dataclass(frozen=True)
class Started:
    """A daemon that serves its mount. ready: the daemon's report about itself. wait blocks until a
    daemon in the foreground ends, and returns its exit status."""

    ready: Ready
    wait: Callable[[], int]

    @property
    def pid(self) -> int:
        return self.ready.pid


def start(
    spec: MountSpec,
    *,
    access: Access = AMBIENT,
    known: Mapping[str, bytes] = MappingProxyType({}),
    progress: ProgressListener = lambda _: None,
    ready_timeout_s: float = READY_TIMEOUT_S,
) -> Started:
    """Starts a daemon and waits until it is mounted. access: its access to the store; this process
    supplies new credentials as long as it lives. known: objects of the store, by key, that this
    process has read. progress: called during the replay of a journal."""
    given = access.identity.ready() if access.identity is not None else None
    key = access.key.value.hex() if isinstance(access.key, StoreKey) else None
    texts = {name: data.decode() for name, data in known.items()}
    handover = Handover(
        given, access.path_style, access.credential_process, access.is_fed, key, texts, trust.format_for_export()
    )
    process, early = _process(spec)
    try:
        answer = _exchange(process, spec, handover, progress, ready_timeout_s)
        if "ready" not in answer:
            raise _refusal(process, spec, answer, early)
        ready = from_json(Ready, answer["ready"], "what the mount daemon says")
    except BaseException:
        _end(process)
        raise
    finally:
        if early is not None:
            early.close()
    if access.identity is not None and access.is_fed:
        feeding.start(spec.registration, spec.socket, access.identity, given)
    threading.Thread(target=_reap, args=(process, ready.pid), name=f"reap-{ready.pid}", daemon=True).start()
    return Started(ready, process.wait)


def _reap(process: Program, pid: int) -> None:
    """pid: of the daemon. It becomes a child of this process again if this process adopts orphans,
    as the first process of a container does."""
    process.wait()
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _process(spec: MountSpec) -> tuple[Program, Prepared | None]:
    fuse_fd = spec.options.fuse_fd
    if fuse_fd is not None:
        try:
            os.fstat(fuse_fd)
        except OSError as error:
            raise InvalidInputError(
                f"descriptor {fuse_fd} is not open",
                hint="Hand in an open /dev/fuse descriptor that this process inherited.",
            ) from error
        mounting.require_seen(fuse_fd, spec.mount_path)
    log = daemon_log.open_log(Path(spec.log))
    try:
        if fuse_fd is None and not spec.options.foreground and (early := prepared.take()) is not None:
            return early.process, early
        stays = spec.options.foreground
        return prepared.spawn(prepared.environment(), None if stays else log, fuse_fd, stays=stays), None
    finally:
        os.close(log)


def _exchange(
    process: Program,
    spec: MountSpec,
    handover: Handover,
    progress: ProgressListener,
    silence_s: float,
) -> dict[str, Any]:
    """The daemon's last message; {} if it ended without one."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # it died at once: its silence is reported below
        process.stdin.write(spec.to_json().encode() + b"\n" + handover.to_line())
        process.stdin.close()
    received = b""
    deadline_s = clock.monotonic_s() + silence_s
    with process.stdout as pipe:
        while True:
            line, newline, rest = received.partition(b"\n")
            if newline:
                said, received = _parse(line), rest
                interruptible.require_wanted()
                if not isinstance(event := said.get("progress"), dict):
                    return said
                deadline_s = clock.monotonic_s() + silence_s
                progress(from_json(Progress, event))
                continue
            left_s = deadline_s - clock.monotonic_s()
            if left_s <= 0:
                raise MountFailedError(
                    f"the mount daemon of {spec.volume!r} is not ready in time", hint=f"Its log: {spec.log}"
                )
            if not select.select([pipe], [], [], min(left_s, interruptible.LOOK_S))[0]:
                interruptible.require_wanted()
                continue
            data = os.read(pipe.fileno(), 65536)
            if not data:
                return _parse(received)
            received += data


def _parse(line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _refusal(process: Program, spec: MountSpec, answer: dict[str, Any], early: Prepared | None) -> Exception:
    if isinstance(answer.get("error"), dict):
        return from_record(answer["error"])
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_TIMEOUT_S)
    if early is not None:
        with open(daemon_log.open_log(Path(spec.log)), "ab") as log:
            log.write(early.last_words())
    return MountFailedError(
        f"the mount daemon of {spec.volume!r} ended before it was ready (exit status {process.returncode})",
        hint=f"Its log, {spec.log}, ends: {_last_line(Path(spec.log))}",
    )


def _last_line(path: Path) -> str:
    said = path.read_bytes()[-4096:] if path.exists() else b""
    lines = said.decode(errors="replace").splitlines()
    return lines[-1] if lines else "(empty)"


def _end(process: Program) -> None:
    """Terminates a daemon that is not needed. It then unmounts its mount."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    if not _ends(process, 1.0):
        signal_all(process, signal.SIGTERM)
        if not _ends(process, END_TIMEOUT_S):
            signal_all(process, signal.SIGKILL)
            _ends(process, END_TIMEOUT_S)


def _ends(process: Program, timeout_s: float) -> bool:
    """Whether the whole process group ends in time. The intermediate process ends earlier than the
    daemon."""
    end_s = clock.monotonic_s() + timeout_s
    while process.poll() is None or signal_all(process, None):
        if clock.monotonic_s() > end_s:
            return False
        clock.sleep_s(END_LOOK_S)
    return True
