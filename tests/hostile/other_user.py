"""A neighbour of another user: a process that replaces each new name in some directories at once,
by a link to the canary, a loop, a pipe, or a directory of its own.

Unlike `neighbour` it has only the rights that it has, and wins only the races that can be won.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.hostile.entries import Canary

UID = 65534

_PROGRAM = """
import ctypes, os, random, struct, sys
seed, canary, uid, *directories = sys.argv[1:]
if os.geteuid() == 0:  # only now: another user may not be able to run this interpreter
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
chance, libc = random.Random(int(seed)), ctypes.CDLL(None, use_errno=True)
fd, watched, number = libc.inotify_init(), {}, 0
def watch(path):
    watched[libc.inotify_add_watch(fd, os.fsencode(path), 0x180)] = path  # IN_CREATE, IN_MOVED_TO
for each in directories:
    watch(each)
print("watches", flush=True)
while True:
    data, at = os.read(fd, 1 << 16), 0
    while at < len(data):
        watch_number, mask, _, length = struct.unpack_from("iIII", data, at)
        name = data[at + 16 : at + 16 + length].rstrip(b"\\0").decode(errors="surrogateescape")
        at += 16 + length
        path = f"{watched[watch_number]}/{name}"
        if name.endswith("~") or (not name.startswith(".cowfs-") and chance.random() < 0.2):
            continue
        number += 1
        try:
            os.rename(path, f"{path}.{number}~")
            kind = chance.choice(["link", "link", "link", "file", "pipe", "directory", "loop"])
            if kind == "pipe":
                os.mkfifo(path, 0o666)
            elif kind == "directory":
                os.mkdir(path, 0o777)
                watch(path)
            else:
                os.symlink({"link": f"{canary}/directory", "file": f"{canary}/file", "loop": name}[kind], path)
            if chance.random() < 0.3:
                os.rename(f"{path}.{number}~", f"{path}.{number}")
        except OSError:
            pass
"""


@contextmanager
def watching(chance: random.Random, canary: Canary, *directories: Path) -> Iterator[None]:
    """Replaces what comes into the directories during the block."""
    seed, uid = str(chance.randrange(1 << 32)), str(UID)
    command = [sys.executable, "-c", _PROGRAM, seed, str(canary.place), uid, *map(str, directories)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"watches\n"
            yield
        finally:
            process.kill()
