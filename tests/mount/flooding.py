"""One kind of call, made as often as it is allowed, by another user.

    python tests/mount/flooding.py KIND DIRECTORY COUNT UID      prints how many calls were accepted, and the last refusal

A flood ends at COUNT calls or at the first refusal that says that there is no more room. Root
starts it, since the interpreter may lie where others cannot look.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import struct
import sys
import threading
from collections.abc import Callable

REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EMLINK, errno.EMFILE, errno.ENFILE, errno.ENOLCK, errno.ENAMETOOLONG)
VALUE = b"v" * 65536
NAME = "n" * 240
ENTRIES = 400
"""Of an ACL; each has 8 bytes."""


def flood(kind: str, directory: str, count: int) -> tuple[int, str]:
    os.chdir(directory)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    call = {**KINDS, **READING_KINDS}[kind]()
    for number in range(count):
        try:
            call(number)
        except OSError as error:
            if error.errno not in REFUSALS:
                raise
            return number, errno.errorcode[error.errno or 0]
    return count, ""


def _file(name: str = "file") -> int:
    return os.open(name, os.O_RDWR | os.O_CREAT, 0o644)


def _one_value() -> Callable[[int], object]:
    fd = _file()
    return lambda number: os.setxattr(fd, "user.one", VALUE[: 65000 + number % 500])


def _many_values() -> Callable[[int], object]:
    fd = _file()
    return lambda number: os.setxattr(fd, f"user.{number}", VALUE)


def _many_names() -> Callable[[int], object]:
    fd = _file()
    return lambda number: os.setxattr(fd, f"user.{number:0>200}", b"")


def _values_of_many_files() -> Callable[[int], object]:
    def call(number: int) -> None:
        fd = _file(f"f{number}")
        os.close(fd)
        os.setxattr(f"f{number}", "user.v", VALUE)

    return call


def _acls() -> Callable[[int], object]:
    entries = [(1, 7, 0xFFFFFFFF), *((2, 7, user) for user in range(ENTRIES)), (4, 5, 0xFFFFFFFF)]
    entries += [(16, 7, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)

    def call(number: int) -> None:
        os.mkdir(f"a{number}")
        os.setxattr(f"a{number}", "system.posix_acl_default", acl)

    return call


def _links_with_long_targets() -> Callable[[int], object]:
    return lambda number: os.symlink("t" * 4000, f"s{number}")


def _long_names() -> Callable[[int], object]:
    return lambda number: os.close(_file(f"{number}{NAME}"))


def _names_of_one_file() -> Callable[[int], object]:
    os.close(_file())
    return lambda number: os.link("file", f"{number}{NAME}")


def _directories() -> Callable[[int], object]:
    return lambda number: os.mkdir(f"{number}{NAME}")


def _depth() -> Callable[[int], object]:
    def call(number: int) -> None:
        os.mkdir(NAME)
        os.chdir(NAME)

    return call


def _handles() -> Callable[[int], object]:
    os.close(_file())
    return lambda number: os.open("file", os.O_RDWR)


def _locks() -> Callable[[int], object]:
    fd = _file()

    def call(number: int) -> None:
        fcntl.lockf(fd, fcntl.LOCK_EX, 1, 2 * (number % 10_000))  # the kernel searches a list of them
        fcntl.flock(fd, fcntl.LOCK_EX)

    return call


def _tiny_extents() -> Callable[[int], object]:
    fd = _file()
    return lambda number: os.pwrite(fd, b"x", 2 * number)


def _allocations() -> Callable[[int], object]:
    fd = _file()
    return lambda number: os.posix_fallocate(fd, 8192 * number, 4096)


def _unnamed_files() -> Callable[[int], object]:
    def call(number: int) -> None:
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR)
        os.write(fd, b"x" * 100)

    return call


def _removed_files() -> Callable[[int], object]:
    def call(number: int) -> None:
        fd = _file(NAME)
        os.unlink(NAME)
        os.setxattr(fd, "user.v", VALUE[:1000])

    return call


def _renames() -> Callable[[int], object]:
    os.close(_file("0" + NAME))
    return lambda number: os.rename(f"{number}{NAME}", f"{number + 1}{NAME}")


def _parked_requests() -> Callable[[int], object]:
    """Reads of cold files, one each, that nobody answers: they end with this process."""
    threading.stack_size(64 << 10)
    files = os.listdir("cold")
    started = threading.Semaphore(0)

    def read(fd: int) -> None:
        started.release()
        os.read(fd, 1)

    def call(number: int) -> None:
        fd = os.open(f"cold/{files[number]}", os.O_RDONLY)
        threading.Thread(target=read, args=(fd,), daemon=True).start()
        started.acquire()

    return call


def _versions() -> Callable[[int], object]:
    versions = ".cowfs/versions"
    names = os.listdir(versions)

    def call(number: int) -> None:
        path = f"{versions}/{names[number]}"
        os.stat(path)
        os.stat(f"{path}/roots")

    return call


KINDS = {
    "one value": _one_value,
    "many values": _many_values,
    "many names": _many_names,
    "values of many files": _values_of_many_files,
    "ACLs": _acls,
    "links with long targets": _links_with_long_targets,
    "long names": _long_names,
    "names of one file": _names_of_one_file,
    "directories": _directories,
    "depth": _depth,
    "handles": _handles,
    "locks": _locks,
    "tiny extents": _tiny_extents,
    "allocations": _allocations,
    "unnamed files": _unnamed_files,
    "removed files": _removed_files,
    "renames": _renames,
}

READING_KINDS = {"parked requests": _parked_requests, "versions": _versions}
"""At most as many calls as there are files in `cold`, or versions."""

if __name__ == "__main__":
    kind, directory, count, uid = sys.argv[1:]
    os.setgroups([])
    os.setresgid(int(uid), int(uid), int(uid))
    os.setresuid(int(uid), int(uid), int(uid))
    print(*flood(kind, directory, int(count)), flush=True)
    os._exit(0)  # its threads may wait for ever
