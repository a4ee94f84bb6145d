"""Supplies a mount's daemon with credentials as long as this process and the mount live.

One thread per mount waits at the daemon's control socket until the daemon requests new credentials,
and sends the values returned by the functions of the mount's `Storage`. It also sends them
unrequested when they have changed. It holds no lock of a volume, and does not touch the mount.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from cowfs.base import clock
from cowfs.base.errors import CowfsError, UnavailableError
from cowfs.control import Client
from cowfs.control.handover import Offer
from cowfs.control.messages import FEED
from cowfs.machine import registry
from cowfs.store import Credentials, Identity

SILENCE_S = 120.0
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
ATTEMPTS = 5


def start(registration: str, socket: str, identity: Identity, given: Credentials | None = None) -> None:
    """registration: that of the mount, which has the new address if its socket is no longer at
    `socket`. given: the credentials that the daemon has from this process already; None: some are
    sent only on request."""
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
        """Ends when the mount has ended, or wants no credentials."""
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
            offer = self._wants() if wanted.is_wanted else self._offer_changes()
            if clock.monotonic_s() - began_s < FIRST_PAUSE_S and offer.credentials is None:
                clock.sleep_s(self._pause_s)

    def _wants(self) -> Offer:
        """Credentials that differ from those of the daemon."""
        try:
            found = self._identity.other_than(self._given)
        except CowfsError as error:
            return self._none(error.message)
        if found is None:
            return self._none("the program's functions return the same as before")
        return self._offer(found)

    def _offer_changes(self) -> Offer:
        with suppress(CowfsError):
            if self._given is not None and not (found := self._identity.ready()).is_same(self._given):
                return self._offer(found)
        return Offer()

    def _offer(self, found: Credentials) -> Offer:
        self._given, self._pause_s = found, FIRST_PAUSE_S
        return Offer(found)

    def _none(self, problem: str) -> Offer:
        """An offer without credentials, after a pause that grows with each attempt."""
        clock.sleep_s(self._pause_s)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        return Offer(problem=problem)
