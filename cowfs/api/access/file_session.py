"""Sessions of this process for `vol.files`: a volume or a version that is opened without a kernel.

    none ── shared ── open ─┬─ end ───────────────────────────────┐
                            ├─ the last handle is dropped         ├──▶ ended; uncommitted work is kept
                            └─ the interpreter ends ──────────────┘

A process has at most one session per volume or version. Objects share it and hold handles
(`FileSession`). When the last handle is dropped, a thread of this module ends the session, since a
finalizer can run anywhere and must not wait. If the process is killed, the session is not ended,
but the journal has all writes, as with a mount.

A session is maintained as a mount is (`session.keeper`): lease, pin and caches are looked after
until it ends.

A forked child inherits no session of its parent and must neither use nor end one. It opens
its own. For a volume that the parent has open, it gets the error of the lock.

Threads: any. `end` waits for calls under way. A later call finds the session ended and requests a
new one. An exception of a signal handler (Ctrl-C) can end a call before the call has been removed
from the list, so a call counts only while its caller is on the stack of its thread. For the same
reason a session is ended outside the main thread.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import io
import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING
from weakref import WeakSet, WeakValueDictionary, finalize

from cowfs.api.mounts import abandoned
from cowfs.base import clock, interruptible, log
from cowfs.base.errors import ConflictError, CowfsError
from cowfs.base.ids import StoreId
from cowfs.control import SessionSpec
from cowfs.format import backends
from cowfs.machine.working_copy import WorkingCopy
from cowfs.store.credentials.identity import Access

if TYPE_CHECKING:
    from types import FrameType

    from cowfs.session.session import Session

_log = log.get("volume")
LOOK_S = 0.005
"""How often, in seconds, a thread that ends a session checks for calls under way."""


def key_of(store_id: StoreId, volume: str) -> tuple[str, str]:
    """The key of the process's session of a volume."""
    return store_id.hex(), volume


class SessionEnded(Exception):
    """The handle is no longer usable. Request a new one."""


class _Opened:
    """An open session and the resources to close with it."""

    def __init__(self, key: Hashable, spec: SessionSpec, access: Access) -> None:
        from cowfs.session.keeper import Keeper
        from cowfs.session.opening import open_session

        self.key = key
        self.pid = os.getpid()
        self.is_ended = False
        self._calls: set[_Call] = set()
        self._is_over = False
        self._ending = threading.Lock()
        self._discard = threading.Event()
        self.files: WeakSet[object] = WeakSet()
        self.buffers: WeakSet[io.BufferedIOBase | io.TextIOBase] = WeakSet()
        with ExitStack() as stack:
            self.session = open_session(spec, stack, self._discard, access=access)
            self.session.wait_patiently()
            is_dirty = self.session.writer is not None and self.session.engine.is_dirty()
            began_dirty = is_dirty and _left.pop(key, None) is None
            self._began_on = self.session.base if began_dirty else None
            self._keeper = Keeper(self.session, releases_memory=False)
            self._keeper.start()
            self._stack = stack.pop_all()

    @property
    def _leaves_work(self) -> bool:
        """After the end: whether writes of this session are in no version. A session that began
        with uncommitted work counts only if that work was committed during the session."""
        began_dirty = self._began_on is not None and self.session.base == self._began_on
        is_kept = backends.of_url(self.session.spec.store_url).reach != "process"
        return is_kept and self.session.is_left_dirty and not began_dirty

    def enter(self) -> _Call:
        call = _Call()
        self._calls.add(call)  # first: either `end` sees the call, or the call sees the end
        if self.is_ended or self.pid != os.getpid():
            self._calls.discard(call)
            raise SessionEnded
        return call

    def leave(self, call: _Call) -> None:
        self._calls.discard(call)

    def end(self, *, discard: bool = False, is_asked: bool = True) -> None:
        """Returns when the session has ended. Only the first caller gets its errors. Calls of
        threads that wait for this end are not waited for, since a signal handler interrupted them.
        is_asked: the user requested the end, by unmount or the like; otherwise the work it leaves
        is reported when the program ends."""
        interruptible.run(partial(self._end, discard, is_asked), self.session.hurry)

    def _end(self, discard: bool, is_asked: bool) -> None:
        with self._ending:
            if self._is_over:
                return
            self.is_ended = True
            waiting = interruptible.waiting_threads()
            while self._has_calls(waiting) or self._has_calls(waiting):  # the second look finds calls that moved
                clock.sleep_s(LOOK_S)
            if discard:
                self._discard.set()
            try:
                self.session.mark_ending()
                self.session.hurry()
                self._keeper.stop()
            finally:
                try:
                    self._stack.close()
                    if not is_asked:
                        self._remember_left()
                finally:
                    self._is_over = True
                    _forget(self)

    def _remember_left(self) -> None:
        """Runs before the session is forgotten, since an ending program then no longer waits for
        it."""
        if self._leaves_work and (path := self.session.spec.working_copy) is not None:
            _left[self.key] = WorkingCopy(Path(path)), self.session.spec.store_url

    def _has_calls(self, but_of: set[int]) -> bool:
        return any(call.thread not in but_of and call.is_under_way for call in list(self._calls))

    def forget_interrupted(self) -> None:
        """Drops calls that Ctrl-C has ended, with all references held by their frames."""
        for call in list(self._calls):
            if not call.is_under_way:
                self._calls.discard(call)


