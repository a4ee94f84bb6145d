"""Runs `cowfs` commands in processes of their own, without starting Python for each.

Loading Python and cowfs takes most of a short command's time. So a server loads them once, and
forks for each command. The child gets the arguments, environment, directory and standard streams of
its command, and ends as a program does: with its exit handlers, and its own exit code.

    tests ─ Unix socket: request, three descriptors ─▶ server ─ fork ─▶ command
          ◀─ exit code ───────────────────────────────  (pidfd)

Only what every command loads is loaded before. What a process of its own must do from its first
instruction on (import order, closed streams, signals while it loads) is tested with
`python -m cowfs.cli`.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress

_LOADED = "import cowfs.cli.main, cowfs.cli.output, cowfs.api.volume"
_REQUEST_BYTES = 1 << 20
_server: tuple[int, socket.socket] | None = None
_lock = threading.Lock()


def run_command(
    arguments: list[str], *, cwd: str | os.PathLike[str], environment: Mapping[str, str], timeout_s: float = 180
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of `cowfs ARGUMENTS` without input: waits until the command has ended and
    no process has its output open."""
    request = json.dumps([arguments, dict(environment), os.fspath(cwd)]).encode()
    with ExitStack() as stack:
        conversation, theirs = map(stack.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        pipes = [os.pipe() for _ in range(2)]
        files = [stack.enter_context(open(end, "rb", buffering=0)) for end, _ in pipes]
        ends = [os.open(os.devnull, os.O_RDONLY), *(end for _, end in pipes), theirs.detach()]
        try:
            with _lock:
                socket.send_fds(_connect(), [request], ends)
        finally:
            for end in ends:
                os.close(end)
        return _wait(arguments, conversation, [file.fileno() for file in files], timeout_s)


def _wait(
    arguments: list[str], conversation: socket.socket, files: list[int], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    written: dict[int, list[bytes]] = {file: [] for file in files}
    with selectors.DefaultSelector() as selector:
        for file in files:
            selector.register(file, selectors.EVENT_READ)
        while selector.get_map():
            found = selector.select(timeout_s)
            if not found:
                raise subprocess.TimeoutExpired(["cowfs", *arguments], timeout_s)
            for key, _ in found:
                if part := os.read(key.fd, 1 << 16):
                    written[key.fd].append(part)
                else:
                    selector.unregister(key.fd)
    conversation.settimeout(timeout_s)
    code = int(conversation.recv(16))
    out, err = (b"".join(parts).decode(errors="surrogateescape") for parts in written.values())
    return subprocess.CompletedProcess(["cowfs", *arguments], code, out, err)


def _connect() -> socket.socket:
    """The socket of this process's server, which ends when it is closed."""
    global _server
    if _server is None or _server[0] != os.getpid():
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES)
        program = f"{_LOADED}; from tests.forked_commands import serve; serve({theirs.fileno()})"
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        )
        theirs.close()

        def end() -> None:
            ours.close()
            process.wait()

        atexit.register(end)
        _server = os.getpid(), ours
    return _server[1]


def serve(number: int) -> None:
    """Until the client has closed the socket. For one thread: a fork takes no lock along."""
    requests = socket.socket(fileno=number)
    running: dict[int, tuple[int, int]] = {}
    """For each pidfd the child's process and the descriptor that takes its exit code."""
    selector = selectors.DefaultSelector()
    selector.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fd != requests.fileno():
                selector.unregister(key.fd)
                pid, answer = running.pop(key.fd)
                with suppress(OSError):  # the client has given up
                    os.write(answer, b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(answer)
                os.close(key.fd)
                continue
            request, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, 4)
            if not request:
                return
            if pid := os.fork():
                watched = os.pidfd_open(pid)
                running[watched] = pid, descriptors.pop()
                selector.register(watched, selectors.EVENT_READ)
                for each in descriptors:
                    os.close(each)
            else:
                selector.close()
                requests.close()
                for watched, (_, answer) in running.items():
                    os.close(watched)
                    os.close(answer)
                _become(descriptors, *json.loads(request))


def _become(descriptors: list[int], arguments: list[str], environment: dict[str, str], directory: str) -> None:
    """Runs the command in this process, and ends it."""
    from cowfs.base import failpoints
    from cowfs.cli.start import main

    for number, each in enumerate(descriptors[:3]):
        os.dup2(each, number)
    for each in descriptors:
        os.close(each)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(directory)
    sys.argv = ["cowfs", *arguments]
    failpoints._armed = failpoints._parse(os.environ.get("COWFS_FAILPOINT", ""))
    code: object = 1
    try:
        main()
    except SystemExit as error:
        code = error.code
    finally:
        threading._shutdown()  # type: ignore[attr-defined] # as at the end of a program
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))
