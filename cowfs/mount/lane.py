"""The fast lane of one mount: the native answerer on the device, with pyfuse3 behind it, and the threads that serve it.

    lane-misses    takes what parked requests need; chunks it asks for without waiting, everything else it hands to
    lane-load      up to LOAD_THREADS threads that make it resident (or free disk space) and resume the request, so that
                   reads waiting for data, however many, keep no directory from being loaded
    lane-end       waits for the lane's end and says so

pyfuse3 sits at `relay_fd`, one end of a socket pair; to it the lane is the kernel. `forwarded` names the operations it
answers (the daemon takes them from COWFS_LANE_FORWARD, so that a suspect operation can be switched over); without any it
answers the handshake only, and the lane everything.

Not here: mounting (`mount_point`), and the loop behind the lane (`serving`).
"""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from cowfs.errors import CowfsError, InvalidInputError
from cowfs.mount import transport
from cowfs.mount.calls import LOAD_THREADS
from cowfs.mount.errnos import Errnos
from cowfs.mount.operations import CacheTimes
from cowfs.native import Engine, Lane, NotResident


class FastLane:
    """`start` begins answering, `stop` ends it; `failure` is what broke the connection to the kernel, if anything did."""

    def __init__(
        self,
        engine: Engine,
        device_fd: int,
        times: CacheTimes,
        *,
        load: Callable[[NotResident], None],
        load_chunks: Callable[[NotResident, Callable[[BaseException | None], None]], None],
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
        self._relieve = relieve
        self._errnos = Errnos()
        self._loaders = ThreadPoolExecutor(LOAD_THREADS, thread_name_prefix="lane-load")
        self.failure: OSError | None = None

    def start(self, on_end: Callable[[], None]) -> None:
        """on_end runs on a thread of its own when the mount is gone or the lane has been stopped."""
        lane = self._native()
        try:
            lane.start()
        except OSError as error:
            raise transport.not_permitted(error) from error
        threading.Thread(target=self._dispatch, args=(lane,), name="lane-misses", daemon=True).start()
        threading.Thread(target=self._await_end, args=(lane, on_end), name="lane-end", daemon=True).start()

    def stop(self, grace_s: float) -> None:
        """Nothing is answered any more when it returns; what waited has had grace_s. Safe to call more than once."""
        if (lane := self._lane) is None:
            return
        lane.stop(int(grace_s * 1000))
        self._loaders.shutdown(wait=False, cancel_futures=True)
        self._lane = None  # with the last user the descriptor closes, and the kernel fails whoever still asks

    @property
    def transport(self) -> str:
        """What carries the requests: "device" or "uring"; known after the handshake."""
        return "device" if (lane := self._lane) is None else lane.transport()

    def invalidate_inode(self, ino: int) -> None:
        """As `Lane.invalidate_inode`; ENODEV once the lane has been stopped."""
        self._native().invalidate_inode(ino)

    def _native(self) -> Lane:
        if self._lane is None:
            raise OSError(errno.ENODEV, "the mount is gone")
        return self._lane

    def _dispatch(self, lane: Lane) -> None:
        while (wanted := lane.next_wanted()) is not None:
            unique, missing = wanted
            try:
                if missing is not None and missing.what == "chunks":
                    self._load_chunks(missing, partial(self._settle, unique))
                else:
                    self._loaders.submit(self._provide, unique, missing)
            except CowfsError as error:  # nothing was started
                self._settle(unique, error)
            except RuntimeError:  # shut down: the lane has been stopped, and has answered
                return

    def _provide(self, unique: int, missing: NotResident | None) -> None:
        try:
            if missing is not None:
                self._load(missing)
            elif self._relieve() == 0:
                raise OSError(errno.ENOSPC, "nothing can be freed")
        except BaseException as error:  # noqa: BLE001 - becomes the errno that the caller gets
            self._settle(unique, error)
        else:
            self._settle(unique, None)

    def _settle(self, unique: int, error: BaseException | None) -> None:
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
