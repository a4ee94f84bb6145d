"""Fetches bytes that programs stored through shared mappings, and that are only in the kernel's
page cache.

A notification about an inode (FUSE_NOTIFY_INVAL_INODE) makes the kernel write its dirty pages back,
and returns when the writes have been answered. So `flush` must be called from a thread that holds
nothing the FUSE loop needs, and only while the loop runs: otherwise the caller would sleep
uninterruptibly, even past kill -9. `hold` makes it safe to end the loop: no flush is running
while it is held, and after `close` none begins.

If a page cannot be staged, the kernel drops it, and a program that does not sync gets no error. The
engine records this; `check` raises until the bytes are written again, are truncated or deleted with
the file, or the volume is mounted anew.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import ParamSpec

from cowfs.base.errors import CorruptError, InvalidStateError, NoSpaceError
from cowfs.native import Engine
from cowfs.session.lost import paths_of
from cowfs.session.residency.residency import Residency

P = ParamSpec("P")
NAMED = 5  # files that a message names


class Mappings:
    def __init__(
        self,
        engine: Engine,
        residency: Residency,
        invalidate: Callable[[int], None],
        invalidate_entry: Callable[[int, bytes], None] = lambda parent, name: None,
    ) -> None:
        """`invalidate` sends the notification about one inode, `invalidate_entry` that about a name
        in a directory."""
        self._engine = engine
        self._residency = residency
        self._invalidate = invalidate
        self._invalidate_entry = invalidate_entry
        self._lock = threading.Lock()
        self._is_closed = False

    def flush(self) -> None:
        """Returns when every store made through a mapping before this call is in the engine.

        InvalidStateError once the mount is being taken down.
        """
        with self._lock:
            if self._is_closed:
                raise InvalidStateError(
                    "the mount is being taken down", hint="Mount the volume again; its work is kept."
                )
            for ino in self._engine.writable_handles():
                self._send(self._invalidate, ino)

    def forget(self, names: Iterable[tuple[int, bytes]], inodes: Iterable[int]) -> None:
        """Makes the kernel drop names in directories, and inodes, that were changed without it.
        Does nothing once the mount is being taken down."""
        with self._lock:
            if self._is_closed:
                return
            for parent, name in sorted(names):
                self._send(self._invalidate_entry, parent, name)
            for ino in sorted(inodes):
                self._send(self._invalidate, ino)

    def check(self) -> None:
        """Call after a `flush`. Raises if files lack bytes that were stored through mappings and
        could not be staged."""
        refused = self._engine.refused_stores()
        if not refused:
            return
        names = sorted(paths_of(self._engine, self._residency, [ino for ino, _, _ in refused]).values())
        text = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
        size = sum(length for _, length, _ in refused)
        is_full = all(number in (errno.ENOSPC, errno.EDQUOT) for _, _, number in refused)
        raise (NoSpaceError if is_full else CorruptError)(
            f"{size} bytes stored through mappings are lost, because the local disk refused them: {text}",
            hint="Free space and write them again, or replace or delete the files; "
            "unmounting and mounting again accepts the files as they are.",
            details={"files": names},
        )

    @contextmanager
    def hold(self) -> Iterator[None]:
        with self._lock:
            yield

    def close(self) -> None:
        """Call while holding `hold`."""
        self._is_closed = True

    def _send(self, notice: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
        try:
            notice(*arguments, **named)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTCONN, errno.ENODEV):
                raise
            # the kernel has forgotten the inode, or the whole mount: there is nothing to invalidate
