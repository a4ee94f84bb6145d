"""Sessions of this process for `vol.files`: a volume or a version that is opened without a kernel.

    none ── shared ── open ─┬─ end ───────────────────────────────┐
                            ├─ nobody has a handle any more       ├──▶ ended; uncommitted work is kept
                            └─ the interpreter ends ──────────────┘

A process has at most one session of a volume or version, whichever objects ask: they hold handles
(`FileSession`). When the last handle is gone, a thread of this module ends the session, since a
finalizer may run anywhere and must not wait. A killed process ends none: the journal has what was
written, as behind a mount.

A session lives as a mount's does (`session.keeper`): lease, pin and caches are looked after until
it ends.

A forked child has none of its parent's sessions: it must neither use nor end them. It opens its
own; of a volume that the parent has, it gets the error that the lock gives.

Threads: any. `end` waits for calls under way; a call that comes later finds the session ended and
asks for another one. An exception of a signal's handler (Ctrl-C) may end a call before it has said
that it is over, so a call counts only while its caller is on the stack of its thread; and a session
is ended apart from the main thread.
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

from cowfs import apart, clock, log
from cowfs.api import abandoned
from cowfs.control import SessionSpec
from cowfs.errors import ConflictError, CowfsError
from cowfs.machine.working_copy import WorkingCopy
from cowfs.store.identity import Access

if TYPE_CHECKING:
    from types import FrameType

    from cowfs.session.session import Session

_log = log.get("volume")
LOOK_S = 0.005
"""So often whoever ends a session looks whether the calls under way are over."""


class SessionEnded(Exception):
    """Of a handle: ask for a new one."""


class _Opened:
    """An open session, and how it is ended."""

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
        self.buffers: WeakSet[io.BufferedIOBase] = WeakSet()
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
    def leaves_work(self) -> bool:
        """Once it has ended: whether what was written here is in no version. Of a session that
        began with uncommitted work only once that was committed."""
        began_dirty = self._began_on is not None and self.session.base == self._began_on
        is_kept = not self.session.spec.store_url.startswith("memory:")
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

    def end(self, *, discard: bool = False) -> bool:
        """Returns when it has ended; whether this call did it. Errors are raised to the first
        caller. Calls of who waits for it are not waited for: the handler of a signal has come
        between."""
        return apart.run(partial(self._end, discard), self.session.hurry)

    def _end(self, discard: bool) -> bool:
        with self._ending:
            if self._is_over:
                return False
            self.is_ended = True
            waiting = apart.waiting_threads()
            while self._has_calls(waiting) or self._has_calls(waiting):  # what moves is seen the second time
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
                finally:
                    self._is_over = True
                    _forget(self)
            return True

    def _has_calls(self, but_of: set[int]) -> bool:
        return any(call.thread not in but_of and call.is_under_way for call in list(self._calls))

    def forget_interrupted(self) -> None:
        """Calls that Ctrl-C has ended, and whatever their frames hold."""
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
    """Generators, and what else enters the session for a block, are not on the stack while it
    runs."""
    frame = sys._getframe(1)
    while frame.f_code.co_flags & inspect.CO_GENERATOR or frame.f_globals.get("__name__") in _PASSED:
        assert frame.f_back is not None
        frame = frame.f_back
    return frame


_PASSED = (__name__, contextlib.__name__, "cowfs.api.file_access")


class FileSession:
    """A handle of an open session. Whoever holds one keeps the session open."""

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
        """SessionEnded: it has ended, or it is that of the process that this one was forked
        from."""
        call = self._opened.enter()
        try:
            yield self._opened.session
        finally:
            self._opened.leave(call)

    def watch(self, file: object) -> None:
        """`file` is open as long as it lives and its `closed` is False."""
        self._opened.files.add(file)

    def watch_buffer(self, file: io.BufferedIOBase) -> None:
        """It is flushed when the interpreter ends, if nobody has closed it."""
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
        """Of all handles. discard: the working copy goes, too."""
        self._opened.end(discard=discard)


def shared(key: Hashable, spec: Callable[[], SessionSpec], access: Access) -> FileSession:
    """The process's session under that key, opened if there is none. access: how its store is
    asked."""
    with _turn(key):
        while True:
            with _lock:
                handle = _handles.get(key)
                opened = _sessions.get(key)
                if handle is not None and handle.is_usable:
                    return handle
                if opened is not None and not opened.is_ended:  # its last handle went just now
                    handle = _handles[key] = FileSession(opened)
                    return handle
            if opened is None:
                break
            opened.end()  # by another thread: it is waited for
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
    """This process opens no session under that key meanwhile. The one that is open, if there is
    one."""
    with _turn(key):
        while (opened := _sessions.get(key)) is not None and opened.is_ended:
            opened.end()  # by another thread: it is waited for
        yield find(key)


def was_inherited(key: Hashable) -> bool:
    """Whether the process that this one was forked from had such a session then."""
    return any(opened.key == key for opened in _inherited)


_lock = threading.Lock()
_turns: dict[Hashable, threading.RLock] = {}  # re-entrant: a commit's listener may use files
_sessions: dict[Hashable, _Opened] = {}
_handles: WeakValueDictionary[Hashable, FileSession] = WeakValueDictionary()
_dropped: SimpleQueue[_Opened] = SimpleQueue()  # its put may be called by a finalizer, in any thread
_inherited: list[_Opened] = []  # kept, so that nothing of them is finalized here
_left: dict[Hashable, tuple[WorkingCopy, str]] = {}  # with what this process wrote, and nobody has ended or committed
_has_closer = False
_is_forked = False  # such a process may end without `atexit`, as those of `multiprocessing` do


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
    """What is open still is ended as by unmount()."""
    for _ in range(2):  # the handler of a signal may have opened another one
        with _lock:
            still_open = list(_sessions.values())
        for opened in still_open:
            _flush(opened)
            _end_quietly(opened)


def _tell_of_left() -> None:
    """A program that did not come to its commit is told where its work is."""
    while _left:
        _, (working_copy, store_url) = _left.popitem()
        if working_copy.is_kept and working_copy.holder() is None:
            _log.warning("%s", abandoned.resume_hint(working_copy.volume, store_url))


def _main_ends() -> None:
    """Threads that go on, and functions of `atexit`, may open sessions again."""
    _end_all()
    if _is_forked:
        _tell_of_left()


def _program_ends() -> None:
    _end_all()
    _tell_of_left()


def _flush(opened: _Opened) -> None:
    """What lies in the buffers of files that nobody has closed, as when local files are left
    open."""
    for file in list(opened.buffers):
        try:
            file.flush()
        except ValueError:
            pass  # it is closed, or has been detached
        except (CowfsError, OSError) as error:
            _log.warning("what was written to a file that nobody has closed is lost: %s", error)


def _end_quietly(opened: _Opened) -> None:
    try:
        is_mine = opened.end()  # else the user has said so, by unmount or the like
        if is_mine and opened.leaves_work and (path := opened.session.spec.working_copy) is not None:
            _left[opened.key] = WorkingCopy(Path(path)), opened.session.spec.store_url
    except (CowfsError, OSError) as error:
        _log.warning("what a program used without a mount could not be closed: %s", error)


def _after_fork() -> None:
    """In the child: locks that other threads of the parent held stay locked here for ever."""
    global _lock, _dropped, _has_closer, _is_forked
    _lock, _dropped, _has_closer, _is_forked = threading.Lock(), SimpleQueue(), False, True
    _inherited.extend(_sessions.values())
    _turns.clear()
    _sessions.clear()
    _handles.clear()
    _left.clear()


def _is_closed(file: object) -> bool:
    return bool(getattr(file, "closed", False))


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_program_ends)
# Before the pools of concurrent.futures are shut down, which come earlier than atexit's functions:
# requests to some stores need one. The name is CPython's own, and private; where it is missing, or
# the main thread has ended already, ending without is only slower.
with contextlib.suppress(AttributeError, RuntimeError):
    threading._register_atexit(_main_ends)  # type: ignore[attr-defined]
