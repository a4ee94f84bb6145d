"""Makes a session the writer of its volume while it is in use already: the session of a mount that
goes on in another process. Its requests need no store, its commits do.

Any thread may call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

from cowfs.base import log
from cowfs.base.errors import CowfsError, InvalidStateError, UnavailableError, unexpected

_log = log.get("mount")

RETRY_S = 5.0
STOP_S = 5.0


class Claiming:
    """lease: takes back what the claim has taken in the store; to be closed when the session's
    engine is. committing: ends what uses the engine."""

    def __init__(self) -> None:
        self.lease = ExitStack()
        self.committing = ExitStack()
        self._changed = threading.Condition()  # guards what follows
        self._is_over = False
        self._is_done = False
        self._error: CowfsError | None = None
        self._thread: threading.Thread | None = None

    def start(self, claim: Callable[[], None]) -> None:
        """claim: makes the session the writer; called again after an error."""
        self._thread = threading.Thread(target=self._run, args=(claim,), name="claim", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> None:
        """Returns when the session is the writer, or after timeout_s. Raises the error of an
        attempt, if a further one is not likely to end otherwise."""
        with self._changed:
            self._changed.wait_for(self._is_settled, timeout_s)
            if not self._is_done and self._is_over:
                raise InvalidStateError(
                    "the mount is being taken down", hint="Mount the volume again; its work is kept."
                )
            if not self._is_done and self._error is not None and timeout_s is None:
                raise self._error

    def _is_settled(self) -> bool:
        is_refused = self._error is not None and not isinstance(self._error, UnavailableError)
        return self._is_done or self._is_over or is_refused

    def _run(self, claim: Callable[[], None]) -> None:
        while not self._is_over:
            error: CowfsError | None = None
            try:
                claim()
            except BaseException as failure:  # noqa: BLE001 - raised to those that wait
                error = failure if isinstance(failure, CowfsError) else _wrap(failure)
                _log.warning("the volume was not claimed again: %s", failure)
            with self._changed:
                self._error, self._is_done = error, error is None
                self._changed.notify_all()
                if self._is_done:
                    return
                self._changed.wait_for(lambda: self._is_over, RETRY_S)

    def stop(self) -> None:
        """Waits for an attempt under way, but not for a store that does not answer."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(STOP_S)
            if self._thread.is_alive():
                return
        self.committing.close()

    def give_back(self) -> None:
        """Call it last."""
        if self._thread is None or not self._thread.is_alive():
            self.lease.close()


def _wrap(failure: BaseException) -> CowfsError:
    return unexpected(
        "the volume could not be claimed again", failure, hint="Unmount it and mount it again; its work is kept."
    )
