"""A mount daemon that loads its modules while its caller still finds out what it is to mount.

    with prepare():        started, if nothing speaks against it
        …                  `take` gives its process to whoever starts a mount (`launch`); it is told the rest then
                           what nobody took is killed: it was told nothing, so there is nothing to undo

Imports nothing but what starts a process, so that it comes before all other imports of a command.
Threads: each has its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
_own = threading.local()


@contextmanager
def prepare(*, is_wanted: bool = True) -> Iterator[None]:
    if not is_wanted or getattr(_own, "waiting", None) is not None:
        yield
        return
    environ, words = environment(), os.memfd_create("cowfs-daemon")
    try:
        _own.waiting = Prepared(spawn(environ, words), environ, words)
    except BaseException:
        os.close(words)
        raise
    try:
        yield
    finally:
        left, _own.waiting = _own.waiting, None
        if left is not None:
            left.end()


def take() -> Prepared | None:
    """None: there is none, or the environment has changed since."""
    waiting: Prepared | None = getattr(_own, "waiting", None)
    _own.waiting = None
    if waiting is None or waiting.environ == environment():
        return waiting
    waiting.end()
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
