"""The fast lane of one mount: the native answerer on the device, with pyfuse3 behind it, and the threads that serve it.

    lane-misses    takes what parked requests need; chunks it asks for without waiting, everything else it hands to
    lane-load      up to LOAD_THREADS threads that make it resident and resume the request, so that reads waiting for data,
                   however many, keep no directory from being loaded
    lane-room      frees disk space and makes reclaim passes (`relief`)
    lane-end       waits for the lane's end and says so

Whatever goes wrong on one of them costs the request it was about. `look_after`, called now and then, answers requests that
are parked with nobody at work on them, and starts lane-misses anew should it have ended.

pyfuse3 sits at `relay_fd`, one end of a socket pair; to it the lane is the kernel. `forwarded` names the operations it
answers (the daemon takes them from COWFS_LANE_FORWARD, so that a suspect operation can be switched over); without any it
answers the handshake only, and the lane everything.

Not here: mounting (`machine.mounting`), and the loop behind the lane (`serving`).
"""

from __future__ import annotations

import errno
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from cowfs import log
from cowfs.daemon import transport
from cowfs.daemon.calls import LOAD_THREADS
from cowfs.daemon.errnos import Errnos
from cowfs.daemon.operations import CacheTimes
from cowfs.daemon.relief import Relief
from cowfs.errors import InvalidInputError
from cowfs.native import Engine, Lane, NotResident
from cowfs.session.fetching import Fetchers

ABANDONED_LOOKS = 3

_logger = log.get("mount")