class _Call:
    """A call under way, made for a function that is on the stack of this thread."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self._frame = _caller()

    @property
    def is_under_way(self) -> bool:
        frame = sys._current_frames().get(self.thread)
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        return frame is not None


def _caller() -> FrameType:
    """The frame that made the call. It skips generators and context managers: they are not on the
    stack while their block runs."""
    frame = sys._getframe(1)
    while frame.f_code.co_flags & inspect.CO_GENERATOR or frame.f_globals.get("__name__") in _PASSED:
        assert frame.f_back is not None
        frame = frame.f_back
    return frame


_PASSED = (__name__, contextlib.__name__, "cowfs.api.access.file_access")


class FileSession:
    """A handle of an open session. The session stays open as long as a handle exists."""

    def __init__(self, opened: _Opened) -> None:
        self._opened = opened
        finalize(self, _dropped.put, opened).atexit = False

    @property
    def is_usable(self) -> bool:
        return not self._opened.is_ended and self._opened.pid == os.getpid()

    @property
    def store_url(self) -> str:
        return self._opened.session.spec.store_url

    @contextmanager
    def used(self) -> Iterator[Session]:
        """SessionEnded: the session has ended, or it belongs to the process that this one was
        forked from."""
        call = self._opened.enter()
        try:
            yield self._opened.session
        finally:
            self._opened.leave(call)

    def watch(self, file: object) -> None:
        """Counts `file` as open as long as it exists and its `closed` is False."""
        self._opened.files.add(file)

    def watch_buffer(self, file: io.BufferedIOBase | io.TextIOBase) -> None:
        """Flushes `file` when the interpreter ends, if it has not been closed by then."""
        self._opened.buffers.add(file)

    def require_unused(self) -> None:
        """ConflictError while files are open."""
        self._opened.forget_interrupted()
        names = sorted(str(getattr(each, "name", each)) for each in list(self._opened.files) if not _is_closed(each))
        if names:
            raise ConflictError(
                f"files of the volume are open in this process: {', '.join(names[:5])}{', …' if len(names) > 5 else ''}",
                hint="Close them first. With force=True they get errors when they are used.",
            )

    def end(self, *, discard: bool = False) -> None:
        """Ends the session for all its handles. discard: delete the working copy, too."""
        self._opened.end(discard=discard)


def shared(key: Hashable, spec: Callable[[], SessionSpec], access: Access) -> FileSession:
    """The process's session under that key, opened if necessary. access: the settings for
    requests to its store."""
    with _turn(key):
        while True:
            with _lock:
                handle = _handles.get(key)
                opened = _sessions.get(key)
                if handle is not None and handle.is_usable:
                    return handle
                if opened is not None and not opened.is_ended:  # its last handle was just dropped
                    handle = _handles[key] = FileSession(opened)
                    return handle
            if opened is None:
                break
            opened.end()  # another thread ends it: wait for that
        _start_closer()
        opened = _Opened(key, spec(), access)
        handle = FileSession(opened)
        with _lock:
            _sessions[key] = opened
            _handles[key] = handle
        return handle


def find(key: Hashable) -> FileSession | None:
    """The process's session under that key, if it is open."""
    with _lock:
        opened = _sessions.get(key)
        if opened is None or opened.is_ended:
            return None
        handle = _handles.get(key)
        if handle is None or not handle.is_usable:
            handle = _handles[key] = FileSession(opened)
        return handle


