"""The changes of fsspec's file system, until they are published as one version of each volume: all
of a call, or all of a transaction."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, BinaryIO

from fsspec.transaction import Transaction

from cowfs.errors import InvalidStateError, NotFoundError

if TYPE_CHECKING:
    from cowfs.blocking import RWFiles, Store, VolumeChanges
    from cowfs.integrations.fsspec import CowfsFileSystem

_log = logging.getLogger("cowfs.fsspec")


class Batch:
    """Changes that become one version of each affected volume. holds: they are held until `publish`
    is called; otherwise each is published when it is added."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._changes: dict[str, VolumeChanges] = {}
        self._contents: list[BinaryIO] = []
        self._directories: set[tuple[str, str]] = set()
        self._thread = threading.get_ident()
        self._pid = os.getpid()
        self._of_others = 0
        self._is_over = False
        self.holds = False

    def require_own(self) -> None:
        """InvalidStateError in a child that was forked meanwhile: changes added there would not
        reach the process that began the batch."""
        if os.getpid() != self._pid:
            raise InvalidStateError(
                f"this write belongs to a transaction of process {self._pid}, which cannot publish what a child of it "
                "writes",
                hint="Write in that process, or in a worker with a file system object of its own: fsspec.filesystem(…) called "
                "there, or multiprocessing by spawn. It publishes by itself.",
            )

    def begin(self, volume: str) -> None:
        """Changes of the volume are based on the version that is newest at the first call."""
        with self._lock:
            if volume not in self._changes:
                try:
                    self._changes[volume] = self._store.changes(volume)
                except NotFoundError as error:
                    raise FileNotFoundError(
                        2, f"{error.message} (fs.mkdir makes one, as cowfs create does)", volume
                    ) from error

    def add(
        self,
        volume: str,
        touches: Sequence[bytes],
        apply: Callable[[RWFiles], None],
        content: BinaryIO | None = None,
    ) -> None:
        """A change as `VolumeChanges.add` takes it. content: the data that it reads."""
        self.require_own()
        with self._lock:
            if content is not None:
                self._contents.append(content)
            if self._is_over:
                raise ValueError("the transaction of this file is over: it was not published")
            self._changes[volume].add(touches, apply)
            self._of_others += threading.get_ident() != self._thread
        if not self.holds:
            self.publish()

    def make(self, volume: str, directory: str) -> None:
        """Records that the path and its parents are to be directories."""
        names = directory.split("/")
        with self._lock:
            self._directories |= {(volume, "/".join(names[: count + 1])) for count in range(len(names))}

    def has_made(self, volume: str, directory: str) -> bool:
        with self._lock:
            return (volume, directory) in self._directories

    def publish(self) -> None:
        self.require_own()
        try:
            with self._lock:
                self._is_over = True
            for changes in self._changes.values():
                changes.publish()
        finally:
            self.drop()

    def tell_others(self) -> None:
        """Warns of changes that other threads made in the failed transaction, which are not
        published. Only the code that began the transaction gets the exception."""
        if self._of_others:
            _log.warning(
                "what other threads wrote in a transaction is not published (%d changes): it has failed. A file system "
                "object of their own, fsspec.filesystem(…, skip_instance_cache=True), is in no transaction",
                self._of_others,
            )

    def drop(self) -> None:
        """Drops changes that are not published yet."""
        with self._lock:
            self._is_over = True
            while self._contents:
                self._contents.pop().close()


class CowfsTransaction(Transaction):  # type: ignore[misc]
    """One version of each volume that is changed, published at the end. batch: the changes so far;
    None: it has not started, or is complete."""

    fs: CowfsFileSystem
    batch: Batch | None = None

    def start(self) -> None:
        super().start()
        self.batch = self.fs.new_batch()
        self.batch.holds = True

    def complete(self, commit: bool = True) -> None:
        batch, self.batch = self.batch, None
        if not commit and batch is not None:
            batch.tell_others()
        try:
            for file in self.files:
                if commit and not file.closed:  # buffered data of its wrappers is missing
                    _log.warning("%s was never closed, and is not published", file.path)
                    file.discard()
            super().complete(commit)
            if commit and batch is not None:
                batch.publish()
        finally:
            if batch is not None:
                batch.drop()
