"""What holds for every test of the project.

- Order: quick tests first, so that a plain mistake shows within seconds; then the slow ones, so
  that of several processes that share the tests none is left with them at the end.
- A skip must say why; one without a reason fails. A missing tool is a failure, never a skip.
- Processes that share the tests have mounts of their own: a test that makes a mount namespace takes
  along, and so goes on using, what is mounted where it comes from.
- Nothing is left behind: a FUSE mount of cowfs that a test made and left fails the session.
- Seeds: random tests print theirs; hypothesis prints a blob that repeats a failure.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.seaweedfs import SeaweedFS

CLONE_NEWNS = 0x00020000
MS_REC, MS_PRIVATE = 1 << 14, 1 << 18
APART = ("frameworks", "permissions/minio", "training", "web/browser")

# Started in the background, or by nohup: programs we start would ignore these too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in (signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)

settings.register_profile(
    "cowfs",
    deadline=None,  # a test never fails because the machine is busy
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("cowfs")


def cowfs_mounts() -> set[str]:
    """Mount points of cowfs on this machine, from the kernel's table: nothing is touched."""
    table = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
    rows = [line.split() for line in table.splitlines()]
    return {row[4] for row in rows if "fuse" in row[row.index("-") + 1] and "cowfs" in " ".join(row[row.index("-") :])}


def keep_mounts_apart() -> None:
    """Of this process and those it starts, from all others'."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0 or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        raise OSError(ctypes.get_errno(), "cannot have mounts of its own")


def pytest_configure(config: pytest.Config) -> None:
    """A test never sees the mounts of whoever runs the tests, nor those of other test processes,
    and what its mounts note does not pile up in the user's state directory."""
    place = tempfile.TemporaryDirectory(prefix="cowfs-test-state-")
    config.add_cleanup(place.cleanup)
    os.environ["XDG_STATE_HOME"] = place.name
    os.environ["XDG_RUNTIME_DIR"] = os.path.join(place.name, "run")
    os.mkdir(os.environ["XDG_RUNTIME_DIR"], mode=0o700)
    if hasattr(config, "workerinput") and os.geteuid() == 0:
        keep_mounts_apart()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """These folders need large packages, a browser or Go: `make test-integrations`,
    `make test-look` and `make test-training` name them."""
    apart = next((name for name in APART if collection_path == Path(__file__).parent / name), None)
    return True if apart is not None and not any(f"tests/{apart}" in each for each in config.args) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def tier(item: pytest.Item) -> int:
        if item.get_closest_marker("quick"):
            return 0
        return 1 if item.get_closest_marker("slow") else 2

    items.sort(key=tier)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if reason.removeprefix("Skipped:").strip() in ("", "unconditional skip", "<Skipped instance>"):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: a skip must give its reason"
    return report


@pytest.fixture(autouse=True)
def signal_handlers() -> Generator[None]:
    """As they were: commands that a test runs in this process take SIGINT and SIGTERM for
    themselves, and end the process soon after one."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def nothing_left_mounted() -> Generator[None, None, None]:
    """Fails the session when this process' tests leave a mount below its temporary directories."""
    before = cowfs_mounts()
    yield
    left = {path for path in cowfs_mounts() - before if f"cowfs-test-{os.getpid()}-" in path}
    assert not left, f"mounts left behind: {sorted(left)}"


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Generator[SeaweedFS, None, None]:
    """One S3 server for the session; a test that kills one starts its own."""
    with SeaweedFS(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture
def s3(seaweedfs: SeaweedFS) -> dict[str, str]:
    """The environment of a client of a store of the test's own on the S3 server."""
    return {**seaweedfs.credentials, "COWFS_STORE": f"{seaweedfs.store_url}/{os.urandom(6).hex()}"}


@pytest.fixture(params=[None, errno.EPERM, errno.ENOSYS], ids=["descriptor", "forbidden", "unknown"])
def process_descriptors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the kernel gives descriptors of processes, or a sandbox forbids it."""

    def refused(pid: int, flags: int = 0) -> int:
        raise OSError(request.param, os.strerror(request.param))

    if request.param is not None:
        monkeypatch.setattr(os, "pidfd_open", refused)
