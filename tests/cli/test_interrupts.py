"""Ctrl-C at any moment: one line, or one JSON document, and exit code 130. SIGTERM and SIGHUP: the
same, with 143 and 129, of what has something to tidy up or to say; else they end it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cowfs.cli import output
from cowfs.machine import registry
from tests.api.conftest import place
from tests.cli.test_live import Command, mounted, run

__all__ = ["mounted", "place", "run"]

INTERRUPTING = """
import os, signal, sys
class Finder:
    '''Interrupts this process when the named module is about to be loaded.'''
    def find_spec(self, name, path=None, target=None):
        if name == WANTED:
            os.kill(os.getpid(), NUMBER)
WANTED, NUMBER = sys.argv.pop(1), int(sys.argv.pop(1))
sys.meta_path.insert(0, Finder())
from cowfs.cli.start import main
main()
"""

LOADED_S = 20.0
MODULES = [
    "cowfs.cli.main",
    "click",
    "cowfs.errors",
    "cowfs.cli.volumes.ls",
    "cowfs.api.mounts.overview",
    "cowfs.store",
]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("as_json", [False, True])
def test_an_interrupt_shows_no_traceback(module: str, as_json: bool, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "COWFS_STORE": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }
    command = [
        sys.executable,
        "-c",
        INTERRUPTING,
        module,
        str(int(signal.SIGINT)),
        "ls",
        *(["--json"] if as_json else []),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    if as_json:
        assert json.loads(done.stdout)["error"]["kind"] == "interrupted"
    else:
        assert done.stderr.lstrip("\n") == "cowfs: interrupted\n"  # click ends the line that shows ^C


def test_nothing_is_loaded_before_an_interrupt_is_expected() -> None:
    loading = "import os, sys; before = {*sys.modules}; import cowfs.cli.start; print(*sorted({*sys.modules} - before))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = subprocess.run([sys.executable, "-S", "-c", loading], env=environment, capture_output=True, text=True)
    assert set(done.stdout.split()) == {"__future__", "cowfs", "cowfs.cli", "cowfs.cli.start", "gc"}, done.stderr


def ended_upload(place: Path, number: signal.Signals, stderr: int | None = None) -> subprocess.CompletedProcess[str]:
    """By a signal, before it publishes."""
    (place / "data").mkdir()
    (place / "data" / "file").write_text("one")
    environment = {
        **os.environ,
        "COWFS_STORE": str(place / "store"),
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
    }
    asked = ["upload", str(place / "data"), "v", *(["--json"] if stderr is None else [])]
    command = [sys.executable, "-c", INTERRUPTING, "cowfs.version.publish.publisher", str(int(number)), *asked]
    return subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_a_signal_ends_says_what_becomes_of_the_work(number: signal.Signals, tmp_path: Path) -> None:
    done = ended_upload(tmp_path, number)
    assert done.returncode == 128 + number
    error = json.loads(done.stdout)["error"]
    assert (error["kind"], error["hint"]) == ("interrupted", output.RESUMES)


def test_a_terminal_that_is_gone_keeps_nothing_from_ending(tmp_path: Path) -> None:
    master, terminal = pty.openpty()
    os.close(master)
    try:
        assert ended_upload(tmp_path, signal.SIGHUP, stderr=terminal).returncode == 128 + signal.SIGHUP
    finally:
        os.close(terminal)


@pytest.mark.mount
@pytest.mark.parametrize("asked", [["commit"], ["mount", "data"]])
def test_a_signal_ends_what_waits_for_a_mount_that_hangs(run: Command, mounted: Path, asked: list[str]) -> None:
    """One that has a handler ends nothing there."""
    (mounted / "folder").mkdir()
    entry = registry.find_by_path(mounted)
    assert entry is not None
    os.kill(entry.pid, signal.SIGSTOP)
    try:
        command = [sys.executable, "-m", "cowfs.cli", *asked, str(mounted / "folder" / "x" / "y")]
        with subprocess.Popen(command) as process:
            until_s = time.monotonic() + LOADED_S
            while time.monotonic() < until_s and "request" not in wait_channel(process.pid):
                assert process.poll() is None
                time.sleep(0.05)
            process.terminate()
            assert process.wait(60) == -signal.SIGTERM
    finally:
        os.kill(entry.pid, signal.SIGCONT)


def wait_channel(pid: int) -> str:
    """request_wait_answer when it waits for a FUSE server; 0 where the kernel does not say."""
    return Path(f"/proc/{pid}/wchan").read_text()
