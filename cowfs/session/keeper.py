"""Background threads of a mount, running until `stop`.

    heartbeat     writable    every leases.HEARTBEAT_S: renews lease and pin, acknowledges what collections condemn;
                              a lost lease stops publishing, not the mount. Every IDLE_BEAT_S while nothing is uncommitted
    upload        writable    every UPLOAD_PAUSE_S: uploads files without writes for IDLE_S, so that a commit mostly publishes
    upload-growing  writable  every GROWING_PAUSE_S while anything changes: uploads the stable parts of large files that are still
                              being written
    reclaim       writable    when the engine asks: frees staged bytes that were overwritten before they were committed
    evict         both        every EVICT_PAUSE_S while anything changes: keeps the namespace in memory within NAMESPACE_BYTES;
                              not on a resident mount
    heap          both        every HEAP_PAUSE_S: returns unused memory held by malloc to the system (heap.py)
    checkpoint    writable    every CHECKPOINT_PAUSE_S while anything changes: replaces a journal that has become long, or cannot
                              be synced, by a checkpoint; has catalogues loaded once there is something to store
    trim          both        every TRIM_LOOK_S, reads a counter: keeps caches and committed staged bytes within the cache size
                              (room.py)
    record        both        every RECORD_PAUSE_S, on a mount that records: writes down what was read (recording.py)
    watch         both        every WATCH_PAUSE_S: ends abandoned loads, and runs the daemon's own checks

All threads of an idle mount together wake its processor about once a second. Ending a mount waits
for no pause. If the store does not answer, a step is retried after a growing pause; nothing here
ever ends a mount or loses data.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from cowfs.base import clock, log
from cowfs.base.errors import CowfsError, LeaseLostError
from cowfs.session.committer import Committer
from cowfs.session.faults import Faults
from cowfs.session.heap import Heap
from cowfs.session.session import Session
from cowfs.store.refs.leases import HEARTBEAT_S
from cowfs.writer.writer import Writer

UPLOAD_PAUSE_S = 5.0
GROWING_PAUSE_S = 0.25  # bytes that are not rewritten for this long are stable
IDLE_S = 5.0
TRIM_LOOK_S = 1.0
CHECKPOINT_PAUSE_S = 1.0  # each step reads two counters
SHORTEST_PAUSE_S = 1.0  # after a failure
LONGEST_PAUSE_S = 60.0
WATCH_PAUSE_S = 2.0
RECORD_PAUSE_S = 2.0
JOIN_S = 5.0
EVICT_PAUSE_S = 1.0
HEAP_PAUSE_S = 5.0
NAMESPACE_BYTES = 192 << 20  # some 1.4 million clean files: keeps a mount below 512 MB, however much is walked
IDLE_BEAT_S = 60.0  # half of leases.EXPIRY_S: one heartbeat may be lost
REST_S = 60.0  # the longest wait for a change, which the end of the mount cuts short

_logger = log.get("mount")


class Keeper:
    """Background threads, started by `start` and ended by `stop`. Public attributes may be read
    from any thread."""

    def __init__(
        self, session: Session, look_after: Callable[[], None] = lambda: None, *, releases_memory: bool = True
    ) -> None:
        """`look_after` is called every WATCH_PAUSE_S. releases_memory: False in a process that
        cowfs shares with a program."""
        self._session = session
        self._look_after = look_after
        self._releases_memory = releases_memory
        self._stop = threading.Event()
        self._heap = Heap()
        self._faults = Faults()
        self._threads: list[threading.Thread] = []
        self.renewed_s: float = clock.monotonic_s()
        self.uploaded_bytes = 0
        self.upload_error: CowfsError | None = None
        self.abandoned_loads = 0

    def start(self) -> None:
        self._run("watch", self._watch, WATCH_PAUSE_S)
        self._run("trim", self._trim, TRIM_LOOK_S)
        if self._releases_memory:
            self._run("heap", self._release, HEAP_PAUSE_S)
        if self._session.recorder is not None:
            self._run("record", self._record, RECORD_PAUSE_S)
        if self._session.replayer is not None:
            self._session.replayer.start()
        if not self._session.spec.options.resident:
            self._run("evict", self._evict, EVICT_PAUSE_S, rests=True)
        if not self._session.spec.is_read_only:
            self._run("heartbeat", self._beat, HEARTBEAT_S)
            self._run("upload", self._upload, UPLOAD_PAUSE_S)
            self._run("upload-growing", self._upload_growing, GROWING_PAUSE_S, rests=True)
            self._run("reclaim", self._reclaim, 0.0)
            self._run("checkpoint", self._checkpoint, CHECKPOINT_PAUSE_S, rests=True)

    def stop(self) -> None:
        """Returns when the threads have ended, or after JOIN_S: a thread that waits for a dead
        store is abandoned."""
        self._stop.set()
        if self._session.writer is not None:
            self._session.writer.committer.end_uploads()
        if self._session.replayer is not None:
            self._session.replayer.stop()
        self._session.engine.end_waits()
        end_s = clock.monotonic_s() + JOIN_S
        for thread in self._threads:
            thread.join(max(end_s - clock.monotonic_s(), 0.0))

    def _run(self, name: str, step: Callable[[], bool], pause_s: float, *, rests: bool = False) -> None:
        """Calls step every pause_s, and less and less often while it returns False. rests: pauses
        while nothing in the engine changes."""
        engine = self._session.engine

        def loop() -> None:
            wait_s = pause_s
            while True:
                seen = engine.watch() if rests else 0
                if self._stop.wait(wait_s):
                    return
                if not self._try(step):
                    wait_s = min(max(wait_s * 2, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
                    continue
                wait_s = pause_s
                if rests:
                    engine.wait_changed(seen, REST_S)

        thread = threading.Thread(target=loop, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _try(self, step: Callable[[], bool]) -> bool:
        try:
            return step()
        except BaseException:  # a panic of the engine is not an Exception; it must not end a service
            if not self._stop.is_set():  # an engine that is being closed refuses calls
                _logger.exception("%s failed; it will be retried", threading.current_thread().name)
            return False

    def _beat(self) -> bool:
        writer = self._session.writer
        if writer is None or writer.lease_lost is not None or self._may_rest():
            return True
        try:
            writer.lease.renew()
        except LeaseLostError as error:
            writer.lease_lost = error
            _logger.error("%s", error)
        except CowfsError as error:
            _logger.warning("the lease was not renewed: %s", error)
        else:
            self.renewed_s = clock.monotonic_s()
            self._acknowledge_collections(writer)
        return True  # the next beat must not come later than usual

    def _may_rest(self) -> bool:
        """Whether the lease was renewed less than IDLE_BEAT_S ago, nothing uncommitted depends on
        it, and no collection waits for an acknowledgement."""
        engine, writer = self._session.engine, self._session.writer
        if writer is not None and not writer.protection.has_acknowledged:
            return False
        is_recent = clock.monotonic_s() - self.renewed_s < IDLE_BEAT_S - HEARTBEAT_S / 2
        return is_recent and not engine.is_broken() and not engine.is_dirty()

    def _acknowledge_collections(self, writer: Writer) -> None:
        try:
            writer.committer.acknowledge_collections()
        except CowfsError as error:
            _logger.warning("could not read what collections condemn: %s", error)

    def _upload(self) -> bool:
        if (done_bytes := self._try_upload(lambda committer: committer.upload_quiet(IDLE_S))) is None:
            return False
        self.upload_error = None
        self.uploaded_bytes += done_bytes
        return True

    def _upload_growing(self) -> bool:
        """Usually has nothing to do, so success says nothing about the store."""
        if (done_bytes := self._try_upload(Committer.upload_growing)) is None:
            return False
        self.uploaded_bytes += done_bytes
        return True

    def _try_upload(self, step: Callable[[Committer], int]) -> int | None:
        """Runs a step and returns the bytes it stored; None if the store does not answer."""
        writer = self._session.writer
        if writer is None or writer.lease_lost is not None:
            return 0
        try:
            return step(writer.committer)
        except CowfsError as error:
            if self.upload_error is None:
                _logger.warning("background upload is waiting for the store: %s", error)
            self.upload_error = error
            return None

    def _trim(self) -> bool:
        self._session.room.trim_if_due()
        return True

    def _release(self) -> bool:
        self._heap.release()
        return True

    def _evict(self) -> bool:
        self._session.engine.evict(NAMESPACE_BYTES)
        return True

    def _watch(self) -> bool:
        if (abandoned := self._session.residency.fail_abandoned()) > 0:
            self.abandoned_loads += abandoned
            _logger.error("%d loads were abandoned because their threads are gone", abandoned)
        self._faults.log()
        self._look_after()
        return True

    def _record(self) -> bool:
        if self._session.recorder is not None:
            self._session.recorder.step()
        return True

    def _checkpoint(self) -> bool:
        if (writer := self._session.writer) is not None and self._session.engine.is_dirty():
            writer.committer.expect_work()
        try:
            self._session.residency.load_nameless()  # which it has anew
            self._session.engine.checkpoint_when_due()
        except OSError as error:
            if not self._stop.is_set():
                _logger.warning("the journal could not be shortened: %s", error)
            return False
        return True

    def _reclaim(self) -> bool:
        self._session.engine.reclaim_when_due(REST_S)
        return True
