"""A mount daemon that loads its modules while its caller still resolves the mount.

    with prepare():        starts a daemon, unless something speaks against it
        …                  `take` hands its process to the code that starts a mount (`launch`), which sends the rest
                           at the end of the block a daemon not taken is killed; it had no request, so nothing is undone

This module imports only code that starts a process, so that a command can import it first.
Threads: each thread has its own daemons and passes them to the work that it runs in another thread
(`cowfs.base.interruptible`).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from subprocess import PIPE

import cowfs
from cowfs.base import programs
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.programs import Program


@dataclass(frozen=True)
class Prepared:
    """A daemon that has received no specification yet. words: a descriptor with its output until it
    knows its log."""

    process: Program
    environ: dict[str, str]
    words: int

    def last_words(self) -> bytes:
        return os.pread(self.words, WORDS_BYTES, 0)

    def close(self) -> None:
        os.close(self.words)

    def end(self) -> None:
        signal_all(self.process, signal.SIGKILL)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait()
        self.close()


WORDS_BYTES = 1 << 16
_PATHS = (
    *("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CREDENTIAL_FILE", "BOTO_CONFIG"),
    *("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_LOGIN_CACHE_DIRECTORY"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_API_CERTIFICATE_CONFIG", "CLOUDSDK_CONFIG"),
    *("AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_KUBERNETES_CA_FILE", "AZURE_CONFIG_DIR"),
    *("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"),
    *("COWFS_CACHE_DIR", "COWFS_STATE_DIR", "COWFS_DECLARED"),
    *("FSSPEC_CONFIG_DIR", "XDG_RUNTIME_DIR", "TMPDIR"),
)
_PATH_LISTS = ("AWS_DATA_PATH", "PYTHONPATH", "SSL_CERT_DIR")
"""Environment variables that hold paths of files. A daemon works in /, so these paths must be
absolute for it to find the same files. The other XDG variables count only if they are absolute."""
_own: ContextVar[list[Prepared] | None] = ContextVar("prepared", default=None)  # one, until it is taken


@contextmanager
def prepare(*, is_wanted: bool = True) -> Iterator[None]:
    if not is_wanted or _own.get():
        yield
        return
    environ, words = environment(), os.memfd_create("cowfs-daemon")
    try:
        waiting = [Prepared(spawn(environ, words), environ, words)]
    except BaseException:
        os.close(words)
        raise
    before = _own.set(waiting)
    try:
        yield
    finally:
        _own.reset(before)
        if waiting:
            waiting.pop().end()


def take() -> Prepared | None:
    """A prepared daemon; None without one, or if the environment has changed since."""
    if not (waiting := _own.get()):
        return None
    taken = waiting.pop()
    if taken.environ == environment():
        return taken
    taken.end()
    return None


def spawn(environ: dict[str, str], stderr: int | None, fuse_fd: int | None = None, *, stays: bool = False) -> Program:
    """Starts a daemon in a session of its own. It reads its specification from standard input.
    stays: the daemon is a child of this process. Otherwise the program that is started is an
    intermediate process, which ends when the daemon is ready (`daemon.parting`)."""
    return programs.start(
        [sys.executable, "-P", "-m", "cowfs.daemon", *(() if stays else ("apart",))],
        stdin=PIPE,
        stdout=PIPE,
        stderr=stderr,
        start_new_session=True,
        cwd="/",
        pass_fds=() if fuse_fd is None else (fuse_fd,),
        env=environ,
    )


def signal_all(process: Program, number: signal.Signals | None) -> bool:
    """Sends a signal to a daemon that was just spawned and to its intermediate process. None sends
    no signal. Returns whether any of these processes exists."""
    try:
        os.killpg(process.pid, number or 0)
    except ProcessLookupError:
        return False
    return True


def environment() -> dict[str, str]:
    """The environment of this process, with absolute paths and the directory that cowfs was
    imported from. The rest of sys.path is left out, since a daemon must not import a script's own
    modules. Variables that open an encrypted store are left out as well: a daemon receives the
    store's key (`launch`)."""
    environ = programs.environment()
    environ.update({name: _absolute(environ[name]) for name in _PATHS if name in environ})
    for name in _PATH_LISTS:
        if name in environ:
            environ[name] = os.pathsep.join(map(_absolute, filter(None, environ[name].split(os.pathsep))))
    home = str(Path(cowfs.__file__).resolve().parents[1])
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [environ.get("PYTHONPATH"), home]))
    return environ


def _absolute(path: str) -> str:
    """The absolute path. A path that begins with ~ is returned unchanged: its reader expands it."""
    if not path or path.startswith(("/", "~")):
        return path
    try:
        return os.path.join(os.getcwd(), path)
    except FileNotFoundError:  # the working directory was removed, and the file with it
        return path
