"""Single flight: if several threads want the same value at once, one loads it and the others wait
for its result.

    load      one key: this thread loads it, or waits for the thread that is loading it
    claim     many keys with one result each: the caller must end the flights of keys not yet loading
    board     many keys that one load brings: they join one of the caller's flights
    end       passes the result or the error to all waiting threads; later callers load again

A flight is a future. It is removed before its future completes, so no thread can join a flight
after its waiters were notified. A caller must end every flight that it has claimed or boarded,
whatever happens. Thread-safe; the lock is held for look-ups only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Generic, TypeVar

from cowfs.base.errors import UnavailableError
from cowfs.base.interruptible import is_patient

K = TypeVar("K")
V = TypeVar("V")


class _Flight(Future[V]):
    """was_hurried: the thread that ended it had no patience with the store."""

    was_hurried = False


def was_left(flight: Future[V], error: BaseException) -> bool:
    """Whether `error`, raised while waiting for another thread's flight, concerns that thread only:
    it was interrupted, or asked a silent store again for a shorter time than this thread may. The
    waiting thread then loads itself."""
    if not flight.done() or flight.exception() is not error:
        return False
    if isinstance(error, UnavailableError):
        return isinstance(flight, _Flight) and flight.was_hurried and is_patient()
    return not isinstance(error, Exception)


class Flights(Generic[K, V]):
    """landed: returns the value of a key that is already loaded, and is called under the lock. The
    value must be available there before its flight ends."""

    def __init__(self, landed: Callable[[K], V | None] = lambda key: None) -> None:
        self._landed = landed
        self._lock = threading.Lock()  # guards everything below
        self._flights: dict[K, Future[V]] = {}
        self._keys: dict[Future[V], list[K]] = {}
        self._pilots: dict[Future[V], threading.Thread] = {}  # of flights that `load` began

    def load(self, key: K, load: Callable[[], V]) -> V:
        flight: Future[V] = _Flight()
        while True:
            with self._lock:
                if (value := self._landed(key)) is not None:
                    return value
                other = self._flights.get(key)
                if other is None:
                    self._take(key, flight)
                    self._pilots[flight] = threading.current_thread()
            if other is None:
                break
            try:
                return other.result()
            except BaseException as error:
                if not was_left(other, error):
                    raise
        try:
            value = load()
        except BaseException as error:
            self.end(flight, error)
            raise
        self.end(flight, None, value)
        return value

    def claim(self, keys: Sequence[K]) -> tuple[list[Future[V]], dict[K, Future[V]]]:
        """The flights of all keys, in their order, and the flights that the caller must end."""
        flights: list[Future[V]] = []
        mine: dict[K, Future[V]] = {}
        with self._lock:
            for key in keys:
                flight = self._flights.get(key)
                if flight is None:
                    flight = _Flight()
                    if (value := self._landed(key)) is not None:
                        flight.set_result(value)
                    else:
                        self._take(key, flight)
                        mine[key] = flight
                flights.append(flight)
        return flights, mine

    def board(self, keys: Iterable[K], flight: Future[V]) -> set[K]:
        """Puts keys that are not being loaded on this flight, and returns them."""
        with self._lock:
            taken = {key for key in keys if key not in self._flights}
            for key in taken:
                self._take(key, flight)
        return taken

    def of(self, key: K) -> Future[V] | None:
        with self._lock:
            return self._flights.get(key)

    def end(self, flight: Future[V], error: BaseException | None, value: V | None = None) -> None:
        """Does nothing if the flight has ended."""
        with self._lock:
            for key in self._keys.pop(flight, ()):
                del self._flights[key]
            self._pilots.pop(flight, None)
        if flight.done():
            return
        if isinstance(flight, _Flight):
            flight.was_hurried = not is_patient()
        with suppress(InvalidStateError):  # another thread has just ended it
            flight.set_exception(error) if error is not None else flight.set_result(value)  # type: ignore[arg-type]

    def list_flights(self) -> list[tuple[Future[V], threading.Thread | None]]:
        """Every flight, and for a flight that `load` began the thread that is loading."""
        with self._lock:
            return [(flight, self._pilots.get(flight)) for flight in self._keys]

    def _take(self, key: K, flight: Future[V]) -> None:
        self._flights[key] = flight
        self._keys.setdefault(flight, []).append(key)
