"""A mount daemon that loads its modules while its caller still finds out what it is to mount.

    with prepare():        started, if nothing speaks against it
        …                  `take` gives its process to whoever starts a mount (`launch`); it is told the rest then
                           what nobody took is killed: it was told nothing, so there is nothing to undo

Imports nothing but what starts a process, so that it comes before all other imports of a command.
Threads: each has its own, and gives it to what it does apart (`cowfs.apart`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import cowfs
from cowfs.values import dataclass


@dataclass(frozen=True)
class Prepared:
    """A daemon that was told nothing yet. words: a descriptor of what it says until it knows its
    log."""

    process: subprocess.Popen[bytes]
    environ: dict[str, str]
    words: int

    def last_words(self) -> bytes:
        return os.pread(self.words, WORDS_BYTES, 0)

    def close(self) -> None:
        os.close(self.words)

    def end(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait()
        self.close()


WORDS_BYTES = 1 << 16
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
    """None: there is none, or the environment has changed since."""
    if not (waiting := _own.get()):
        return None
    taken = waiting.pop()
    if taken.environ == environment():
        return taken
    taken.end()
    return None


def spawn(environ: dict[str, str], stderr: int | None, fuse_fd: int | None = None) -> subprocess.Popen[bytes]:
    """A daemon that waits on its standard input for its specification, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "cowfs.daemon"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
        cwd="/",
        pass_fds=() if fuse_fd is None else (fuse_fd,),
        env=environ,
    )


def environment() -> dict[str, str]:
    """Ours, and where cowfs itself was imported from. Not all of sys.path: a script's own modules
    are none of the daemon's."""
    home = str(Path(cowfs.__file__).resolve().parents[1])
    known = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*map(os.path.abspath, known), home])}