@contextmanager
def alone(key: Hashable) -> Iterator[FileSession | None]:
    """Keeps this process from opening a session under that key during the block. Yields the open
    one, if there is one."""
    with _turn(key):
        while (opened := _sessions.get(key)) is not None and opened.is_ended:
            opened.end()  # another thread ends it: wait for that
        yield find(key)


def was_inherited(key: Hashable) -> bool:
    """Whether the process that this one was forked from had such a session at the fork."""
    return any(opened.key == key for opened in _inherited)


_lock = threading.Lock()
_turns: dict[Hashable, threading.RLock] = {}  # re-entrant: a commit's listener may use files
_sessions: dict[Hashable, _Opened] = {}
_handles: WeakValueDictionary[Hashable, FileSession] = WeakValueDictionary()
_dropped: SimpleQueue[_Opened] = SimpleQueue()  # a finalizer in any thread may put into it
_inherited: list[_Opened] = []  # referenced, so that they are not finalized here
_left: dict[Hashable, tuple[WorkingCopy, str]] = {}  # writes of this process, neither committed nor ended by the user
_has_closer = False
_is_forked = False  # a forked process may end without `atexit`, as those of `multiprocessing` do


def _turn(key: Hashable) -> threading.RLock:
    with _lock:
        return _turns.setdefault(key, threading.RLock())


def _forget(opened: _Opened) -> None:
    with _lock:
        if _sessions.get(opened.key) is opened:
            del _sessions[opened.key]


def _start_closer() -> None:
    global _has_closer
    with _lock:
        if _has_closer:
            return
        _has_closer = True
    threading.Thread(target=_close_dropped, args=(_dropped,), name="cowfs-files", daemon=True).start()


def _close_dropped(dropped: SimpleQueue[_Opened]) -> None:
    while True:
        opened = dropped.get()
        with _lock:
            handle = _handles.get(opened.key)
            is_held = handle is not None and handle._opened is opened
        del handle
        if not is_held:
            _end_quietly(opened)
        del opened


def _end_all() -> None:
    """Ends every open session as unmount() does."""
    for _ in range(2):  # a signal handler may have opened another session
        with _lock:
            still_open = list(_sessions.values())
        for opened in still_open:
            _flush(opened)
            _end_quietly(opened)


def _tell_of_left() -> None:
    """Reports where the work of a program is that ended before its commit."""
    while _left:
        _, (working_copy, store_url) = _left.popitem()
        if working_copy.is_kept and working_copy.holder() is None:
            _log.warning("%s", abandoned.resume_hint(working_copy.volume, store_url))


def _main_ends() -> None:
    """Other threads and functions of `atexit` may open sessions again after this."""
    _end_all()
    if _is_forked:
        _tell_of_left()


def _program_ends() -> None:
    _end_all()
    _tell_of_left()


def _flush(opened: _Opened) -> None:
    """Flushes the buffers of files that were left open, as the interpreter does for local files."""
    for file in list(opened.buffers):
        try:
            file.flush()
        except ValueError:
            pass  # it is closed or detached
        except (CowfsError, OSError) as error:
            _log.warning("what was written to a file that nobody has closed is lost: %s", error)


def _end_quietly(opened: _Opened) -> None:
    try:
        opened.end(is_asked=False)
    except (CowfsError, OSError) as error:
        _log.warning("what a program used without a mount could not be closed: %s", error)


def _reset_child() -> None:
    """Runs in the child. Locks held by other threads of the parent would stay locked here."""
    global _lock, _dropped, _has_closer, _is_forked
    _lock, _dropped, _has_closer, _is_forked = threading.Lock(), SimpleQueue(), False, True
    _inherited.extend(_sessions.values())
    _turns.clear()
    _sessions.clear()
    _handles.clear()
    _left.clear()


def _is_closed(file: object) -> bool:
    return bool(getattr(file, "closed", False))


os.register_at_fork(after_in_child=_reset_child)
atexit.register(_program_ends)
# The pools of concurrent.futures are shut down before the functions of atexit run, and requests to
# some stores need a pool. This hook runs before that. Its name is private to CPython. If it is
# missing, or the main thread has ended already, the only effect is a slower end.
with contextlib.suppress(AttributeError, RuntimeError):
    threading._register_atexit(_main_ends)  # type: ignore[attr-defined]
