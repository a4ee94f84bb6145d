"""The kernel's overlayfs with its upper directory in a volume, as container engines have it: it
works, and what it makes there (whiteouts, opaque directories, redirects) is in versions."""

from __future__ import annotations

import os
import random
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.system.machine import Machine
from tests.system.trees import Node, differences, read_tree

pytestmark = [
    pytest.mark.mount,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount an overlay"),
]


@contextmanager
def overlay(at: Path, *lower: Path, upper: Path | None = None) -> Iterator[Path]:
    """upper: a directory with `upper` and `work` in it; None: nothing can be changed."""
    at.mkdir(exist_ok=True)
    chosen = [f"lowerdir={':'.join(map(str, lower))}", "redirect_dir=on"]
    if upper is not None:
        (upper / "upper").mkdir(exist_ok=True)
        (upper / "work").mkdir(exist_ok=True)
        chosen += [f"upperdir={upper / 'upper'}", f"workdir={upper / 'work'}"]
    done = subprocess.run(
        ["mount", "-t", "overlay", "overlay", "-o", ",".join(chosen), at], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr + subprocess.run(["dmesg"], capture_output=True, text=True).stdout[-500:]
    try:
        yield at
    finally:
        subprocess.run(["umount", at], check=True)


def fill(lower: Path) -> None:
    for directory in ("kept", "removed/deep", "renamed/deep", "replaced"):
        (lower / directory).mkdir(parents=True)
        for name in ("a", "b"):
            (lower / directory / name).write_text(f"{directory}/{name}" * 1000)
    (lower / "file").write_text("below")
    (lower / "moved").write_text("moved")
    (lower / "link").symlink_to("file")
    os.link(lower / "file", lower / "second")


def work(root: Path) -> None:
    """What a build does to the layers below it. An overlay splits hard links when it copies one
    up."""
    (root / "second").unlink()
    (root / "file").write_text("above")
    (root / "moved").rename(root / "kept" / "moved")
    (root / "kept" / "a").unlink()
    subprocess.run(["rm", "-r", root / "removed"], check=True)
    (root / "renamed").rename(root / "new-name")
    (root / "new-name" / "deep" / "a").rename(root / "out")
    subprocess.run(["rm", "-r", root / "replaced"], check=True)
    (root / "replaced").mkdir()
    (root / "replaced" / "c").write_text("new")
    (root / "kept" / "b").chmod(0o600)
    os.chown(root / "link", 7, 8, follow_symlinks=False)
    os.setxattr(root / "kept", "user.note", b"x")
    with (root / "kept" / "grown").open("wb") as grown:
        grown.write(random.Random(7).randbytes(300_000))
    os.link(root / "kept" / "grown", root / "linked")
    (root / "made" / "deep").mkdir(parents=True)


def shown(root: Path) -> dict[bytes, Node]:
    return read_tree(root, times=False, links=False)


@pytest.fixture
def lower(machine: Machine) -> Path:
    path = machine.root / "local" / "lower"
    path.mkdir()
    fill(path)
    return path


def test_an_overlay_works_on_a_volume_and_is_in_its_versions(machine: Machine, elsewhere: Machine, lower: Path) -> None:
    expected = machine.root / "local" / "expected"
    subprocess.run(["cp", "-a", lower, expected], check=True)
    work(expected)
    machine.create("layers")
    mounted = machine.mount("layers")
    at = machine.root / "local" / "merged"
    with overlay(at, lower, upper=mounted) as merged:
        work(merged)
        assert differences(shown(expected), shown(merged)) == []
        first = machine.commit(mounted)
    whiteout = (mounted / "upper" / "kept" / "a").lstat()
    assert stat.S_ISCHR(whiteout.st_mode)
    assert whiteout.st_rdev == 0
    assert os.getxattr(mounted / "upper" / "replaced", "trusted.overlay.opaque") == b"y"
    assert os.getxattr(mounted / "upper" / "new-name", "trusted.overlay.redirect") == b"renamed"
    machine.unmount(mounted, "--commit")

    version = elsewhere.mount(first, at="version")
    with overlay(at, version / "upper", lower) as merged:
        assert differences(shown(expected), shown(merged)) == []
    mounted = machine.mount("layers")
    with overlay(at, lower, upper=mounted) as merged:
        assert differences(shown(expected), shown(merged)) == []
        for root in (expected, merged):
            (root / "kept" / "moved").unlink()
            (root / "new-name").rename(root / "renamed")
        assert differences(shown(expected), shown(merged)) == []


def test_layers_are_all_in_volumes(machine: Machine, lower: Path) -> None:
    """As a container engine has them: images below are versions, the container's layer is a
    fork."""
    machine.create("image")
    image = machine.mount("image")
    subprocess.run(["cp", "-a", f"{lower}/.", image], check=True)
    locator = machine.commit(image)
    machine.unmount(image)
    below = machine.mount(locator, at="below")
    machine.create("container")
    mounted = machine.mount("container")
    work(lower)
    with overlay(machine.root / "local" / "merged", below, upper=mounted) as merged:
        work(merged)
        assert differences(shown(lower), shown(merged)) == []


def test_an_overlay_of_a_user_namespace_works_on_a_volume(machine: Machine, lower: Path) -> None:
    """As rootless engines have it: attributes of the user's class."""
    machine.create("layers")
    mounted = machine.mount("layers")
    for name in ("upper", "work"):
        (mounted / name).mkdir()
    at = machine.root / "local" / "merged"
    at.mkdir()
    script = f"""
        set -e
        mount -t overlay overlay -o userxattr,lowerdir={lower},upperdir={mounted}/upper,workdir={mounted}/work {at}
        rm {at}/replaced/a
        rm -r {at}/removed
        mkdir {at}/removed
        echo above >> {at}/kept/a
        ls {at}/removed {at}/replaced
    """
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"{at}/removed:", f"{at}/replaced:", "b"]
    upper = mounted / "upper"
    assert os.getxattr(upper / "removed", "user.overlay.opaque") == b"y"
    assert stat.S_ISCHR((upper / "replaced" / "a").lstat().st_mode)
    assert (upper / "kept" / "a").read_text() == "kept/a" * 1000 + "above\n"
