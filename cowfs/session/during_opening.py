"""What goes on beside the opening of a session, which may take minutes when a long journal is
replayed.

renewed     lease and pin stay alive, as the keeper does it from `ready` on: other machines must not take the volume for abandoned
reported    whoever waits for the mount hears every REPORT_S how far the replay is, so that it needs no deadline for the whole
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from cowfs import log
from cowfs.errors import CowfsError, InvalidStateError, LeaseLostError
from cowfs.native import Engine
from cowfs.store import leases
from cowfs.version.commit import Progress, ProgressListener

if TYPE_CHECKING:
    from cowfs.session.session import Writer

REPORT_S = 0.5


_logger = log.get("mount")


@contextmanager
def renewed(writer: Writer, keep: Callable[[], None] | None = None) -> Iterator[None]:
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

    with _repeated("opening-heartbeat", beat, leases.HEARTBEAT_S):
        yield


@contextmanager
def reported(engine: Engine, report: ProgressListener) -> Iterator[None]:
    """Reports the stage "replay" while the engine recovers and replays, and once at the end."""
    last = (0, 0)

    def look() -> None:
        nonlocal last
        if (found := engine.replay_progress()) != last:
            last = found
            report(Progress("replay", found[0], found[1]))

    def look_quietly() -> None:
        with suppress(InvalidStateError):  # nobody listens any more: the last word notices it
            look()

    with _repeated("replay-progress", look_quietly, REPORT_S):
        yield
    look()


@contextmanager
def _repeated(name: str, step: Callable[[], None], pause_s: float) -> Iterator[None]:
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(pause_s):
            try:
                step()
            except BaseException:  # a panic of the engine is no Exception; it must not end a service
                _logger.exception("%s failed; it is tried again", name)

    thread = threading.Thread(target=loop, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
