"""The life of a mount daemon, from a specification to its exit.

    mount point checked → session opened → control socket → mounted and verified → server started → `ready` → detached
    → mount gone (unmounted by any program, told to end, or a signal) → threads stopped → session closed → reply → exit

The answer to the starter is one line on the pipe that was standard output: {"ready": {…}} once the
kernel has finished its handshake, or {"error": record}. Until then an error undoes everything, and
nothing stays mounted. Afterwards the daemon is independent of the starter (own session, log file
instead of its terminal; not with `foreground`).

Threads: this one opens, waits until the mount is over, and closes. The server of the kernel's
requests (`server`), control connections and the keeper have their own threads. Only control
threads, the signal thread and that of the bound processes ever touch the mount point's path, to
unmount it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from cowfs.base import clock, failpoints, log
from cowfs.base.errors import (
    ConflictError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    MountFailedError,
    from_local_disk,
    unexpected,
)
from cowfs.control import MountSpec, Server
from cowfs.control.binding import Binding
from cowfs.control.handover import Handover
from cowfs.control.messages import Ready, Waiting
from cowfs.control.typed import to_json
from cowfs.daemon import pyfuse, stale_names, starter, transport
from cowfs.daemon.bound_processes import BoundProcesses
from cowfs.daemon.feeding import Feeding
from cowfs.daemon.lane import FastLane
from cowfs.daemon.leaving import Leaving
from cowfs.daemon.mappings import Mappings
from cowfs.daemon.registration import Registration
from cowfs.daemon.request_server import CacheTimes, KernelServer
from cowfs.daemon.requests import Requests
from cowfs.daemon.signals import Signals
from cowfs.daemon.supervision import Supervision
from cowfs.machine import mount_table, mounting, processes, registry, sharing
from cowfs.native.constants import CONGESTION, MAX_BACKGROUND, ROOT_INO
from cowfs.session.keeper import Keeper
from cowfs.session.looks import Looks
from cowfs.session.opening import open_session
from cowfs.session.session import Session
from cowfs.version.commit import Progress

PASSTHROUGH_VARIABLE = "COWFS_PASSTHROUGH"
SPIN_VARIABLE = "COWFS_SPIN"
HANDSHAKE_S = 30.0
DECIDE_S = 10.0
"""How long to wait, after the mount has ended, for the request that ended it to decide what becomes
of its work. Usually no wait."""
ASKED_AGAIN_S = 10.0
ASKED_LOOK_S = 0.02
ENDS_S = 3.0
"""From removing the last mount of a connection until its end is seen. Usually no wait."""
REQUESTS_GRACE_S = 10.0
"""For requests that wait for the store when the mount ends."""
COMMIT_GRACE_S = 60.0
"""For a commit that runs when the mount ends; one that takes longer is resolved by the next
mount."""
SIGNAL_GRACE_S = 10.0
"""The same after a signal. Kubernetes kills 30 s after SIGTERM; docs/concurrency.md, "Shutdown",
adds the steps up."""

_logger = log.get("mount")

Connect = Callable[[Session, Looks, int], KernelServer]
"""Makes the server of an opened session's mount from the mount's descriptor."""


class Daemon:
    """One mount. `run` returns when it is over."""

    def __init__(self, spec: MountSpec, answer_fd: int, handover: Handover, supervision: Supervision) -> None:
        self._spec = spec
        self._supervision = supervision
        self._feeding = Feeding(handover)
        self._answer_fd = answer_fd
        self.is_ready = False
        self._is_connected = False
        self._is_served_to_end = False
        self._is_asked_to_end = False
        self._mount: mount_table.MountInfo | None = None
        self._registration: Registration | None = None
        self._starting = ExitStack()
        self._discard = threading.Event()
        self._grace_s = COMMIT_GRACE_S
        self._ended = threading.Event()
        self._ending = threading.Lock()
        self._deciding = threading.Lock()  # held from the unmount until it is decided whether the work stays
        self._failure: CowfsError | None = None
        self._control: Server | None = None
        self._server: KernelServer | None = None
        self._bound: BoundProcesses | None = None

    def run(self) -> None:
        """Serves the mount to its end. Raises errors from before `ready`, or from closing."""
        try:
            with ExitStack() as stack:
                try:
                    self._serve(stack)
                except BaseException:
                    if self._supervision.is_continued and not self.is_ready:
                        self._kept = stack.pop_all()  # as if this process had been killed
                    raise
        except CowfsError as error:
            self._failure = error
            raise
        except OSError as error:
            _logger.exception("the mount ended")
            self._failure = from_local_disk(
                error, "the mount ended", otherwise="Please report this; daemon.log has more."
            )
            raise self._failure from error
        except BaseException as error:
            self._failure = unexpected("the mount ended", error, hint="Please report this; daemon.log has more.")
            raise
        finally:
            self._ended.set()
            self._feeding.end()
            if self._control is not None:
                self._control.close()

    # -- the way in

    def _serve(self, stack: ExitStack) -> None:
        spec = self._spec
        connect = self._lane() if spec.options.fast_lane else self._pyfuse()
        if spec.options.fuse_fd is not None:
            mounting.check_descriptor(spec.options.fuse_fd)
        elif not self._supervision.is_continued:
            self._prepare_mount_point(stack)
        stack.callback(self._end_supervision)
        access = self._feeding.access
        session = open_session(
            spec,
            stack,
            self._discard,
            self._report,
            access=access,
            may_be_given_up=True,
            survival=self._supervision.survival,
        )
        if not spec.options.foreground:
            starter.log_to(Path(spec.log))  # the directory may have been deleted before this process had its lock
        session.on_version = lambda: self._supervision.note_version(session)
        looks = Looks(session, is_listed=spec.options.show_versions)
        stack.callback(looks.close)

        def look_after() -> None:
            self._look_after(session, mappings)
            looks.look_after()
            self._supervision.look_after()
            if self._control is not None:
                registration.keep(self._control)

        keeper = Keeper(session, look_after)
        mappings = Mappings(session.engine, session.residency, self._invalidate, self._invalidate_entry)
        self._registration = registration = self._register(stack, session)
        requests = Requests(
            spec,
            session,
            keeper,
            mappings,
            lambda force, discard: self._end(mappings, force, discard),
            self._take_off,
            lambda: self._transport,
            self._waiting,
            self._feeding,
            registration.adopt,
            self._bind,
            lambda: self._supervision.state,
        )
        leaving = Leaving(spec, registration, requests, lambda discard: self._end_alone(mappings, discard))
        self._bound = bound = BoundProcesses(leaving.leave)
        if spec.binding is not None:
            bound.bind(requests.spare_earlier_work(spec.binding))
        self._control = Server(spec.socket, requests.handlers)
        stack.callback(self._close_server)
        stack.callback(keeper.stop)
        stack.callback(session.hurry)
        stack.callback(lambda: requests.finish(self._grace_s))
        stack.callback(self._detach)
        if spec.options.fuse_fd is None and not self._supervision.is_continued:
            self._prepare_mount_point(stack)  # a daemon that was abandoned may have removed it while this one waited
        self._server = server = connect(session, looks, self._descriptor())
        signals = Signals(lambda: self._end_by_signal(mappings))
        try:
            self._serve_mount(server, session, keeper, requests)
        finally:
            bound.end()
            signals.ignore()
            self._await_decision()

    def _serve_mount(self, server: KernelServer, session: Session, keeper: Keeper, requests: Requests) -> None:
        server.start()
        if server.wait_until_ready(HANDSHAKE_S):
            self._ready(session, keeper)
            self._end_restore(requests)
        is_over = False
        try:
            server.wait()
            is_over = not session.engine.is_broken()
            if is_over and self._supervision.is_continued and self._mount is None:
                self._await_request()
        finally:
            if is_over or self.is_ready or not self._supervision.is_continued:
                self._await_decision()  # if this process is killed meanwhile, the next one is asked
                self._end_supervision()
                session.mark_ending()
        if not is_over:
            raise _broken()
        server.close(REQUESTS_GRACE_S)
        self._is_served_to_end = True
        if not self._is_asked_to_end:
            _logger.warning(
                "%s was not unmounted by cowfs but by another program; its work is kept", self._spec.mount_path
            )
        if not self.is_ready and not self._supervision.is_continued:
            raise MountFailedError(f"{self._spec.mount_path} was unmounted before it was ready", hint="Try again.")

    def _await_decision(self) -> None:
        if self._deciding.acquire(timeout=DECIDE_S):
            self._deciding.release()

    def _end_restore(self, requests: Requests) -> None:
        """One that was under way when the daemon before was killed. The kernel of a new mount knows
        no names."""
        if self._spec.working_copy is None:
            return
        path = Path(self._spec.working_copy)
        if self._supervision.is_continued:
            end = partial(requests.end_killed_restore, path)
            threading.Thread(target=end, name="restore-end", daemon=True).start()
        else:
            stale_names.forget(path)

    def _await_request(self) -> None:
        """The mount was off its path before this process began. If that was its daemon's last act,
        on request, the request is made again, as long as the mount is known to be supervised."""
        end_s = clock.monotonic_s() + ASKED_AGAIN_S
        while not self._is_asked_to_end and clock.monotonic_s() < end_s:
            clock.sleep_s(ASKED_LOOK_S)

    def _report(self, progress: Progress) -> None:
        starter.tell(self._answer_fd, {"progress": to_json(progress)})

    def _prepare_mount_point(self, stack: ExitStack) -> None:
        path = self._spec.mount_path
        if registry.canonical(path) != path:
            raise InvalidInputError(f"{path} is not a canonical path", hint="Resolve symbolic links first.")
        if mounting.prepare(path):
            stack.callback(self._remove_mount_point)

    def _remove_mount_point(self) -> None:
        if not self.is_ready:
            with contextlib.suppress(OSError):  # gone, or another mount's by now
                os.rmdir(self._spec.mount_path)

    def _register(self, stack: ExitStack, session: Session) -> Registration:
        spec, version = self._spec, session.opened.version_id
        held = sharing.Held()
        if self._supervision.is_continued and (earlier := registry.find_by_id(spec.registration)) is not None:
            held.follow(earlier)  # processes that share the mount have locked it
        entry = registry.register(
            spec.registration,
            mount_path=Path(spec.mount_path),
            socket=Path(spec.socket),
            store_url=session.store.url,
            store_id=session.record.store_id.hex(),
            volume=spec.volume,
            version_id=version.hex() if version is not None and spec.mode != "rw" else None,
            read_only=spec.is_read_only,
            working_copy=Path(spec.working_copy) if spec.working_copy is not None else None,
            kind=spec.kind,
            folder=spec.folder,
            sharing_key=spec.options.sharing_key if spec.is_read_only else "",
        )
        registration = Registration(entry, held)
        stack.callback(registration.end)
        self._starting = stack.enter_context(ExitStack())
        self._starting.enter_context(sharing.starting(entry))
        return registration

    def _lane(self) -> Connect:
        tried = transport.choose(self._spec)
        return lambda session, looks, fd: FastLane(
            looks.engine,
            fd,
            self._cache_times(),
            load_rows=looks.load_rows,
            load_chunks=looks.load_chunks,
            relieve=session.room.relieve,
            passthrough=session.recorder is None and not self._supervision.is_supervised and _may_pass_through(),
            spins=_may_spin(),
            tried=tried,
            owners=session.owners,
            table=survival.table if (survival := self._supervision.survival) is not None else None,
        )

    def _pyfuse(self) -> Connect:
        transport.choose(self._spec)
        server = pyfuse.import_server()
        return lambda session, looks, fd: server(
            looks.engine,
            fd,
            self._cache_times(),
            load_rows=looks.load_rows,
            load_chunks=looks.load_chunks,
            relieve=session.room.relieve,
            owners=session.owners,
        )

    def _cache_times(self) -> CacheTimes:
        spec = self._spec
        return CacheTimes(spec.cache_s("attr_cache"), spec.cache_s("entry_cache"), spec.cache_s("dir_entry_cache"))

    def _descriptor(self) -> int:
        """The mounted /dev/fuse: passed in, or mounted now."""
        if (fd := self._spec.options.fuse_fd) is not None:
            return fd
        if self._supervision.is_continued:
            self._mount = mount_table.mount_at(self._spec.mount_path)
            return self._supervision.take_device()
        fd = mounting.mount(self._spec.mount_path, self._mount_options())
        self._find_mount()
        self._supervision.note_device(fd)
        return fd

    def _mount_options(self) -> set[str]:
        spec = self._spec
        return mounting.options(
            spec.volume,
            read_only=spec.is_read_only,
            allow_other=spec.options.allow_other,
            scratch=spec.kind == "scratch",
        )

    def _find_mount(self) -> None:
        self._mount = mounting.verify(self._spec.mount_path, read_only=self._spec.is_read_only)

    def _invalidate(self, ino: int) -> None:
        if self._server is not None:
            self._server.invalidate_inode(ino)

    def _invalidate_entry(self, parent: int, name: bytes) -> None:
        if self._server is not None:
            self._server.invalidate_entry(parent, name)

    def _look_after(self, session: Session, mappings: Mappings) -> None:
        if self._server is None:
            return
        if session.engine.is_broken():
            _logger.critical("%s", _broken())
            with mappings.hold():  # a notice returns, since its writes are still answered, with EIO
                mappings.close()
                self._server.stop()
        else:
            self._server.look_after()

    def _waiting(self) -> Waiting | None:
        """The requests that wait for data to be loaded."""
        return self._server.waiting() if self._server is not None else None

    @property
    def _transport(self) -> str:
        return self._server.transport if self._server is not None else "device"

    def _ready(self, session: Session, keeper: Keeper) -> None:
        spec, version, resumed = self._spec, session.opened.version_id, session.resumed
        transport.check(spec, self._transport)
        self._tune()
        keeper.start()  # before the answer: a mount without its threads must not become ready
        if not spec.options.foreground:
            starter.leave()
        ready = Ready(
            pid=os.getpid(),
            registration=spec.registration,
            socket=spec.socket,
            mount_path=spec.mount_path,
            version=version,
            head_number=session.opened.head_number,
            resumed_records=resumed.records,
            cut_bytes=resumed.cut_bytes,
            dropped_extents=resumed.dropped_extents,
            lost_files=resumed.lost_files,
            overtaken_by=session.writer.overtaken_by if session.writer is not None else None,
        )
        self._supervision.keep(session)
        self._supervision.note_version(session)
        self._note_supervisor()
        starter.answer(self._answer_fd, {"ready": to_json(ready)})
        self.is_ready = True
        self._starting.close()
        session.mark_ready()
        session.wait_patiently()
        if self._bound is not None:
            self._bound.start()

    def _note_supervisor(self) -> None:
        if self._registration is not None and (supervisor := self._supervision.supervisor) is not None:
            registry.note_supervisor(self._registration.entry, supervisor)

    def _end_supervision(self, reason: str = "the mount ends") -> None:
        if self._supervision.is_supervised:
            if self._registration is not None:
                registry.drop_supervisor(self._registration.entry)
            self._supervision.end(reason)

    def _tune(self) -> None:
        """Call after the handshake, which resets both values."""
        if (mount := self._mount) is None:
            return
        if not mount_table.set_read_ahead(mount):
            _logger.info("read-ahead stays at the kernel's default: not permitted to change it")
        mount_table.set_max_background(mount, MAX_BACKGROUND, CONGESTION)

    # -- the way out

    def _unmount(self, *, lazy: bool) -> None:
        """Unmounts, except a descriptor that was passed in: its owner unmounts it."""
        self._is_asked_to_end = True
        try:
            if self._mount is not None:
                failpoints.hit("unmounting")
                mounting.unmount(self._mount, lazy=lazy)
                failpoints.hit("unmounted")
        except BaseException:
            self._is_asked_to_end = False
            raise

    def _stop_server(self) -> None:
        if self._server is not None:
            self._server.stop()

    def _close_server(self) -> None:
        if self._server is not None:
            self._server.close(0)

    def _detach(self) -> None:
        """Detaches after an error; when a server ended normally, its mount is already gone."""
        if self._mount is not None and not self._is_served_to_end:
            mounting.abort(self._mount)  # otherwise requests to the ended server would hang
            self._unmount(lazy=True)

    def _end(self, mappings: Mappings, force: bool, discard: bool) -> None:
        """Takes the mount down from a control thread and waits until everything is released."""
        with self._ending:
            if self._ended.is_set():
                raise InvalidStateError(f"{self._spec.mount_path} is unmounted already")
            if force:
                mappings.flush()
            with self._require_unshared(force):
                with mappings.hold(), self._deciding:
                    self._unmount(lazy=force)
                    if not force:
                        self._require_gone(discard)
                    if discard:
                        self._discard.set()
                    mappings.close()
                    self._stop_server()
                self._ended.wait()
        if self._failure is not None:
            raise self._failure

    def _require_gone(self, is_discarded: bool) -> None:
        """ConflictError: the kernel has not ended the connection. Either another file system is
        mounted over the mount; or the mount is off its path, and still used in other ways, which
        continue to be served."""
        if self._mount is None or self._server is None or self._server.has_ended(ENDS_S):
            return
        try:
            self._server.invalidate_inode(ROOT_INO)
        except OSError:
            return  # no mount knows its root any more: the machine is busy, and the end is noticed late
        path, kept = self._spec.mount_path, " Nothing was dropped." if is_discarded else ""
        if self._mount.device in {each.device for each in mount_table.mounts() if each.path == path}:
            self._is_asked_to_end = False
            raise ConflictError(
                f"another file system is mounted over {path}",
                hint=f"Unmount that first (`findmnt {path}` shows it), and then this.{kept}",
            )
        if self._registration is not None:
            self._registration.detach()
        raise ConflictError(
            f"{path} is still used elsewhere: through a bind mount, an overlay, a container or another mount namespace, or by an "
            f"open file; it is off its path, and process {os.getpid()} serves the other users",
            hint="It ends when the last of them is gone. `lsof` shows open files, "
            f"`findmnt -t {mount_table.FILE_SYSTEM_TYPE}` there shows mounts; or end that process.{kept}",
            details={"pid": os.getpid()},
        )

    @contextmanager
    def _require_unshared(self, force: bool) -> Iterator[None]:
        """Checks again that no other process shares the mount, and keeps others away: the caller
        has done so, but may have died meanwhile."""
        if force or self._registration is None:
            yield
            return
        with sharing.ending(self._registration.entry, self._registration.held) as is_unshared:
            if not is_unshared:
                raise ConflictError(
                    f"{self._spec.mount_path} is used by other processes",
                    hint="It ends when the last of them unmounts, finalizes or ends.",
                )
            yield

    def _take_off(self) -> None:
        """Detaches the mount from its path at once. When the last open file is closed, the kernel
        ends the connection, and so the loop ends."""
        with self._ending:
            if self._ended.is_set():
                return
            self._unmount(lazy=True)
            if self._registration is not None:
                self._registration.detach()

    def _end_by_signal(self, mappings: Mappings) -> None:
        """As `_end`, without a caller to answer: programs that still use the mount lose it."""
        self._grace_s = SIGNAL_GRACE_S
        self._take_away(mappings)

    def _end_alone(self, mappings: Mappings, discard: bool) -> None:
        """As `_end_by_signal`, without a signal, and waits as `_end` does."""
        with self._ending:
            if not self._ended.is_set():
                self._take_away(mappings, discard=discard)
                self._ended.wait()

    def _take_away(self, mappings: Mappings, *, discard: bool = False) -> None:
        mappings.flush()
        with mappings.hold(), self._deciding:
            try:
                self._unmount(lazy=False)
            except ConflictError as error:
                _logger.warning("%s", error)
                self._unmount(lazy=True)
            if discard:
                self._discard.set()
            mappings.close()
            self._stop_server()

    def _bind(self, binding: Binding) -> None:
        self._end_supervision("it ends with a process")
        if self._bound is not None:
            self._bound.bind(binding)


def _broken() -> CowfsError:
    return CowfsError(
        "the engine failed in the middle of a change; the mount ends, since its memory is no longer reliable",
        hint="Mount the volume again: the journal has everything that was acknowledged. Please report this with the log.",
    )


def _may_pass_through() -> bool:
    """Checks the capability, so that files are not assembled for nothing; the kernel decides at
    each open."""
    return os.environ.get(PASSTHROUGH_VARIABLE, "") != "0" and processes.has_capability(processes.CAP_SYS_ADMIN)


def _may_spin() -> bool:
    """Disabled under a CPU quota, where spinning would use up the quota."""
    return os.environ.get(SPIN_VARIABLE, "") != "0" and not processes.has_processor_quota()
