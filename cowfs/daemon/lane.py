"""The native server of one mount: the lane on the device (native/lane), and the threads that serve
it.

    lane-misses    takes the needs of parked requests; it requests chunks without waiting, and hands over everything else to
    lane-load      up to LOAD_THREADS threads that load it and resume the request, or request the chunks that the
                   request will need next; so reads waiting for data, however many, keep no directory from being loaded
    lane-room      frees disk space and makes reclaim passes (`relief`)
    lane-end       waits for the kernel's handshake, then for the lane's end; so others can wait for either, or for `stop`

A failure on one of these threads affects only the current request. `look_after`, called regularly,
fails parked requests that no thread works on, and restarts lane-misses if it has ended.

With the `Handshake` of an earlier lane, a new one can continue on a descriptor whose INIT was
answered: the kernel sends it once in a mount's life.

Not here: mounting (`machine.mounting`).
"""

from __future__ import annotations

import errno
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from cowfs.base import log
from cowfs.base.errors import InvalidInputError
from cowfs.control.messages import Waiting
from cowfs.daemon import transport
from cowfs.daemon.errnos import Errnos
from cowfs.daemon.relief import Relief
from cowfs.daemon.request_server import LOAD_THREADS, CacheTimes, LoadChunks, broken, silent
from cowfs.native import Engine, Lane, NotResident, Owners, SurvivalTable
from cowfs.native.chunks import ChunkRef
from cowfs.session.residency.fetching import Fetchers

ABANDONED_LOOKS = 3

_logger = log.get("mount")


class Handshake(NamedTuple):
    """What the lane and the kernel have agreed on: the protocol's minor number, features, and the
    largest request sizes."""

    minor: int
    flags: int
    max_write: int
    max_pages: int


class FastLane:
    """Implements `KernelServer`."""

    def __init__(
        self,
        engine: Engine,
        device_fd: int,
        times: CacheTimes,
        *,
        load_rows: Callable[[NotResident], Sequence[ChunkRef]],
        load_chunks: LoadChunks,
        relieve: Callable[[], int],
        passthrough: bool = False,
        spins: bool = False,
        tried: transport.Transport = "device",
        owners: Owners | None = None,
        handshake: Handshake | None = None,
        table: SurvivalTable | None = None,
    ) -> None:
        """handshake: the earlier agreement, if the kernel's INIT has been answered. table: the
        engine's, if another process is to go on with the mount; it has the handshake as well."""
        try:
            self._lane: Lane | None = Lane(
                engine,
                device_fd=device_fd,
                attr_ns=_ns(times.attr_s),
                entry_ns=_ns(times.entry_s),
                dir_entry_ns=_ns(times.dir_entry_s),
                passthrough=passthrough,
                spins=spins,
                transport=tried,
                owners=owners,
                handshake=handshake,
                table=table,
            )
        except ValueError as error:
            raise InvalidInputError(
                f"the mount cannot be taken over: {error}",
                hint="Unmount the volume and mount it again; its work is kept.",
            ) from error
        self._load_rows = load_rows
        self._load_chunks = load_chunks
        self._errnos = Errnos()
        self._loaders = Fetchers("lane-load", LOAD_THREADS)
        self._relief = Relief(relieve, engine.reclaim_overdue, self._settle)
        self._fetches: dict[int, Sequence[Future[None]]] = {}
        self._suspects: Counter[int] = Counter()  # how many checks found no thread working on a request
        self._dispatcher: threading.Thread | None = None
        self.handshake: Handshake | None = None
        """The agreement, once requests are answered."""
        self._ready = threading.Event()
        self._over = threading.Event()
        self._failure: OSError | None = None
        self._abandoned = 0

    def start(self) -> None:
        lane = self._native()
        try:
            lane.start()
        except OSError as error:
            raise transport.not_permitted(error) from error
        self._relief.start()
        self._start_dispatcher(lane)
        threading.Thread(target=self._await_end, args=(lane,), name="lane-end", daemon=True).start()

    def wait_until_ready(self, timeout_s: float) -> bool:
        if not self._ready.wait(timeout_s):
            raise silent(timeout_s)
        return self.handshake is not None and not self._over.is_set()

    def wait(self) -> None:
        self._over.wait()
        if self._failure is not None:
            raise broken(self._failure)

    def has_ended(self, within_s: float) -> bool:
        return self._over.wait(within_s)

    def stop(self) -> None:
        self._over.set()
        self._ready.set()

    def close(self, grace_s: float) -> None:
        self.stop()
        if (lane := self._lane) is None:
            return
        lane.stop(int(grace_s * 1000))
        self._loaders.close(wait=False)
        self._relief.close()
        self._lane = None  # when the last user is gone the descriptor closes, and the kernel fails open requests

    @property
    def transport(self) -> str:
        return "device" if (lane := self._lane) is None else lane.transport()

    def invalidate_inode(self, ino: int) -> None:
        self._native().invalidate_inode(ino)

    def invalidate_entry(self, parent: int, name: bytes) -> None:
        self._native().invalidate_entry(parent, name)

    def waiting(self) -> Waiting | None:
        if (lane := self._lane) is None:
            return Waiting(0, 0.0, self._abandoned)
        ages = [age_s for _, _, age_s, _ in lane.waiting()]
        return Waiting(len(ages), round(max(ages, default=0.0), 1), self._abandoned)

    def look_after(self) -> None:
        """Fails, with EIO, requests that no thread was working on in ABANDONED_LOOKS consecutive
        calls."""
        if (lane := self._lane) is None:
            return
        dispatcher = self._dispatcher
        if dispatcher is not None and not dispatcher.is_alive():
            _logger.error("the thread that serves misses had ended; restarting it")
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
                _logger.error(
                    "a request waited %.0f s for %s, but no thread was working on it; it gets EIO", age_s, need
                )
                self._abandoned += 1
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
                    self._fetch(unique, need, need.chunks)
                else:
                    # False: the lane has been stopped, and has answered.
                    self._loaders.submit(unique, partial(self._provide, unique, need), urgent=True)
            except BaseException as error:  # noqa: BLE001 - costs this request, and no other
                self._settle(unique, error)

    def _provide(self, unique: int, missing: NotResident) -> None:
        try:
            self._fetch(unique, missing, self._load_rows(missing))
        except BaseException as error:  # noqa: BLE001 - becomes the errno that the caller gets
            self._settle(unique, error)

    def _fetch(self, unique: int, missing: NotResident, chunks: Sequence[ChunkRef]) -> None:
        """Resumes the request once the chunks have arrived: at once if there are none."""
        self._fetches[unique] = self._load_chunks(missing, chunks, partial(self._settle, unique))

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

    def _await_end(self, lane: Lane) -> None:
        if (agreed := lane.handshake()) is not None:
            self.handshake = Handshake(*agreed)
        self._ready.set()
        try:
            lane.wait()
        except OSError as error:
            self._failure = error
        self._over.set()


def _ns(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