class FastLane:
    """`start` begins answering, `stop` ends it; `failure` is what broke the connection to the kernel, if anything did."""

    def __init__(
        self,
        engine: Engine,
        device_fd: int,
        times: CacheTimes,
        *,
        load: Callable[[NotResident], None],
        load_chunks: Callable[[NotResident, Callable[[BaseException | None], None]], Sequence[Future[None]]],
        relieve: Callable[[], int],
        forwarded: Sequence[str] = (),
        passthrough: bool = False,
        spins: bool = False,
        tried: transport.Transport = "device",
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.relay_fd = theirs.detach()
        try:
            self._lane: Lane | None = Lane(
                engine,
                device_fd=device_fd,
                relay_fd=ours.detach(),
                attr_ns=_ns(times.attr_s),
                entry_ns=_ns(times.entry_s),
                dir_entry_ns=_ns(times.dir_entry_s),
                forwarded=forwarded,
                passthrough=passthrough,
                spins=spins,
                transport=tried,
            )
        except ValueError as error:
            raise InvalidInputError(
                f"{error}, so it cannot be forwarded", hint="Names are those of the kernel's header, like LOOKUP."
            ) from error
        self._load = load
        self._load_chunks = load_chunks
        self._errnos = Errnos()
        self._loaders = Fetchers("lane-load", LOAD_THREADS)
        self._relief = Relief(relieve, engine.reclaim_overdue, self._settle)
        self._fetches: dict[int, Sequence[Future[None]]] = {}
        self._suspects: Counter[int] = Counter()  # how often nobody was found at work on a request
        self._dispatcher: threading.Thread | None = None
        self.failure: OSError | None = None
        self.abandoned = 0
        """Requests that `look_after` had to answer."""

    def start(self, on_end: Callable[[], None]) -> None:
        """on_end runs on a thread of its own when the mount is gone or the lane has been stopped."""
        lane = self._native()
        try:
            lane.start()
        except OSError as error:
            raise transport.not_permitted(error) from error
        self._relief.start()
        self._start_dispatcher(lane)
        threading.Thread(target=self._await_end, args=(lane, on_end), name="lane-end", daemon=True).start()

    def stop(self, grace_s: float) -> None:
        """Nothing is answered any more when it returns; what waited has had grace_s. Safe to call more than once."""
        if (lane := self._lane) is None:
            return
        lane.stop(int(grace_s * 1000))
        self._loaders.close(wait=False)
        self._relief.close()
        self._lane = None  # with the last user the descriptor closes, and the kernel fails whoever still asks

    @property
    def transport(self) -> str:
        """What carries the requests: "device" or "uring"; known after the handshake."""
        return "device" if (lane := self._lane) is None else lane.transport()

    def invalidate_inode(self, ino: int) -> None:
        """As `Lane.invalidate_inode`; ENODEV once the lane has been stopped."""
        self._native().invalidate_inode(ino)

    def waiting(self) -> tuple[int, float]:
        """How many requests are parked, and for how many seconds the oldest of them."""
        if (lane := self._lane) is None:
            return 0, 0.0
        ages = [age_s for _, _, age_s, _ in lane.waiting()]
        return len(ages), max(ages, default=0.0)

    def look_after(self) -> None:
        """Answers, with EIO, requests that nobody was at work on in ABANDONED_LOOKS calls one after the other."""
        if (lane := self._lane) is None:
            return
        dispatcher = self._dispatcher
        if dispatcher is not None and not dispatcher.is_alive():
            _logger.error("the thread that serves misses had ended; it is started anew")
            self._start_dispatcher(lane)
        waiting = {unique: (need, age_s, is_queued) for unique, need, age_s, is_queued in lane.waiting()}
        for unique in list(self._fetches):
            if unique not in waiting:
                self._fetches.pop(unique, None)
        idle = [
            unique for unique, (_, _, is_queued) in waiting.items() if not is_queued and not self._is_attended(unique)
        ]
        self._suspects = Counter({unique: self._suspects[unique] + 1 for unique in idle})
        for unique, looks in list(self._suspects.items()):
            if looks >= ABANDONED_LOOKS:
                need, age_s, _ = waiting[unique]
                _logger.error("a request waited %.0f s for %s with nobody at work on it; it gets EIO", age_s, need)
                self.abandoned += 1
                lane.fail(unique, errno.EIO)

    def _is_attended(self, unique: int) -> bool:
        fetches = self._fetches.get(unique, ())
        return any(not fetch.done() for fetch in fetches) or self._loaders.has(unique) or self._relief.has(unique)

    def _start_dispatcher(self, lane: Lane) -> None:
        self._dispatcher = threading.Thread(target=self._dispatch, args=(lane,), name="lane-misses", daemon=True)
        self._dispatcher.start()

    def _native(self) -> Lane:
        if self._lane is None:
            raise OSError(errno.ENODEV, "the mount is gone")
        return self._lane

    def _dispatch(self, lane: Lane) -> None:
        while (wanted := lane.next_wanted()) is not None:
            unique, need = wanted
            try:
                if isinstance(need, str):
                    self._relief.ask(unique, need)
                elif need.what == "chunks":
                    self._fetches[unique] = self._load_chunks(need, partial(self._settle, unique))
                else:
                    # False: the lane has been stopped, and has answered.
                    self._loaders.submit(unique, partial(self._provide, unique, need), urgent=True)
            except BaseException as error:  # noqa: BLE001 - costs this request, and no other
                self._settle(unique, error)

    def _provide(self, unique: int, missing: NotResident) -> None:
        try:
            self._load(missing)
        except BaseException as error:  # noqa: BLE001 - becomes the errno that the caller gets
            self._settle(unique, error)
        else:
            self._settle(unique, None)

    def _settle(self, unique: int, error: BaseException | None) -> None:
        self._fetches.pop(unique, None)
        if error is None:
            self._answer(lambda lane: lane.resume(unique))
        else:
            number = self._errnos.of(error)
            self._answer(lambda lane: lane.fail(unique, number))

    def _answer(self, call: Callable[[Lane], None]) -> None:
        if (lane := self._lane) is not None:
            call(lane)

    def _await_end(self, lane: Lane, on_end: Callable[[], None]) -> None:
        try:
            lane.wait()
        except OSError as error:
            self.failure = error
        del lane
        on_end()


def _ns(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
