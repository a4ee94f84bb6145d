"""Answers control requests on a Unix socket: the daemon's side of `protocol`.

Each connection has its own thread, separate from the FUSE loop, so a long commit blocks no other
request. The socket has mode 0600 in a directory of mode 0700, and SO_PEERCRED must name this user
or root. If a client disconnects, the handler runs to its end and its answer is dropped. A removed
socket is recreated by the owner of the server (`is_there`, `listen_at`). Handlers raise CowfsError
for expected failures; any other exception is logged with its traceback and answered as `internal`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cowfs.base import clock, log
from cowfs.base.errors import (
    FEWER_PROCESSES,
    AccessDeniedError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    UnavailableError,
    from_local_disk,
    to_message,
    unexpected,
)
from cowfs.base.fast_dataclass import dataclass
from cowfs.control.protocol import LineSocket
from cowfs.control.typed import to_json
from cowfs.version.commit import Progress

BACKLOG = 128
"""Simultaneous callers that need not wait to be accepted."""


@dataclass(frozen=True)
class StoreWait:
    """A description of the daemon's wait for the store; "": the store answers again."""

    said: str


Listener = Callable[[Progress | StoreWait], None]
Handler = Callable[[dict[str, Any], Listener], Any]
"""(arguments without "op", listener) → result, as JSON values. Called on the connection's
thread."""

CONNECTION_LIMIT = 64
SEND_TIMEOUT_S = 10
"""A client that does not read its progress for this long counts as gone: it must not block a
commit."""

HEAR_OUT_S = 1.0

_REPORT = "Please report this; daemon.log has the traceback."

_logger = log.get("control")


