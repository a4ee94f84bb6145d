"""The interface of the server that answers a mount's requests, which has two implementations.

    lane      the native server (`lane`, native/lane): the default
    pyfuse    pyfuse3 on trio (`pyfuse.server`): `fast_lane=False`; an optional extra of the package

Both answer from the same engine and pass the same suites. A server takes over a descriptor of
/dev/fuse that is mounted (`machine.mounting`), and makes the kernel's handshake.

    start → wait_until_ready → wait → close          stop, invalidate_inode, waiting and look_after from any thread
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from cowfs.base.errors import MountFailedError
from cowfs.base.fast_dataclass import dataclass
from cowfs.control.messages import Waiting
from cowfs.native import NotResident
from cowfs.native.chunks import ChunkRef

LoadChunks = Callable[[NotResident, Sequence[ChunkRef], Callable[[BaseException | None], None]], Sequence[Future[None]]]
"""As `Looks.load_chunks`."""
LOAD_THREADS = 64
"""Loads that a server runs at once."""


@dataclass(frozen=True)
class CacheTimes:
    """How long the kernel may cache attributes, entries, and entries that are directories. This
    mount is the only writer."""

    attr_s: float
    entry_s: float
    dir_entry_s: float


class KernelServer(Protocol):
    """Answers one mount's requests, on its own threads. It owns the descriptor from
    construction."""

    @property
    def transport(self) -> str:
        """What carries the requests: "device" or "uring"; known after the handshake."""

    def start(self) -> None:
        """Begins answering. Call it once."""

    def wait_until_ready(self, timeout_s: float) -> bool:
        """Returns once requests are answered. False: the mount is gone. Raises if the kernel has
        not begun its handshake in that time."""

    def wait(self) -> None:
        """Returns once the mount is gone or `stop` was called. Raises the error that ended the
        server, if there was one."""

    def has_ended(self, within_s: float) -> bool:
        """Whether the mount is gone, or ends within that time."""

    def stop(self) -> None:
        """Lets `wait` return. Safe to call at any time, and more than once."""

    def close(self, grace_s: float) -> None:
        """Stops. Waiting requests have grace_s to be answered, then they get EIO. When it returns,
        no request is answered any more, and the descriptor is released, so that the kernel fails
        further use of the mount. Safe to call more than once."""

    def invalidate_inode(self, ino: int) -> None:
        """Makes the kernel write back and drop every page of the inode; returns when the writes
        have been answered. Never call it from a thread that an answer needs. ENOENT: the kernel
        does not know the inode. ENODEV: the server is closed."""

    def invalidate_entry(self, parent: int, name: bytes) -> None:
        """Makes the kernel forget a directory entry, or its absence; waits for requests about the
        directory. Never call it from a thread that an answer needs. ENOENT, ENODEV: as for
        `invalidate_inode`."""

    def waiting(self) -> Waiting | None:
        """None: this server does not count them."""

    def look_after(self) -> None:
        """Call it regularly: it fails requests that no thread works on."""


def silent(timeout_s: float) -> MountFailedError:
    return MountFailedError(
        f"no FUSE request arrived within {timeout_s:.0f} s",
        hint="Check that the descriptor given as fuse_fd= (--fuse-fd) belongs to a mounted file system.",
    )


def broken(error: OSError) -> MountFailedError:
    return MountFailedError(
        f"the connection to the kernel broke: {error}", hint="Mount the volume again; its work is kept."
    )
