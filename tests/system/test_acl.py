"""POSIX ACLs on a mount: kept, enforced by the kernel, handed down, in step with modes. What a
local directory does under the same programs is right."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.system.machine import Machine, as_nobody
from tests.system.trees import differences, read_tree

pytestmark = pytest.mark.mount

HAS_FAST_LANE = os.environ.get("COWFS_FAST_LANE") != "0"
NOBODY = 65_534
ACCESS = "system.posix_acl_access"
DEFAULT = "system.posix_acl_default"


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def acls(root: Path) -> list[str]:
    """All of them, by relative names and by numbers."""
    said = run("getfacl", "--recursive", "--physical", "--numeric", "--absolute-names", ".", cwd=root)
    return sorted(said.strip().split("\n\n"))


@pytest.fixture
def local(machine: Machine) -> Path:
    path = machine.root / "local" / "plain"
    path.mkdir()
    return path


@pytest.fixture
def mounted(machine: Machine) -> Path:
    machine.create("acl")
    return machine.mount("acl")


@pytest.fixture
def source(local: Path) -> Path:
    """A tree with ACLs of every kind."""
    source = local / "source"
    (source / "directory" / "below").mkdir(parents=True)
    (source / "file").write_text("x")
    (source / "directory" / "file").write_text("y")
    (source / "plain").write_text("z")
    (source / "link").symlink_to("file")
    run("setfacl", "-m", "u:7:rw,u:8:-,g:9:x,m:rwx", source / "file")
    run("setfacl", "-m", "u:7:rwx", "-d", "-m", "u:7:rwx,g:10:rx,o:-", source / "directory")
    run("setfacl", "-d", "-m", "u::rwx,g::rx,o::-", source / "directory" / "below")
    for path in (*source.rglob("*"), source):  # rsync lets a directory's time be that is less than a second wrong
        os.utime(path, (1, 2), follow_symlinks=False)
    return source


def test_programs_that_copy_acls_copy_them(machine: Machine, elsewhere: Machine, mounted: Path, source: Path) -> None:
    run("cp", "-a", source, mounted / "cp")
    run("rsync", "-aAX", f"{source}/", mounted / "rsync")
    run("cp", "-a", mounted / "cp", mounted / "again")
    run("mkdir", mounted / "tar")
    archive = source.parent / "archive.tar"
    run("tar", "--acls", "--xattrs", "-C", source, "-cf", archive, ".")
    run("tar", "--acls", "--xattrs", "-C", mounted / "tar", "-xpf", archive)
    other = elsewhere.mount(machine.commit(mounted), at="back")
    for name in ("cp", "rsync", "again", "tar"):
        for root in (mounted, other):
            assert acls(root / name) == acls(source)
            assert differences(read_tree(source), read_tree(root / name)) == []
    assert run("rsync", "-aAX", "--dry-run", "--itemize-changes", f"{source}/", other / "rsync") == ""


def test_the_kernel_checks_them(mounted: Path) -> None:
    mounted.chmod(0o755)
    file = mounted / "file"
    file.write_text("secret")
    file.chmod(0o600)
    read, write = file.read_text, lambda: os.close(os.open(file, os.O_WRONLY))
    assert (as_nobody(read), as_nobody(write)) == (errno.EACCES, errno.EACCES)
    run("setfacl", "-m", f"u:{NOBODY}:rw", file)
    assert (as_nobody(read), as_nobody(write)) == (0, 0)
    run("setfacl", "-m", "m:r", file)
    assert (as_nobody(read), as_nobody(write)) == (0, errno.EACCES)
    file.chmod(0o600)
    assert (as_nobody(read), as_nobody(write)) == (errno.EACCES, errno.EACCES), "chmod changes the mask"
    file.chmod(0o660)
    assert (as_nobody(read), as_nobody(write)) == (0, 0)
    run("setfacl", "-b", file)
    assert (as_nobody(read), as_nobody(write)) == (errno.EACCES, errno.EACCES)
    assert os.listxattr(file) == []
    assert as_nobody(lambda: os.setxattr(file, ACCESS, b"")) in (errno.EPERM, errno.EINVAL)


def both(local: Path, mounted: Path, act: Callable[[Path], object]) -> None:
    for root in (local, mounted):
        act(root)
    assert acls(mounted) == acls(local)
    assert differences(read_tree(local, times=False), read_tree(mounted, times=False)) == []


@pytest.mark.parametrize("umask", [0, 0o022, 0o027, 0o077])
@pytest.mark.parametrize("acl", ["u:7:rwx,g:9:rx", "u::rwx,g::rwx,o::-", "u:7:rw,m:rw", "g:9:-,o:rwx"])
def test_default_acls_are_handed_down_as_on_the_local_disk(local: Path, mounted: Path, acl: str, umask: int) -> None:
    def make(root: Path) -> None:
        root.chmod(0o755)
        run("setfacl", "-d", "-m", acl, root)
        before = os.umask(umask)
        try:
            os.mkdir(root / "directory", 0o777)
            os.mkdir(root / "directory" / "private", 0o700)
            os.mkfifo(root / "directory" / "fifo", 0o666)
            os.mknod(root / "node", stat.S_IFREG | 0o640)
            os.symlink("nowhere", root / "link")
            for name, mode in {"a": 0o666, "b": 0o777, "c": 0o400, "d": 0, "directory/e": 0o664}.items():
                os.close(os.open(root / name, os.O_CREAT | os.O_WRONLY, mode))
            if HAS_FAST_LANE:
                fd = os.open(root, os.O_TMPFILE | os.O_WRONLY, 0o666)
                os.link(f"/proc/self/fd/{fd}", root / "unnamed", src_dir_fd=fd)  # follows the link
                os.close(fd)
        finally:
            os.umask(before)

    both(local, mounted, make)


def test_modes_and_acls_stay_in_step(local: Path, mounted: Path) -> None:
    def change(root: Path) -> None:
        for number, mode in enumerate((0o4755, 0o640, 0o7, 0o70, 0o700, 0o2777)):
            file = root / str(number)
            file.write_text("x")
            run("setfacl", "-m", "u:7:rw,g:9:rx", file)
            file.chmod(mode)
        for number, acl in enumerate(("u::r,g::w,o::x", "u:7:r,m:w", "m:x", "u:7:-,m:rwx,o:rwx")):
            file = root / f"set-{number}"
            file.write_text("x")
            file.chmod(0o6750)
            run("setfacl", "-m", acl, file)
        (root / "removed").write_text("x")
        run("setfacl", "-m", "u:7:rw", root / "removed")
        os.removexattr(root / "removed", ACCESS)
        run("setfacl", "-k", root)

    both(local, mounted, change)


@pytest.mark.parametrize("is_member", [True, False])
def test_setting_an_acl_clears_the_setgid_bit_of_a_group_that_the_owner_is_not_in(
    local: Path, mounted: Path, is_member: bool
) -> None:
    def change(root: Path) -> None:
        file = root / "file"
        file.write_text("x")
        os.chown(file, NOBODY, NOBODY if is_member else 7)
        file.chmod(0o2755)
        assert as_nobody(lambda: subprocess.run(["setfacl", "-m", "u:8:rx", file], check=True)) == 0

    for root in (local.parent, local, mounted):
        root.chmod(0o755)
    both(local, mounted, change)


def test_what_is_no_acl_is_refused_as_on_the_local_disk(local: Path, mounted: Path) -> None:
    def refusals(root: Path) -> list[int]:
        (root / "file").write_text("x")
        (root / "link").symlink_to("file")
        owner_only = b"\2\0\0\0" + b"\1\0\7\0\xff\xff\xff\xff"
        values = (b"\2\0\0\0", b"\2\0\0\0\1\0", owner_only, b"\3\0\0\0")
        found = []
        for path in (root / "file", root / "link"):
            for name in (ACCESS, DEFAULT):
                ways: list[Callable[[], object]] = [
                    partial(os.setxattr, path, name, value, follow_symlinks=False) for value in values
                ]
                ways += [partial(how, path, name, follow_symlinks=False) for how in (os.removexattr, os.getxattr)]
                found += [error_of(way) for way in ways]
        minimal = b"\2\0\0\0" + b"".join(bytes((tag, 0, 4, 0)) + b"\xff" * 4 for tag in (1, 4, 32))
        found.append(error_of(lambda: os.setxattr(root / "file", DEFAULT, minimal)))
        found.append(error_of(lambda: os.setxattr(root / "file", ACCESS, minimal)))
        return found

    assert refusals(mounted) == refusals(local)
    both(local, mounted, lambda root: None)


def error_of(call: Callable[[], object]) -> int:
    try:
        call()
    except OSError as error:
        return error.errno or 0
    return 0
