"""Starts mount daemons: `python -m cowfs.daemon` in a session of its own, told what to do on its
standard input.

    to the daemon      stdin: one MountSpec as JSON, and behind it a line with the credentials that a Storage gave, if one did
                       (control.handover); its environment (all other credentials come that way). It may have been started
                       before (`prepared`), and opens its log itself then
    from the daemon    stdout: lines {"progress": {stage, done, total}} while it replays a journal, at last one line,
                       {"ready": {…}} or {"error": {kind, message, hint, details}}

The daemon inherits no descriptor but a handed-in /dev/fuse. It outlives the process that started
it, and a thread here reaps it if it does not. A daemon that says nothing for too long is ended by
its pid before the error is raised; one that reports progress has all the time it needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cowfs import apart, clock
from cowfs.api import feeding, prepared
from cowfs.api.prepared import Prepared
from cowfs.control import MountSpec
from cowfs.control.handover import Handover
from cowfs.control.messages import Ready
from cowfs.control.typed import from_json
from cowfs.errors import InvalidInputError, MountFailedError, from_record
from cowfs.machine import daemon_log, mounting
from cowfs.store import AMBIENT, Access, trust
from cowfs.store.unlocking import StoreKey
from cowfs.values import dataclass
from cowfs.version.commit import Progress, ProgressListener

READY_TIMEOUT_S = 300.0
"""Since the last sign of progress. A guess: everything but loading and replaying must fit in, a
hang must not look like work."""
END_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Started:
    """A daemon that serves its mount. ready is what it said about itself; wait blocks until it
    ends."""

    ready: Ready
    pid: int
    wait: Callable[[], int]


def start(
    spec: MountSpec,
    *,
    access: Access = AMBIENT,
    known: Mapping[str, bytes] = MappingProxyType({}),
    progress: ProgressListener = lambda _: None,
    ready_timeout_s: float = READY_TIMEOUT_S,
) -> Started:
    """Starts a daemon and waits until it is mounted. access: how it asks its store; new credentials
    are brought to it for as long as this process lives. known: objects of the store, by key, that
    this process has read. progress hears how far the replay of a journal is."""
    given = access.identity.ready() if access.identity is not None else None
    key = access.key.value.hex() if isinstance(access.key, StoreKey) else None
    texts = {name: data.decode() for name, data in known.items()}
    handover = Handover(
        given, access.path_style, access.credential_process, access.is_fed, key, texts, trust.exported()
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
    threading.Thread(target=process.wait, name=f"reap-{process.pid}", daemon=True).start()
    return Started(ready, process.pid, process.wait)


def _process(spec: MountSpec) -> tuple[subprocess.Popen[bytes], Prepared | None]:
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
    log = daemon_log.opened(Path(spec.log))
    try:
        if fuse_fd is None and not spec.options.foreground and (early := prepared.take()) is not None:
            return early.process, early
        return prepared.spawn(prepared.environment(), None if spec.options.foreground else log, fuse_fd), None
    finally:
        os.close(log)


def _exchange(
    process: subprocess.Popen[bytes],
    spec: MountSpec,
    handover: Handover,
    progress: ProgressListener,
    silence_s: float,
) -> dict[str, Any]:
    """The daemon's last word; {} when it ended without one."""
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
                apart.require_wanted()
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
            if not select.select([pipe], [], [], min(left_s, apart.LOOK_S))[0]:
                apart.require_wanted()
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


def _refusal(
    process: subprocess.Popen[bytes], spec: MountSpec, answer: dict[str, Any], early: Prepared | None
) -> Exception:
    if isinstance(answer.get("error"), dict):
        return from_record(answer["error"])
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_TIMEOUT_S)
    if early is not None:
        with open(daemon_log.opened(Path(spec.log)), "ab") as log:
            log.write(early.last_words())
    return MountFailedError(
        f"the mount daemon of {spec.volume!r} ended before it was ready (exit status {process.returncode})",
        hint=f"Its log, {spec.log}, ends: {_last_line(Path(spec.log))}",
    )


def _last_line(path: Path) -> str:
    said = path.read_bytes()[-4096:] if path.exists() else b""
    lines = said.decode(errors="replace").splitlines()
    return lines[-1] if lines else "(empty)"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a daemon that is of no use; it unmounts what it has mounted when told to terminate."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
