"""The entry of a mount daemon: what it is started with, and how it exits.

apart           serves a mount, and does not stay a descendant of its starter (`parting`)
go-on           goes on with the mount of a daemon that was killed (`supervision`)
go-on given-up  takes off a mount that could not be gone on with (`given_up`)
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import signal
import sys
from pathlib import Path
from typing import NoReturn

from cowfs.base import log
from cowfs.base.errors import CowfsError, InvalidStateError, MountFailedError, to_message, unexpected
from cowfs.control import MountSpec
from cowfs.control.handover import Handover
from cowfs.daemon import given_up, starter, supervision
from cowfs.daemon.process import Daemon
from cowfs.daemon.signals import SIGNALS
from cowfs.machine import processes
from cowfs.session import heap
from cowfs.store.credentials import trust
from cowfs.supervisor import wire

DESCRIPTORS = 1 << 14

_logger = log.get("mount")


def main() -> NoReturn:
    """Entry of `python -m cowfs.daemon`: specification on standard input, answer on standard
    output."""
    answer_fd = os.dup(1)
    os.dup2(2, 1)  # nothing else may write into the answer
    os.chdir("/")  # the starter's directory may have to be unmounted, or lie below the mount point
    heap.limit_arenas()
    heap.collect_seldom()
    faulthandler.enable()
    log.configure()
    _raise_limits()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the starter may ignore it; exit statuses would then be lost
    for number in SIGNALS:
        signal.signal(number, _raise_interrupted)  # until the mount is served: undo everything, then exit
    status = _run(answer_fd)
    sys.stderr.flush()
    os._exit(status)  # all is durable; a thread that waits for a dead store must not keep the process


def _raise_limits() -> None:
    """Raises the file limits. Chunk files and segments are kept open; the usual 1,024 is for
    programs that use select(2). The shell's limit on file sizes does not concern the volume's
    files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def _run(answer_fd: int) -> int:
    """Returns the exit status: 0 for a mount that was served to a clean end."""
    daemon: Daemon | None = None
    try:
        specification, line = sys.stdin.buffer.readline(), sys.stdin.buffer.readline()
        spec, handover = MountSpec.from_json(specification), Handover.from_line(line) if line else Handover()
        if handover.store_key is not None:
            processes.hide_memory()
        if not spec.options.foreground:
            starter.log_to(Path(spec.log))
        if handover.trusted:
            os.environ[trust.VARIABLE] = handover.trusted
        heap.map_large_blocks(heap.READ_ONLY_MAPPED_BYTES if spec.is_read_only else heap.MAPPED_BYTES)
        if sys.argv[2:3] == [wire.GIVEN_UP]:
            given_up.take_off(spec, sys.argv[3])
            return 0
        goes_on = sys.argv[1:] == [wire.GO_ON]
        supervised = supervision.go_on(spec, handover, answer_fd) if goes_on else supervision.choose(spec, handover)
        daemon = Daemon(spec, answer_fd, handover, supervised)
        daemon.run()
    except CowfsError as error:
        failure = error
    except BaseException as error:  # a panic of the engine is not an Exception; the starter must get it, too
        _logger.exception("the mount daemon failed")
        failure = unexpected("the mount daemon failed", error, hint="Please report this with its log.")
    else:
        return 0
    is_ready = daemon is not None and daemon.is_ready
    if is_ready or sys.argv[1:] == [wire.GO_ON]:
        _logger.error("%s", failure)
    if not is_ready:
        with contextlib.suppress(InvalidStateError):
            starter.answer(answer_fd, {"error": to_message(failure)})
    return 1


def _raise_interrupted(number: int, frame: object) -> NoReturn:
    raise MountFailedError(f"mounting was interrupted by {signal.Signals(number).name}")
