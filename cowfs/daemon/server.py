"""What the daemon asks of the server of its mount's requests, and the two servers there are.

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

from cowfs.control.messages import Waiting
from cowfs.errors import MountFailedError
from cowfs.native import NotResident
from cowfs.native.chunks import ChunkRef
from cowfs.values import dataclass

LoadChunks = Callable[[NotResident, Sequence[ChunkRef], Callable[[BaseException | None], None]], Sequence[Future[None]]]
"""As `Looks.load_chunks`."""
LOAD_THREADS = 64
"""Loads that a server runs at once."""


@dataclass(frozen=True)
class CacheTimes:
    """How long the kernel may believe attributes, entries, and entries that are directories. This
    mount is the only writer."""

    attr_s: float
    entry_s: float
    dir_entry_s: float


class KernelServer(Protocol):
    """Answers one mount's requests, on threads of its own. Made, it owns the descriptor."""

    @property
    def transport(self) -> str:
        """What carries the requests: "device" or "uring"; known after the handshake."""

    def start(self) -> None:
        """Begins answering. To be called once."""

    def wait_until_ready(self, timeout_s: float) -> bool:
        """Returns once requests are answered. False: the mount is gone. Raises when the kernel has
        not begun its handshake in that time."""

    def wait(self) -> None:
        """Returns once the mount is gone or `stop` was called. Raises what ended the server, if
        anything did."""

    def has_ended(self, within_s: float) -> bool:
        """Whether the mount is gone, or goes within that time."""

    def stop(self) -> None:
        """Lets `wait` return. Safe to call at any time, and more than once."""

    def close(self, grace_s: float) -> None:
        """Stops; requests that wait have grace_s to be answered, then they get EIO. Nothing is
        answered any more when it returns, and the descriptor is released, so that the kernel fails
        who still uses the mount. Safe to call more than once."""

    def invalidate_inode(self, ino: int) -> None:
        """The kernel writes back and drops every page of the inode; returns when the writes have
        been answered. Not from a thread that an answer needs. ENOENT: the kernel does not know the
        inode. ENODEV: the server is closed."""

    def invalidate_entry(self, parent: int, name: bytes) -> None:
        """The kernel forgets what a name of a directory leads to, or that it leads nowhere; waits
        for requests about the directory. Not from a thread that an answer needs. ENOENT, ENODEV: as
        for `invalidate_inode`."""

    def waiting(self) -> Waiting | None:
        """None: this server does not count them."""

    def look_after(self) -> None:
        """To be called now and then: answers requests that nobody is at work on."""


def silent(timeout_s: float) -> MountFailedError:
    return MountFailedError(
        f"the kernel said nothing for {timeout_s:.0f} s", hint="Is the descriptor handed in really mounted?"
    )


def broken(error: OSError) -> MountFailedError:
    return MountFailedError(
        f"the connection to the kernel broke: {error}", hint="Mount the volume again; its work is kept."
    )
