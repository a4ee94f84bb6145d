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

K = TypeVar("K")
V = TypeVar("V")


def was_left(flight: Future[V], error: BaseException) -> bool:
    """Whether `error`, raised while waiting for another thread's flight, is the exception that
    interrupted that thread. It does not concern the waiting thread, which then loads itself."""
    return not isinstance(error, Exception) and flight.done() and flight.exception() is error


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
        flight: Future[V] = Future()
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
                    flight = Future()
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
        with suppress(InvalidStateError):  # another thread has just ended it
            flight.set_exception(error) if error is not None else flight.set_result(value)  # type: ignore[arg-type]

    def list_flights(self) -> list[tuple[Future[V], threading.Thread | None]]:
        """Every flight, and for a flight that `load` began the thread that is loading."""
        with self._lock:
            return [(flight, self._pilots.get(flight)) for flight in self._keys]

    def _take(self, key: K, flight: Future[V]) -> None:
        self._flights[key] = flight
        self._keys.setdefault(flight, []).append(key)
