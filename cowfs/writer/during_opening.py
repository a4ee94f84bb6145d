"""Runs beside the opening of a session, which may take minutes when a long journal is replayed.

keep_renewed     renews lease and pin, as the keeper does from `ready` on, so that other machines do not consider the volume abandoned
report_replay    reports the progress of the replay every REPORT_S, so that a waiting caller needs no deadline for the whole
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from cowfs.base import log
from cowfs.base.errors import CowfsError, InvalidStateError, LeaseLostError
from cowfs.native import Engine
from cowfs.store.refs import leases
from cowfs.version.commit import Progress, ProgressListener

if TYPE_CHECKING:
    from cowfs.writer.writer import Writer

REPORT_S = 0.5


_logger = log.get("mount")


@contextmanager
def keep_renewed(writer: Writer, keep: Callable[[], None] | None = None) -> Iterator[None]:
    """Renews the writer's lease and pin every HEARTBEAT_S until the block ends. A lost lease is
    noted in the writer. keep: renews the pin of a writer that uploads already."""

    def beat() -> None:
        try:
            writer.lease.renew()
            (keep or writer.protection.keep)()
        except LeaseLostError as error:
            writer.lease_lost = error
            _logger.error("%s", error)
        except CowfsError as error:
            _logger.warning("the lease was not renewed: %s", error)

    with _repeat("opening-heartbeat", beat, leases.HEARTBEAT_S):
        yield


@contextmanager
def report_replay(engine: Engine, report: ProgressListener) -> Iterator[None]:
    """Reports the stage "replay" while the engine recovers and replays, and once at the end."""
    last = (0, 0)

    def look() -> None:
        nonlocal last
        if (found := engine.replay_progress()) != last:
            last = found
            report(Progress("replay", found[0], found[1]))

    def look_quietly() -> None:
        with suppress(InvalidStateError):  # the listener is gone: the last report raises it
            look()

    with _repeat("replay-progress", look_quietly, REPORT_S):
        yield
    look()


@contextmanager
def _repeat(name: str, step: Callable[[], None], pause_s: float) -> Iterator[None]:
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(pause_s):
            try:
                step()
            except BaseException:  # a panic of the engine is not an Exception; it must not end a service
                _logger.exception("%s failed; it will be retried", name)

    thread = threading.Thread(target=loop, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
