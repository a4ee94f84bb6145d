"""Credentials that were given for one store, and their renewal.

Without an identity a store is asked with the credentials that its own tools find in the
environment. With one, only the given credentials are used, and only for the store that they were
given for.

    Credentials   values that belong together, as one request uses them
    Source        where they come from: functions of the user's, a command, another process
    Identity      the newest ones of one opened store, shared by its threads
    Access        how a store is asked where its URL does not say it

`run` makes a request. It first fetches credentials that are missing or about to expire. When the
store refuses the credentials and there are others by now, the request is sent again: a refused one
had no effect. One thread fetches at a time, at most once in PAUSE_S.

When new credentials cannot be fetched, requests to a store that has worked before wait with its
patience (UnavailableError); at the first request it is an AccessDeniedError. No message shows a
value: it is not in the repr of these objects, and `redaction` hides given values everywhere.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol, TypeVar
from weakref import WeakSet

from cowfs.base import clock, log, redaction
from cowfs.base.errors import AccessDeniedError, CowfsError, UnavailableError
from cowfs.base.fast_dataclass import dataclass

if TYPE_CHECKING:
    from cowfs.store.credentials.unlocking import KeySource

PAUSE_S = 1.0
"""Between two attempts to get new ones: many threads are refused at the same moment."""
DENIED_PAUSE_S = 30.0
"""The same after a refusal that new credentials will probably not change."""
MARGIN_S = 300.0
"""New ones are fetched so long before they expire, or at three quarters of a shorter life."""

RENEWALS = 2
"""Of one request."""

GIVEN_HINT = (
    "The store refuses the credentials that it was given by this program (Storage), or by the file that declares it. "
    "Give valid ones: mounting again hands them to a mount that is there, whose work is kept. Functions and "
    "credential_process are asked again by themselves."
)

T = TypeVar("T")
Refusal = Literal["expired", "denied"]
"""Of credentials: they are no longer valid, or not known; or they do not allow this."""

_log = log.get("store")


@dataclass(frozen=True, slots=True)
class Credentials:
    """access_key and secret_key: as the store's provider names them, "" where it has none. token:
    of a session, or the only thing there is. expires_s: in seconds since 1970, None: not known."""

    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    token: str | None = field(default=None, repr=False)
    expires_s: float | None = None

    def __post_init__(self) -> None:
        redaction.hide(self.access_key, self.secret_key, self.token or "")

    def __reduce__(self) -> NoReturn:
        raise TypeError("credentials are not pickled")

    def is_same(self, other: Credentials) -> bool:
        """Compares the values, and not their expiry."""
        return (self.access_key, self.secret_key, self.token) == (other.access_key, other.secret_key, other.token)


class Source(Protocol):
    """renew_s: fetch again when the last ones are so old, None: only when needed. can_renew:
    whether another fetch may bring others."""

    @property
    def renew_s(self) -> float | None: ...

    @property
    def can_renew(self) -> bool: ...

    def fetch(self) -> Credentials:
        """May wait. CowfsError: there are no credentials."""
        ...


_identities: WeakSet[Identity] = WeakSet()


class Wakeable(Protocol):
    """A store in which requests may be waiting for new credentials."""

    def wake(self) -> None: ...


class Identity:
    """Of one opened store. Any thread may call; a forked child has locks of its own, since a thread
    that it does not have may hold its parent's."""

    def __init__(self, source: Source, credentials: Credentials | None = None) -> None:
        self._source = source
        self._lock = threading.Lock()  # guards those below; never held during a fetch
        self._newest = credentials
        self._fetched_s = clock.monotonic_s()
        self._renew_s = self._life_s(credentials)
        self._problem: CowfsError | None = None
        self._fetching = threading.Lock()
        self._tried_s = float("-inf")
        self._has_worked = False
        self._waiting_stores: WeakSet[Wakeable] = WeakSet()
        _identities.add(self)

    def unlock(self) -> None:
        """In a child that was just forked."""
        self._lock, self._fetching = threading.Lock(), threading.Lock()

    @property
    def newest(self) -> Credentials:
        """Never waits; `ready` comes first."""
        with self._lock:
            assert self._newest is not None
            return self._newest

    @property
    def problem(self) -> CowfsError | None:
        """Why there are no new ones, None while all is well."""
        with self._lock:
            return self._problem

    def run(self, request: Callable[[Credentials], T], refusal_of: Callable[[CowfsError], Refusal | None]) -> T:
        """What a request returns that uses the newest credentials. refusal_of: what its error says
        about them, None: nothing."""
        renewals = RENEWALS
        while True:
            used = self.ready()
            try:
                found = request(used)
            except CowfsError as error:
                if (refusal := refusal_of(error)) is None:
                    raise
                if renewals == 0 or not self._has_others(used, refusal):
                    raise self._without_others(error, refusal) from None
                renewals -= 1
            else:
                self._has_worked = True
                if self._problem is not None:
                    self._set_problem(None)
                return found

    def ready(self) -> Credentials:
        """What the next request may use."""
        with self._lock:
            newest, is_due = self._newest, clock.monotonic_s() >= self._fetched_s + self._renew_s
        if newest is not None and not is_due:
            return newest
        if newest is None or _is_expired(newest):
            with self._fetching:
                return self._fetch_since(newest)
        if self._fetching.acquire(blocking=False):  # the others continue with credentials that are still valid
            try:
                return self._fetch_since(newest)
            finally:
                self._fetching.release()
        return newest

    def other_than(self, known: Credentials | None) -> Credentials | None:
        """Credentials that differ from `known`, fetched if necessary; None: there are no others."""
        newest = self.ready()
        if known is None or not newest.is_same(known):
            return newest
        with self._fetching:
            if not self.newest.is_same(known):
                return self.newest
            if not self._source.can_renew:
                return None
            found = self._fetch()
            return None if found.is_same(known) else found

    def supply(self, credentials: Credentials) -> None:
        """Takes new credentials from outside."""
        with self._lock:
            self._newest, self._problem = credentials, None
            self._fetched_s, self._renew_s = clock.monotonic_s(), self._life_s(credentials)
            waiting = list(self._waiting_stores)
        for store in waiting:
            store.wake()

    def wakes(self, store: Wakeable) -> None:
        """Tells this store of new ones, for as long as it lives."""
        with self._lock:
            self._waiting_stores.add(store)

    def _has_others(self, used: Credentials, refusal: Refusal) -> bool:
        """Whether the credentials now differ from those that the store has just refused."""
        with self._fetching:
            if not self.newest.is_same(used):
                return True
            pause_s = PAUSE_S if refusal == "expired" else DENIED_PAUSE_S
            if not self._source.can_renew or clock.monotonic_s() < self._tried_s + pause_s:
                return False
            try:
                return not self._fetch().is_same(used)
            except CowfsError:  # `problem` has it
                return False

    def _without_others(self, error: CowfsError, refusal: Refusal) -> CowfsError:
        """There may be others some time, if these were good once and can be renewed."""
        if refusal == "expired" and self._has_worked and self._source.can_renew:
            found: CowfsError = UnavailableError(
                f"{error.message}: waiting for new credentials", hint=GIVEN_HINT, details=error.details
            )
        elif isinstance(error, AccessDeniedError):
            found = AccessDeniedError(error.message, hint=GIVEN_HINT, details=error.details)
        else:
            return error
        if refusal == "expired":
            self._set_problem(found)
        return found

    def _fetch_since(self, known: Credentials | None) -> Credentials:
        """New credentials, unless another thread has fetched them meanwhile; the known ones if they
        are still valid and there are no new ones."""
        with self._lock:
            newest = self._newest
        if newest is not None and newest is not known:
            return newest
        if newest is None:
            return self._fetch()
        is_good = not _is_expired(newest)
        if is_good and clock.monotonic_s() < self._tried_s + DENIED_PAUSE_S:
            return newest
        if self._problem is not None and clock.monotonic_s() < self._tried_s + PAUSE_S:
            raise self._waiting(self._problem)
        try:
            return self._fetch()
        except CowfsError as error:
            if is_good:
                return newest
            raise self._waiting(error) from None

    def _fetch(self) -> Credentials:
        self._tried_s = clock.monotonic_s()
        try:
            found = self._source.fetch()
        except CowfsError as error:
            if not self._set_problem(error):
                _log.warning("there are no new credentials: %s", error)
            raise
        if self._set_problem(None):
            _log.warning("there are new credentials again")
        self.supply(found)
        return found

    def _set_problem(self, problem: CowfsError | None) -> bool:
        """Whether there was one before."""
        with self._lock:
            before, self._problem = self._problem, problem
        return before is not None

    def _waiting(self, error: CowfsError) -> CowfsError:
        kind = UnavailableError if self._source.can_renew else AccessDeniedError
        return kind(f"the credentials have expired, and there are no new ones: {error.message}", hint=error.open_hint)

    def _life_s(self, credentials: Credentials | None) -> float:
        """How long these are used before new ones are fetched."""
        longest_s = self._source.renew_s if self._source.renew_s is not None else float("inf")
        if credentials is None or credentials.expires_s is None or not self._source.can_renew:
            return longest_s
        left_s = credentials.expires_s - clock.now_ns() / 1e9
        # Not at once, even if the clocks say so: only the store knows.
        return min(longest_s, max(left_s - MARGIN_S, left_s * 0.75, DENIED_PAUSE_S))


@dataclass(frozen=True, slots=True)
class Access:
    """identity None: credentials that the store's tools find in the environment. path_style: for
    s3, whether the bucket is in the path (True) or in the host's name (False); None: as usual
    there.

    For another process that opens the store: credential_process, the command that prints
    credentials; is_fed, whether this process can make others. key: the secret of an encrypted
    store; None: the one that a person typed, else the environment's (`unlocking`).

    known: objects, by key, that the caller has read a moment ago; each is taken from here once.
    """

    identity: Identity | None = None
    path_style: bool | None = None
    credential_process: str | None = field(default=None, repr=False)
    is_fed: bool = False
    key: KeySource | None = field(default=None, repr=False)
    known: Mapping[str, bytes] = field(default_factory=dict, repr=False)


AMBIENT = Access()


def _unlock_all() -> None:
    for identity in list(_identities):
        identity.unlock()


os.register_at_fork(after_in_child=_unlock_all)


def _is_expired(credentials: Credentials) -> bool:
    return credentials.expires_s is not None and credentials.expires_s <= clock.now_ns() / 1e9
