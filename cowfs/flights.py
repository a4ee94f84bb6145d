"""Loads that several threads may want at once: one thread loads, the others wait for it and take
its result.

    load      for one key: this thread loads, or waits for the one that is at it
    claim     for many keys with a result each: what nobody is loading becomes the caller's to end
    board     for many keys that one load brings: they join a flight of the caller's
    end       the result, or the error, goes to all who wait; whoever asks from now on loads again

A flight is a future. It is over before it is done: nobody can join it any more when those who wait
hear of its end. Every flight that a caller has claimed or boarded must be ended by it, whatever
happens. Any thread; the lock is held for look-ups only.
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
    """Whether an error met while another thread's flight was waited for is what interrupted that
    thread: it is none of the waiter's, who loads by himself."""
    return not isinstance(error, Exception) and flight.done() and flight.exception() is error


class Flights(Generic[K, V]):
    """landed: the value of a key that needs no load (any more), asked under the lock; what a load
    brings must be there before its flight ends."""

    def __init__(self, landed: Callable[[K], V | None] = lambda key: None) -> None:
        self._landed = landed
        self._lock = threading.Lock()  # guards everything below
        self._flights: dict[K, Future[V]] = {}
        self._keys: dict[Future[V], list[K]] = {}
        self._pilots: dict[Future[V], threading.Thread] = {}  # of flights that `load` has begun

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
        """The flights of all keys, in their order, and those of them that the caller has to end."""
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
        """Those of the keys that nobody is loading; the flight brings them now."""
        with self._lock:
            taken = {key for key in keys if key not in self._flights}
            for key in taken:
                self._take(key, flight)
        return taken

    def of(self, key: K) -> Future[V] | None:
        with self._lock:
            return self._flights.get(key)

    def end(self, flight: Future[V], error: BaseException | None, value: V | None = None) -> None:
        """Nothing happens if it has ended."""
        with self._lock:
            for key in self._keys.pop(flight, ()):
                del self._flights[key]
            self._pilots.pop(flight, None)
        with suppress(InvalidStateError):
            flight.set_exception(error) if error is not None else flight.set_result(value)  # type: ignore[arg-type]

    def under_way(self) -> list[tuple[Future[V], threading.Thread | None]]:
        """Every flight, and the thread that is at it where that is `load`'s."""
        with self._lock:
            return [(flight, self._pilots.get(flight)) for flight in self._keys]

    def _take(self, key: K, flight: Future[V]) -> None:
        self._flights[key] = flight
        self._keys.setdefault(flight, []).append(key)