class Server:
    """Listens from construction until `close`."""

    def __init__(self, path: str | Path, handlers: Mapping[str, Handler]) -> None:
        """Binds the socket, replacing a stale one. AccessDeniedError if its directory is not
        private."""
        self._path = Path(path)
        self._handlers = dict(handlers)
        self._lock = threading.Lock()
        self._connections: dict[threading.Thread, socket.socket] = {}
        self._busy = 0
        self._idle = threading.Condition(self._lock)
        self._closing = False
        self._listener, self._socket = _listen(self._path)
        self._acceptor = threading.Thread(target=self._accept, name="control-accept", daemon=True)
        self._acceptor.start()

    @property
    def is_there(self) -> bool:
        """Whether clients find the socket at its path."""
        try:
            return _identity(self._path) == self._socket
        except (FileNotFoundError, NotADirectoryError):
            return False

    def listen_at(self, path: Path) -> None:
        """Listens at this path from now on, which may be the same one, where the socket is gone.
        Existing connections stay. InvalidStateError: the path belongs to another process."""
        with self._lock:
            if self._closing:
                return
            listener, found = _listen(path, replaces=False)
            before, self._listener = self._listener, listener
            self._path, self._socket = path, found
        _shut(before)  # the acceptor closes it

    def close(self, timeout_s: float = 10.0) -> None:
        """Accepts nothing more, waits until running requests are answered (at most timeout_s),
        removes the socket."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._idle.wait_for(lambda: self._busy == 0, timeout_s)
            connections = list(self._connections.values())
        self._path.unlink(missing_ok=True)
        _shut(self._listener)
        for connection in connections:
            _shut(connection)
        self._acceptor.join(timeout_s)
        self._listener.close()

    def _accept(self) -> None:
        listener = self._listener
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                if self._is_closing():
                    return
                if listener is not self._listener:
                    listener.close()
                    listener = self._listener
                    continue
                clock.sleep_s(0.1)  # out of descriptors: the next try may find one
                continue
            try:
                self._start(connection)
            except (OSError, RuntimeError) as error:  # no thread available: this client may retry, others continue
                _logger.warning("a control connection was refused: %s", error)
                _refuse(connection, error)

    def _start(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT_S, 0))
        thread = threading.Thread(target=self._serve, args=(connection,), name="control", daemon=True)
        with self._lock:
            self._connections[thread] = connection
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                del self._connections[thread]
            raise

    def _serve(self, connection: socket.socket) -> None:
        lines = LineSocket(connection)
        try:
            self._admit(connection)
            while (request := lines.receive()) is not None:
                if not self._begin():
                    return
                try:
                    lines.send(self._answer(request, _Listener(lines)))
                finally:
                    self._end()
        except CowfsError as error:
            _Listener(lines).tell({"error": to_message(error)})
            _hear_out(connection)
        except OSError as error:
            _logger.info("a control connection broke: %s", error)
        finally:
            with self._lock:
                self._connections.pop(threading.current_thread(), None)
            connection.close()

    def _admit(self, connection: socket.socket) -> None:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
        if uid not in (os.geteuid(), 0):
            raise AccessDeniedError(f"user {uid} may not control a mount of user {os.geteuid()}")
        if len(self._connections) > CONNECTION_LIMIT:
            raise UnavailableError("the mount daemon has too many control connections", hint="Try again in a moment.")

    def _is_closing(self) -> bool:
        with self._lock:
            return self._closing

    def _begin(self) -> bool:
        with self._lock:
            if self._closing:
                return False
            self._busy += 1
            return True

    def _end(self) -> None:
        with self._lock:
            self._busy -= 1
            self._idle.notify_all()

    def _answer(self, request: dict[str, Any], client: _Listener) -> dict[str, Any]:
        op = request.pop("op", None)
        handler = self._handlers.get(op) if isinstance(op, str) else None
        if handler is None:
            unknown = InvalidInputError(
                f"the mount daemon knows no request {op!r}", hint=f"Known: {', '.join(sorted(self._handlers))}."
            )
            return {"error": to_message(unknown)}
        try:
            return {"result": handler(request, lambda event: client.tell(_line(event)))}
        except CowfsError as error:
            return {"error": to_message(error)}
        except OSError as error:
            _logger.exception("control request %s failed", op)
            return {"error": to_message(from_local_disk(error, f"{op} failed", otherwise=_REPORT))}
        except BaseException as error:  # a panic of the engine is not an Exception; the client waits for an answer
            _logger.exception("control request %s failed", op)
            return {"error": to_message(unexpected(f"{op} failed", error, hint=_REPORT))}


def _line(event: Progress | StoreWait) -> dict[str, Any]:
    return {"waiting": event.said} if isinstance(event, StoreWait) else {"progress": to_json(event)}


def _listen(path: Path, *, replaces: bool = True) -> tuple[socket.socket, tuple[int, int]]:
    """Returns the listening socket and the identity of its file. Listens before the file gets its
    name, so a socket that refuses connections always belongs to a dead daemon."""
    directory = path.parent.lstat()
    is_private = stat.S_ISDIR(directory.st_mode) and not stat.S_IMODE(directory.st_mode) & 0o077
    if directory.st_uid != os.geteuid() or not is_private:
        raise AccessDeniedError(
            f"{path.parent} is not private to user {os.geteuid()}", hint=f"Run: chmod 700 {path.parent}"
        )
    _sweep(path.parent)
    if not replaces and os.path.lexists(path):
        raise InvalidStateError(
            f"{path} exists, and was not made by this process", hint="Remove it, if no process uses it."
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    unnamed = path.with_name(path.name + "~")
    try:
        unnamed.unlink(missing_ok=True)
        listener.bind(os.fspath(unnamed))
        unnamed.chmod(0o600)
        listener.listen(BACKLOG)
        found = _identity(unnamed)
        unnamed.replace(path)
    except OSError as error:
        listener.close()
        if error.errno is not None:
            raise from_local_disk(error, f"no control socket at {path}") from error
        raise InvalidInputError(
            f"no control socket at {path}: {error}", hint="Socket paths have at most 107 bytes."
        ) from error
    return listener, found


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _sweep(directory: Path) -> None:
    """Removes the sockets of daemons that died."""
    for path in directory.glob("*.sock"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(os.fspath(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                continue  # alive and busy, or not this user's


class _Listener:
    """A client that may disconnect at any time without disturbing the handler."""

    def __init__(self, lines: LineSocket) -> None:
        self._lines = lines
        self._gone = False

    def tell(self, message: dict[str, Any]) -> None:
        if self._gone:
            return
        try:
            self._lines.send(message)
        except OSError:
            self._gone = True


def _refuse(connection: socket.socket, error: Exception) -> None:
    """Sends the reason to a client for which no thread could be started."""
    refused = UnavailableError(
        f"the mount daemon cannot answer: {error}",
        hint=FEWER_PROCESSES,
    )
    _Listener(LineSocket(connection)).tell({"error": to_message(refused)})
    _hear_out(connection)
    connection.close()


def _hear_out(connection: socket.socket) -> None:
    """Lets a refused client finish its request and hang up: if closed at once, it would see a
    broken pipe instead of the reason."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(HEAR_OUT_S)
        connection.recv(1 << 16)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # its own thread may have closed it
        connection.shutdown(socket.SHUT_RDWR)
