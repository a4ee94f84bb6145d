"""The two servers of a mount's requests, the native lane and pyfuse3, stand side by side: either is
a whole mount."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cowfs.errors import MountFailedError
from cowfs.machine import mount_table, mounting
from tests.mount.daemons import ROOT, WAIT_S, Place

pytestmark = pytest.mark.mount

FLAGS = {"nosuid", "nodev", "relatime"}

BY_LIBFUSE = """
import sys
import pyfuse3
from cowfs.machine import mount_table, mounting
path, read_only = sys.argv[1], sys.argv[2] == "ro"
pyfuse3.init(pyfuse3.Operations(), path, mounting.options("v", read_only=read_only, allow_other=None))
mount = mount_table.mount_at(path)
print(mount.file_system, mount.source, *sorted(mount.options))
pyfuse3.close(unmount=True)
"""


@pytest.fixture
def without_pyfuse3(tmp_path: Path) -> dict[str, str]:
    """The environment of a daemon for which the extra `pyfuse3` was not installed."""
    for name in ("pyfuse3", "trio"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError(\"No module named '{name}'\", name='{name}')")
    return {"PYTHONPATH": f"{tmp_path}:{ROOT}"}


@pytest.mark.parametrize("mode", ["rw", "ro"])
@pytest.mark.parametrize("fast_lane", [True, False], ids=["lane", "pyfuse3"])
def test_the_kernel_mounts_it_as_libfuse_would(place: Place, fast_lane: bool, mode: str) -> None:
    writer = place.mount("v", fast_lane=fast_lane)
    version = writer.commit()
    mount = writer if mode == "rw" else place.mount("v", version=version, fast_lane=fast_lane)
    found = mount_table.mount_at(str(mount.path))
    assert found is not None
    owner = {f"user_id={os.getuid()}", f"group_id={os.getgid()}", "default_permissions", "allow_other"}
    assert found.options == FLAGS | owner | {mode}
    (place.root / "mnt" / "libfuse").mkdir()
    libfuse = subprocess.run(
        [sys.executable, "-c", BY_LIBFUSE, str(place.root / "mnt" / "libfuse"), mode],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert libfuse.stdout.split() == [found.file_system, found.source, *sorted(found.options)]


def test_the_lane_needs_no_other_server(place: Place, without_pyfuse3: dict[str, str]) -> None:
    spec = place.spec(fast_lane=True)
    mount = place.start(spec, environment=without_pyfuse3)
    (mount.path / "f").write_text("answered natively")
    maps = Path(f"/proc/{mount.process.pid}/maps").read_text()
    assert "_native" in maps
    assert "libfuse" not in maps
    mount.unmount(commit=True)


def test_without_the_extra_it_is_said_what_to_install(place: Place, without_pyfuse3: dict[str, str]) -> None:
    with pytest.raises(MountFailedError, match="needs pyfuse3") as caught:
        place.start(place.spec(fast_lane=False), environment=without_pyfuse3)
    assert "pip install 'cowfs-volumes[pyfuse3]'" in caught.value.hint
    assert place.registered() == []
    assert place.working_copy().holder() is None


@pytest.mark.parametrize("fast_lane", [True, False], ids=["lane", "pyfuse3"])
def test_signals_unmount_it(place: Place, fast_lane: bool) -> None:
    mount = place.mount("v", fast_lane=fast_lane)
    (mount.path / "f").write_text("kept")
    mount.process.send_signal(signal.SIGTERM)
    mount.wait_clean_end()
    again = place.mount("v", fast_lane=fast_lane)
    assert (again.path / "f").read_text() == "kept"
    fd = os.open(again.path / "f", os.O_WRONLY)
    again.process.send_signal(signal.SIGINT)
    assert again.process.wait(WAIT_S) == 0, "programs that use it lose it"
    with pytest.raises(OSError, match="not connected"):
        os.write(fd, b"x")
    with contextlib.suppress(OSError):  # a FLUSH that nobody answers
        os.close(fd)


@pytest.mark.parametrize("fast_lane", [True, False], ids=["lane", "pyfuse3"])
def test_a_descriptor_that_nobody_mounted_is_an_error(place: Place, fast_lane: bool) -> None:
    fd = os.open(mounting.DEVICE, os.O_RDWR)
    try:
        with pytest.raises(MountFailedError, match="connection to the kernel broke"):
            place.start(place.spec(fast_lane=fast_lane, fuse_fd=fd), pass_fds=[fd])
    finally:
        os.close(fd)
