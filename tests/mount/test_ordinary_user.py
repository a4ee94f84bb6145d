"""Mounting without being root: through the setuid fusermount3.

The test machine may keep /dev/fuse and this Python to root. So the script runs in a mount namespace
of its own whose /dev/fuse is open to everybody, as nobody, with the one capability to read files
(not to write or mount anything).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.mount,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user"),
]

AS_NOBODY = """
set -e
mount -t tmpfs none /mnt
mknod -m 0666 /mnt/fuse c 10 229
chmod "$1" /mnt/fuse
mount --bind /mnt/fuse /dev/fuse
shift
exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=+dac_read_search --ambient-caps=+dac_read_search "$@"
"""

HEADER = """
import os, pytest, subprocess, sys
from cowfs.errors import AccessDeniedError, ConflictError, MountFailedError
from cowfs.machine import mount_table
from tests.mount.daemons import Place
assert os.geteuid() == 65534
place = Place()
place.volume("v")
"""


def run_as_nobody(script: str, *, device_mode: str = "0666", path: str | None = None) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    if path is not None:
        environment["PATH"] = path
    body = "".join(f"    {line}\n" for line in script.strip().splitlines())
    program = f"{HEADER}\nwith place:\n{body}"
    done = subprocess.run(
        ["/usr/bin/unshare", "-m", "/bin/sh", "-c", AS_NOBODY, "sh", device_mode, sys.executable, "-c", program],
        env=environment,
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.parametrize("fast_lane", [True, False])
def test_an_ordinary_user_mounts_writes_commits_and_unmounts(fast_lane: bool) -> None:
    run_as_nobody(f"""
mount = place.mount("v", fast_lane={fast_lane})
table = mount_table.mount_at(str(mount.path))
assert (table.file_system, table.source) == ("fuse.cowfs", "cowfs:v")
expected = "rw nosuid nodev relatime user_id=65534 group_id=65534 default_permissions"
assert table.options == set(expected.split()), table
(mount.path / "f").write_text("mine")
assert (mount.path / "f").stat().st_uid == 65534
version = mount.commit()
with (mount.path / "f").open():
    with pytest.raises(ConflictError, match=str(os.getpid())):
        mount.call("unmount")
mount.unmount()
reader = place.mount("v", version=version, fast_lane={fast_lane})
assert (reader.path / "f").read_text() == "mine"
held = (reader.path / "f").open()
reader.unmount(force=True)
""")


def test_what_fusermount3_does_is_seen_where_no_exit_status_is(tmp_path: Path) -> None:
    """SIGCHLD is ignored: by who starts a daemon, which inherits that, and by who uses the
    library."""
    run_as_nobody(f"""
import signal
from cowfs.machine import mounting
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
mount = place.mount("v")
(mount.path / "f").write_text("mine")
with (mount.path / "f").open():
    with pytest.raises(ConflictError, match="is in use; processes"):
        mount.call("unmount")
    with pytest.raises(ConflictError, match="is in use; processes"):
        mounting.unmount(mount_table.mount_at(str(mount.path)))
with pytest.raises(MountFailedError, match="cannot be mounted: fusermount3"):
    mounting.mount({os.fspath(tmp_path)!r}, mounting.options("v", read_only=False, allow_other=False))
mounting.unmount(mount_table.mount_at(str(mount.path)))
mount.wait_clean_end()
""")


def test_a_mount_of_another_user_is_told_from_none() -> None:
    run_as_nobody("""
from cowfs.api.mounts import targets
from cowfs.machine import registry
mount = place.mount("v")
find, registry.find_by_path = registry.find_by_path, lambda *given, **named: None  # as in another user's place
real, os.geteuid = os.geteuid, lambda: 65533
try:
    with pytest.raises(AccessDeniedError, match="volume v is mounted at .* by another user"):
        targets.find(str(mount.path), None)
finally:
    registry.find_by_path, os.geteuid = find, real
mount.unmount()
""")


def test_an_ordinary_user_resumes_after_kill_9_on_the_same_path() -> None:
    run_as_nobody("""
mount = place.mount("v")
(mount.path / "f").write_text("kept")
mount.kill()
again = place.mount("v", mount_path=str(mount.path))
assert (again.path / "f").read_text() == "kept"
subprocess.run(["fusermount3", "-u", again.path], check=True)
again.wait_clean_end()
""")


def test_other_users_are_let_in_only_where_fuse_conf_permits() -> None:
    run_as_nobody("""
with pytest.raises(AccessDeniedError, match="other users") as caught:
    place.mount("v", allow_other=True)
assert "user_allow_other" in caught.value.hint
assert place.mount("v")
""")


def test_a_device_that_may_not_be_opened_is_a_clear_error() -> None:
    run_as_nobody(
        """
with pytest.raises(MountFailedError, match="may not be opened") as caught:
    place.mount("v")
assert "chmod" in caught.value.hint
""",
        device_mode="0600",
    )


def test_a_missing_fusermount3_is_a_clear_error(tmp_path: Path) -> None:
    for name in ("mount", "mknod", "chmod", "setpriv"):
        source = next(p for p in (Path("/usr/bin") / name, Path("/bin") / name) if p.exists())
        (tmp_path / name).symlink_to(source)
    run_as_nobody(
        """
with pytest.raises(MountFailedError, match="fusermount3") as caught:
    place.mount("v")
assert "install" in caught.value.hint.lower()
""",
        path=str(tmp_path),
    )
