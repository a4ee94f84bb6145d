"""Brings credentials to a mount's daemon for as long as this process lives and the mount does.

One thread a mount waits at the daemon's control socket until the daemon wants others, and brings
what the functions of the mount's `Storage` return; or brings them by itself when they have changed.
It holds no lock of a volume, and does not touch the mount.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from cowfs import clock
from cowfs.control import Client
from cowfs.control.handover import Offer
from cowfs.control.messages import FEED
from cowfs.errors import CowfsError, UnavailableError
from cowfs.machine import registry
from cowfs.store import Credentials, Identity

SILENCE_S = 120.0
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
ATTEMPTS = 5


def start(registration: str, socket: str, identity: Identity, given: Credentials | None = None) -> None:
    """registration: of the mount, which tells where its socket is if it is not at `socket` any
    more. given: what the daemon has from this process already; else some are brought only when they
    are wanted."""
    feeder = _Feeder(registration, socket, identity, given)
    threading.Thread(target=feeder.run, name="credentials", daemon=True).start()


class _Feeder:
    def __init__(self, registration: str, socket: str, identity: Identity, given: Credentials | None) -> None:
        self._registration = registration
        self._client = Client(socket, timeout_s=SILENCE_S)
        self._identity = identity
        self._given = given
        self._pause_s = FIRST_PAUSE_S

    def run(self) -> None:
        """Ends when the mount is over, or does not want any."""
        failures = 0
        offer = Offer()
        while failures < ATTEMPTS:
            began_s = clock.monotonic_s()
            try:
                wanted = self._client.ask(FEED, offer)
            except UnavailableError:
                failures += 1
                offer = Offer()
                clock.sleep_s(FIRST_PAUSE_S)
                with suppress(CowfsError):
                    if (entry := registry.find_by_id(self._registration)) is not None:
                        self._client = Client(entry.socket, timeout_s=SILENCE_S)
                continue
            except CowfsError:  # a daemon of an earlier version
                return
            if wanted.is_over:
                return
            failures = 0
            if wanted.is_wanted:
                with suppress(CowfsError):
                    self._client.ask(FEED, Offer(is_coming=True))
            offer = self._wanted() if wanted.is_wanted else self._changed()
            if clock.monotonic_s() - began_s < FIRST_PAUSE_S and offer.credentials is None:
                clock.sleep_s(self._pause_s)

    def _wanted(self) -> Offer:
        """Others than those that the daemon has."""
        try:
            found = self._identity.other_than(self._given)
        except CowfsError as error:
            return self._none(error.message)
        if found is None:
            return self._none("the program's functions return the same as before")
        return self._offer(found)

    def _changed(self) -> Offer:
        with suppress(CowfsError):
            if self._given is not None and not (found := self._identity.ready()).is_same(self._given):
                return self._offer(found)
        return Offer()

    def _offer(self, found: Credentials) -> Offer:
        self._given, self._pause_s = found, FIRST_PAUSE_S
        return Offer(found)

    def _none(self, problem: str) -> Offer:
        """Asked again after a growing pause."""
        clock.sleep_s(self._pause_s)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        return Offer(problem=problem)
