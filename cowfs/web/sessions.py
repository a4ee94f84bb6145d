"""Cookies of those who have logged in, the one-time token of a server on loopback, and the limit of
failed logins. All of it lives in memory and ends with the server. Threads: the event loop alone."""

from __future__ import annotations

import hmac
from collections import OrderedDict
from dataclasses import dataclass

from cowfs.base import clock

SESSION_S = 12 * 3600
SESSIONS = 10_000
FAILURES = 5
FAILURES_S = 300
PEERS = 10_000


def make_secret() -> str:
    return clock.random_bytes(32).hex()


@dataclass(frozen=True)
class Session:
    """csrf: the token that every change must carry, since a page of another site cannot read it.
    password_hash: that counted when the session began."""

    user: str
    password_hash: str
    csrf: str
    until_s: float


class Sessions:
    def __init__(self) -> None:
        self._held: OrderedDict[str, Session] = OrderedDict()

    def begin(self, user: str, password_hash: str) -> str:
        """The secret for the cookie."""
        secret = make_secret()
        self._held[secret] = Session(user, password_hash, make_secret(), clock.monotonic_s() + SESSION_S)
        while len(self._held) > SESSIONS:
            self._held.popitem(last=False)
        return secret

    def find(self, secret: str) -> Session | None:
        found = self._held.get(secret)
        if found is not None and found.until_s < clock.monotonic_s():
            del self._held[secret]
            return None
        return found

    def end(self, secret: str) -> None:
        self._held.pop(secret, None)


class OneTimeToken:
    """A token that the first who shows it uses up."""

    def __init__(self) -> None:
        self.text = make_secret()

    def use(self, given: str) -> bool:
        is_right = bool(self.text) and hmac.compare_digest(given.encode(), self.text.encode())
        if is_right:
            self.text = ""
        return is_right


class FailedLogins:
    """Failed logins by address."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def wait_s(self, peer: str) -> int:
        """How long the address must wait; 0: not at all."""
        now = clock.monotonic_s()
        recent = [each for each in self._failures.get(peer, []) if each > now - FAILURES_S]
        return int(recent[0] + FAILURES_S - now) + 1 if len(recent) >= FAILURES else 0

    def note(self, peer: str) -> None:
        recent = self._failures.pop(peer, [])[-FAILURES + 1 :]
        self._failures[peer] = [*recent, clock.monotonic_s()]
        while len(self._failures) > PEERS:
            self._failures.popitem(last=False)

    def take_back(self, peer: str) -> None:
        """The login that was noted last has not failed. Others stay: who has a password does not
        get more tries for those of others."""
        self._failures[peer] = self._failures.get(peer, [])[:-1]
