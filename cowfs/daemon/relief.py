"""Frees local disk space and makes reclaim passes for waiting requests, on its own thread.

    space   the disk is full: `relieve` frees overwritten bytes and those that can be fetched again; 0 bytes: ENOSPC
    room    more was overwritten than staging may hold: `reclaim` makes the pass. A failed pass does not fail the waiting
            writes: each write reports its own error

One call serves all waiting requests, and a long pass (it syncs) blocks no load.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Literal

from cowfs.base import log

Need = Literal["space", "room"]
Settle = Callable[[int, BaseException | None], None]

_logger = log.get("mount")


class Relief:
    def __init__(self, relieve: Callable[[], int], reclaim: Callable[[], object], settle: Settle) -> None:
        """`settle` is called once for each request, with the error if there is one."""
        self._relieve = relieve
        self._reclaim = reclaim
        self._settle = settle
        self._changed = threading.Condition()
        self._waiting: dict[int, Need] = {}
        self._served: dict[int, Need] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="lane-room", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask(self, unique: int, need: Need) -> None:
        with self._changed:
            self._waiting[unique] = need
            self._changed.notify()

    def has(self, unique: int) -> bool:
        with self._changed:
            return self._thread.is_alive() and (unique in self._waiting or unique in self._served)

    def close(self) -> None:
        """Does not wait for a running call."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._waiting)
                if self._closed:
                    return
                self._served, self._waiting = self._waiting, {}
            for need, make in (("space", self._make_space), ("room", self._make_room)):
                uniques = [unique for unique, wanted in self._served.items() if wanted == need]
                if uniques:
                    self._settle_all(uniques, make)
            with self._changed:
                self._served = {}

    def _settle_all(self, uniques: list[int], make: Callable[[], None]) -> None:
        outcome: BaseException | None = None
        try:
            make()
        except BaseException as error:  # noqa: BLE001 - becomes the errno that the callers get
            outcome = error
        for unique in uniques:
            try:
                self._settle(unique, outcome)
            except BaseException:  # the others wait too
                _logger.exception("a request was not answered")

    def _make_space(self) -> None:
        if self._relieve() == 0:
            raise OSError(errno.ENOSPC, "nothing can be freed")

    def _make_room(self) -> None:
        try:
            self._reclaim()
        except BaseException as error:  # noqa: BLE001 - each write reports its own error
            _logger.warning("overwritten bytes could not be reclaimed: %r", error)
