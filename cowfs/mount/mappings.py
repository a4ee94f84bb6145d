"""Brings in what programs stored through shared mappings: bytes that are only in the kernel's page cache.

A notification about an inode (FUSE_NOTIFY_INVAL_INODE) makes the kernel write its dirty pages back and returns when the
writes have been answered. So `flush` is called from a thread that holds nothing the FUSE loop needs, and only while the
loop runs: without it the caller would sleep uninterruptibly, past kill -9. `paused` is how the loop is ended safely:
no flush is under way while it is held, and after `close` none begins.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cowfs.errors import InvalidStateError
from cowfs.native import Engine


class Mappings:
    def __init__(self, engine: Engine, invalidate: Callable[[int], None]) -> None:
        """`invalidate` sends the notification about one inode."""
        self._engine = engine
        self._invalidate = invalidate
        self._lock = threading.Lock()
        self._is_closed = False

    def flush(self) -> None:
        """Every store made through a mapping before this call is in the engine when it returns.

        InvalidStateError once the mount is being taken down.
        """
        with self._lock:
            if self._is_closed:
                raise InvalidStateError(
                    "the mount is being taken down", hint="Mount the volume again; its work is kept."
                )
            for ino in self._engine.writable_handles():
                self._write_back(ino)

    @contextmanager
    def paused(self) -> Iterator[None]:
        with self._lock:
            yield

    def close(self) -> None:
        """To be called with `paused` held."""
        self._is_closed = True

    def _write_back(self, ino: int) -> None:
        try:
            self._invalidate(ino)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTCONN, errno.ENODEV):
                raise
            # the kernel has forgotten the inode, or the whole mount: it has no pages of it
