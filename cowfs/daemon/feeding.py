"""Renews a mount's credentials that came from a program. They are requested from, in this order:

    1. a process that feeds this mount, if it has called `offer` within ATTACHED_S
    2. credential_process

A feeding process counts as alive only once it has announced a fetch (HEARD_S), because a killed one
stays in `offer` as long as a living one.

A process that feeds waits in `offer` on a thread of the control socket, for LISTEN_S at most. It is
woken when credentials are wanted: the store has refused the current ones, or they expire soon.
Credentials that it sends unasked, or too late, are used from then on as well.
"""

from __future__ import annotations

import threading

from cowfs.base import clock
from cowfs.base.errors import AccessDeniedError, CowfsError
from cowfs.control.handover import Handover, Offer, Wanted
from cowfs.store import Access, Credentials, Identity
from cowfs.store.credentials.credential_process import CredentialProcess
from cowfs.store.credentials.unlocking import StoreKey

LISTEN_S = 60.0
HEARD_S = 2.0
ANSWER_S = 15.0
ATTACHED_S = 5.0
MOST_FEEDERS = 16
"""The number of waiting feeders; connections are needed for commands, too."""


class Feeding:
    """Any thread may call. `access`: how the mount's store is accessed."""

    def __init__(self, handover: Handover) -> None:
        self._is_fed = handover.is_fed
        command = handover.credential_process
        self._process = CredentialProcess(command) if command is not None else None
        self._changed = threading.Condition()  # guards what follows
        self._feeders = 0
        self._seen_s = clock.monotonic_s() if handover.is_fed else float("-inf")
        self._is_wanted = False
        self._is_coming = False
        self._brought: Credentials | None = None
        self._problem = ""
        self._is_over = False
        self._identity = Identity(self, handover.credentials) if handover.credentials is not None else None
        key = StoreKey(bytes.fromhex(handover.store_key)) if handover.store_key is not None else None
        known = {name: text.encode() for name, text in handover.known.items()}
        self.access = Access(self._identity, handover.path_style, key=key, known=known)

    # -- as the identity's source

    renew_s = None

    @property
    def can_renew(self) -> bool:
        return self._is_fed or self._process is not None or self._has_feeder()

    def fetch(self) -> Credentials:
        found = self._ask_feeders() if self._is_fed or self._has_feeder() else None
        if found is not None:
            return found
        if self._process is not None:
            return self._process.fetch()
        raise self._none()

    # -- for the control socket

    def offer(self, offer: Offer) -> Wanted:
        """Waits until credentials are wanted, for LISTEN_S at most."""
        with self._changed:
            if self._identity is None or self._is_over or self._feeders >= MOST_FEEDERS:
                return Wanted(is_wanted=False, is_over=self._identity is None or self._is_over)
            self._take(offer, self._identity)
            if offer.is_coming:
                return Wanted(is_wanted=False, is_over=False)
            self._feeders += 1
            try:
                self._changed.wait_for(lambda: self._is_wanted or self._is_over, LISTEN_S)
            finally:
                self._feeders -= 1
                self._seen_s = clock.monotonic_s()
            return Wanted(self._is_wanted, self._is_over)

    @property
    def problem(self) -> str | None:
        """Why the store can no longer be accessed, for the user."""
        found = self._identity.problem if self._identity is not None else None
        return found.message if found is not None else None

    def end(self) -> None:
        """Stops asking for credentials."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _take(self, offer: Offer, identity: Identity) -> None:
        self._seen_s = clock.monotonic_s()
        self._problem, self._is_coming = offer.problem, offer.is_coming
        if offer.credentials is not None:
            identity.supply(offer.credentials)  # the thread that wanted them may have stopped waiting
            self._brought, self._is_wanted = offer.credentials, False
        self._changed.notify_all()

    def _has_feeder(self) -> bool:
        with self._changed:
            return self._feeders > 0 or clock.monotonic_s() < self._seen_s + ATTACHED_S

    def _ask_feeders(self) -> Credentials | None:
        """Asks the feeding processes. None: there is none, or none answers in time."""
        with self._changed:
            self._brought, self._problem, self._is_coming, self._is_wanted = None, "", False, True
            self._changed.notify_all()
            if self._feeders or clock.monotonic_s() < self._seen_s + ATTACHED_S:
                self._changed.wait_for(lambda: self._is_coming or self._is_answered(), HEARD_S)
                if self._is_coming:
                    self._changed.wait_for(self._is_answered, ANSWER_S)
            return self._brought

    def _is_answered(self) -> bool:
        return self._brought is not None or bool(self._problem) or self._is_over

    def _none(self) -> CowfsError:
        with self._changed:
            why = self._problem or "the process that provided them has ended, or does not answer"
        return AccessDeniedError(
            f"no new credentials arrived: {why}",
            hint="Mount the volume again from a program that has credentials: it passes them to the existing mount. Or unmount it, "
            "and mount it with valid ones. Everything written is kept.",
        )
