"""cowfs exec: real programs in real mounts, at a shell, on a terminal and as the first process."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from cowfs import run_program
from cowfs.blocking import Store, Volume
from cowfs.errors import InvalidInputError, NotFoundError
from cowfs.machine import mount_table, registry
from cowfs.machine.processes import wait_gone
from tests.api.conftest import place
from tests.api.test_volumes_live import another_machine
from tests.cli.test_json import check
from tests.cli.test_live import Command, run

__all__ = ["place", "run"]

pytestmark = pytest.mark.mount

FIRST_PROCESS = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
LONG_S = 120
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(autouse=True)
def nothing_is_mounted_afterwards(place: Path) -> Iterator[None]:
    yield
    assert registry.list_mounts() == []
    assert [each.path for each in mount_table.mounts() if each.path.startswith(str(place))] == []


@pytest.fixture
def data(place: Path) -> Path:
    """The path at which tests mount."""
    return place / "mnt" / "data"


@pytest.fixture
def start(place: Path) -> Iterator[Start]:
    """`cowfs exec` with output, which runs on."""
    running: list[subprocess.Popen[str]] = []

    def starter(*arguments: str | Path, through: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*through, sys.executable, "-m", "cowfs.cli", "exec", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        running.append(process)
        return process

    yield starter
    for process in running:
        if process.poll() is None:  # the program has a process group of its own, and the pipes
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(LONG_S)
        process.kill()
        process.communicate(timeout=LONG_S)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}


def read(name: str, path: str) -> str:
    return Volume.version(name).files.read(path).decode()


def wait_for(path: Path) -> None:
    end_s = time.monotonic() + LONG_S
    while not path.exists():
        assert time.monotonic() < end_s, f"{path} did not appear"
        time.sleep(0.02)


def test_success_publishes_and_failures_have_their_codes(run: Command, place: Path, data: Path) -> None:
    locators = place / "locators.json"
    said = run(
        "exec", "-v", f"data:{data}:rw", "--locators", locators, "--", "sh", "-c", f"echo one > {data}/f; echo out"
    )
    assert (said.code, said.out) == (0, "out\n")
    version = Volume.version("data")
    assert json.loads(locators.read_text()) == {str(data): version.locator}
    assert f"Published data: {version.locator}" in said.err
    assert read("data", "f") == "one\n"
    (place / "plain").write_text("")
    for program, code in (
        (("true",), 0),
        (("sh", "-c", "exit 3"), 3),
        (("sh", "-c", "kill -9 $$"), 128 + signal.SIGKILL),
        (("no-such-program",), 127),
        ((str(place / "plain"),), 126),
        ((str(place / "plain" / "below"),), 127),
    ):
        said = run("exec", "-v", f"data:{data}", *program)
        assert said.code == code, program
        assert (program[0] in said.err) == (code in (126, 127)), said.err
    assert Volume.version("data").id == version.id


def test_failures_of_cowfs_are_125(run: Command, place: Path, data: Path) -> None:
    marker = place / "marker"
    os.mkfifo(place / "fifo")
    (place / "link").symlink_to("/proc/self/fd/1")
    for arguments in (
        ("-v", f"absent:{data}", "touch", marker),
        ("-v", f"absent@tag:{data}:rw", "touch", marker),
        ("-v", f"data:{data}:rw", "-v", f"other:{data}:rw", "touch", marker),
        ("-v", f"data:{data}:rw", "--locators", place / "none" / "file", "touch", marker),
        ("-v", f"data:{data}:rw", "--locators", place / "fifo", "touch", marker),
        ("-v", f"data:{data}:rw", "--locators", place / "link", "touch", marker),
        ("--on-success", "discard", "touch", marker),
        ("--stop-timeout", "soon", "touch", marker),
        ("--wait", "long", "touch", marker),
        ("--no-such-option", "touch", marker),
        (),
    ):
        said = run("exec", *arguments)
        assert said.code == 125, said
        assert "cowfs: " in said.err
    assert not marker.exists()
    assert (place / "fifo").is_fifo()
    assert (place / "link").is_symlink()
    error = run("exec", "--json", "-v", f"absent:{data}", "--", "true", "--json")
    assert (error.code, error.json["error"]["kind"]) == (125, "not_found")


@pytest.mark.parametrize(
    ("option", "value"),
    [("stop_timeout", None), ("stop_timeout", True), ("stop_timeout", "soon"), ("on_stop", ""), ("on_success", "discard")],
)  # fmt: skip
def test_wrong_options_are_refused(place: Path, option: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"{option} is"):
        run_program(["touch", str(place / "marker")], **{option: value})
    assert not (place / "marker").exists()


def test_json_is_the_only_output_and_that_of_the_program_is_its_own(run: Command, data: Path) -> None:
    said = run("exec", "--json", "-v", f"data:{data}:rw", "--", "sh", "-c", f"echo out; echo 1 > {data}/f", "--json")
    check("exec", said.json)
    (volume,) = said.json["volumes"]
    assert said.json["outcome"] == "committed"
    assert volume == {
        "source": "data",
        "mount_path": str(data),
        "volume_mode": "rw",
        "is_new": True,
        "locator": Volume.version("data").locator,
    }
    assert said.err == "out\n"
    assert run("exec", "-v", f"data:{data}", "echo", "--json").out == "--json\n"
    assert run("exec", "-v", f"absent:{data}", "echo", "--json").out == ""


@pytest.mark.parametrize("policy", ["keep", "commit", "discard"])
def test_a_failure_leaves_work_by_policy(run: Command, data: Path, policy: str) -> None:
    assert run("exec", "-v", f"data:{data}:rw", "sh", "-c", f"echo one > {data}/f").code == 0
    program = ("sh", "-c", f"echo two > {data}/f; exit 7")
    said = run("exec", "-v", f"data:{data}:rw", "--on-failure", policy, "--json", *program)
    assert said.code == 7
    check("exec", said.json)
    (volume,) = said.json["volumes"]
    assert said.json["outcome"] == {"keep": "kept", "commit": "committed", "discard": "discarded"}[policy]
    assert read("data", "f") == ("two\n" if policy == "commit" else "one\n")
    assert volume["locator"] == (Volume.version("data").locator if policy == "commit" else None)
    assert Volume.open("data").has_changes() == (policy == "keep")
    assert ("`cowfs mount data PATH`" in said.err) == (policy == "keep")
    if policy == "commit":
        assert Volume.version("data").labels == {"cowfs.error": "ProgramFailed"}
    if policy == "keep":  # the next run goes on with it
        assert run("exec", "-v", f"data:{data}:rw", "grep", "two", data / "f").code == 0
        assert read("data", "f") == "two\n"


def test_versions_get_the_message_author_and_labels(run: Command, place: Path) -> None:
    said = ("-m", "why", "--author", "ada", "--label", "lr=3")
    both = [word for name in ("data", "idle") for word in ("-v", f"{name}:{place}/mnt/{name}:rw")]
    assert run("exec", *both, "true").code == 0
    idle = Volume.version("idle").id
    program = f"echo one > {place}/mnt/data/f"
    assert run("exec", *said, *both, "--", "sh", "-c", program).code == 0
    version = Volume.version("data")
    assert (version.message, version.author, version.labels) == ("why", "ada", {"lr": "3"})
    assert Volume.version("idle").id == idle, "nothing of it has changed"
    assert run("exec", *said, "--on-failure", "commit", *both, "--", "sh", "-c", f"{program}; exit 7").code == 7
    version = Volume.version("data")
    assert (version.message, version.author) == ("why", "ada")
    assert version.labels == {"lr": "3", "cowfs.error": "ProgramFailed"}
    shared = ("-v", f"data:{place}/mnt/shared:shared")
    assert run("exec", *said, *shared, "--", "sh", "-c", f"echo > {place}/mnt/shared/g").code == 0
    merged = Volume.version("data")
    assert len(merged.parents) == 2
    assert (merged.message, merged.author, merged.labels) == ("why", "ada", {"lr": "3"})


def test_changes_that_cannot_be_published_are_kept(run: Command, place: Path, data: Path) -> None:
    """The store is gone by then."""
    assert run("exec", "-v", f"data:{data}:rw", "true").code == 0
    store, gone = place / "store", place / "gone"
    for end, code in (("true", 125), ("exit 3", 3)):
        program = f"echo two > {data}/f; mv {store} {gone}; {end}"
        said = run("exec", "--json", "--on-failure", "commit", "-v", f"data:{data}:rw", "sh", "-c", program)
        gone.rename(store)
        assert said.code == code, said.err
        if code == 3:
            assert said.json["outcome"] == "kept"
            assert "could not be published" in said.json["problem"]
        assert Volume.open("data").has_changes()
    assert run("exec", "-v", f"data:{data}:rw", "true").code == 0
    assert read("data", "f") == "two\n"


def test_a_success_can_keep_its_work(run: Command, data: Path) -> None:
    said = run("exec", "-v", f"data:{data}:rw", "--on-success", "keep", "sh", "-c", f"echo one > {data}/f")
    assert said.code == 0
    assert "`cowfs mount data PATH`" in said.err
    assert Volume.open("data").has_changes()
    with pytest.raises(NotFoundError):
        Volume.version("data")
    Volume.open("data").discard()


def test_each_mode(run: Command, place: Path) -> None:
    mnt = place / "mnt"
    assert run("exec", "-v", f"base:{mnt}/base:rw", "sh", "-c", f"echo one > {mnt}/base/f").code == 0
    base = Volume.version("base")
    program = f"""
    test "$(cat {mnt}/ro/f)" = one && ! touch {mnt}/ro/f || exit 1
    echo fork > {mnt}/fork/g
    echo shared > {mnt}/shared/h
    echo scratch > {mnt}/scratch/i
    """
    said = run(
        "exec",
        *[word for mode in ("ro", "fork", "shared", "scratch") for word in ("-v", f"base:{mnt}/{mode}:{mode}")],
        *("--json", "--locators", place / "locators", "--", "sh", "-c", program),
    )
    assert said.code == 0, said.err
    locators = {Path(path).name: locator for path, locator in json.loads((place / "locators").read_text()).items()}
    assert locators["ro"] == base.locator
    assert locators["shared"] == Volume.version("base").locator
    assert [each["is_new"] for each in said.json["volumes"]] == [False, True, True, False]
    assert read("base", "h") == "shared\n"
    fork = Volume.from_locator(locators["fork"])
    assert fork.files.read("g") == b"fork\n"
    assert sorted(each.name for each in Store().volumes()) == ["base", fork.name]
    said = run("exec", "-v", "base", "true")
    assert said.err.startswith("Mounted base at ")


def test_the_store_of_the_option_is_that_of_the_program(run: Command, place: Path, data: Path) -> None:
    store = (place / "another").as_uri()
    program = (sys.executable, "-m", "cowfs.cli", "ls")
    said = run("exec", "--store", store, "-v", f"data:{data}:rw", "--", *program)
    assert said.code == 0
    assert "data" in said.out
    assert Store(store).volume("data").resolve().name == "data"


def test_a_volume_that_another_writer_has_is_waited_for(
    run: Command, start: Start, place: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("create", "data")
    program = ("-v", f"data:{data}:rw", "--", "grep", "theirs", data / "f")
    theirs = place / "mnt" / "theirs"
    with monkeypatch.context() as elsewhere:
        for variable, value in another_machine(place).items():
            elsewhere.setenv(variable, value)
        assert run("mount", "data", theirs).code == 0
        (theirs / "f").write_text("theirs")
    refused = run("exec", "--json", "--wait", "0", *program)
    assert (refused.code, refused.json["error"]["kind"]) == (125, "lease_held")
    running = start(*program)
    assert running.stderr is not None
    assert "data" in running.stderr.readline()
    with monkeypatch.context() as elsewhere:
        for variable, value in another_machine(place).items():
            elsewhere.setenv(variable, value)
        assert run("unmount", theirs, "--commit").code == 0
    out, said = running.communicate(timeout=LONG_S)
    assert (running.returncode, out.strip()) == (0, "theirs"), said


def test_open_descriptors_and_ignored_signals_are_inherited(place: Path) -> None:
    reader, writer = os.pipe()
    program = f"echo here >&{writer}; kill -HUP $$; echo alive >&{writer}"
    done = subprocess.run(
        ["nohup", sys.executable, "-m", "cowfs.cli", "exec", "bash", "-c", program],
        pass_fds=[writer],
        stdin=subprocess.DEVNULL,
        env=environment(),
        timeout=LONG_S,
    )
    os.close(writer)
    with open(reader) as pipe:
        assert pipe.read() == "here\nalive\n"
    assert done.returncode == 0


# -- stops

ENDS_IN_ORDER = """
trap 'echo saved > {data}/saved; exit {code}' TERM
touch {place}/ready
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize(
    ("options", "code", "is_committed"),
    [((), 0, False), (("--on-stop", "commit"), 0, True), (("--on-stop", "commit"), 4, True), (("--on-failure", "commit"), 5, True)],
)  # fmt: skip
def test_sigterm_reaches_the_program_and_decides(
    start: Start, place: Path, data: Path, options: tuple[str, ...], code: int, is_committed: bool
) -> None:
    program = ENDS_IN_ORDER.format(data=data, place=place, code=code)
    running = start("-v", f"data:{data}:rw", *options, "--", "sh", "-c", program)
    wait_for(place / "ready")
    running.terminate()
    _, said = running.communicate(timeout=LONG_S)
    assert running.returncode == code, said
    if is_committed:
        assert read("data", "saved") == "saved\n"
        assert Volume.version("data").labels == {"cowfs.error": "ProgramStopped"}
    else:
        assert "`cowfs mount data PATH`" in said
        volume = Volume.open("data")
        assert volume.files.read("saved") == b"saved\n"
        volume.discard()


def test_a_program_that_does_not_end_is_killed_with_its_group(start: Start, place: Path, data: Path) -> None:
    program = f"trap '' TERM; echo work > {data}/f; sleep 1000 & echo $! > {place}/child; touch {place}/ready; wait"
    running = start("-v", f"data:{data}:rw", "--stop-timeout", "0.3", "--on-stop", "commit", "--", "sh", "-c", program)
    wait_for(place / "ready")
    running.terminate()
    _, said = running.communicate(timeout=LONG_S)
    assert running.returncode == 128 + signal.SIGKILL
    assert "did not end within 0.3 s after SIGTERM and was killed" in said
    assert read("data", "f") == "work\n"
    assert wait_gone(int((place / "child").read_text()), LONG_S)


def test_other_signals_are_forwarded(start: Start, place: Path) -> None:
    names = ("HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "CONT", "ALRM")
    traps = "; ".join(f"trap 'touch {place}/{name}' {name}" for name in names)
    running = start("sh", "-c", f"{traps}; touch {place}/ready; until test -e {place}/end; do sleep 0.05; done")
    wait_for(place / "ready")
    for name in names:
        running.send_signal(signal.Signals[f"SIG{name}"])
        wait_for(place / name)
    (place / "end").touch()
    assert running.wait(LONG_S) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_during_the_mount_does_not_start_the_program(
    start: Start, place: Path, data: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """The store accepts connections and says nothing."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "made-up")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LONG_S)
        endpoint = quote(f"http://127.0.0.1:{server.getsockname()[1]}", safe="")
        monkeypatch.setenv("COWFS_STORE", f"s3://bucket;endpoint={endpoint};region=us-east-1/x")
        running = start("-v", f"data:{data}", "--", "touch", place / "marker")
        connection, _ = server.accept()
        with connection:
            running.send_signal(number)
            _, said = running.communicate(timeout=LONG_S)
    assert running.returncode == 128 + number, said
    assert "the program was not started, because of a signal to stop" in said
    assert not (place / "marker").exists()


def test_a_stop_while_the_command_loads_does_not_start_the_program(place: Path) -> None:
    """It is pending from the beginning, as it is for a first process that blocks it."""

    def stop_later() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        os.kill(os.getpid(), signal.SIGTERM)

    done = subprocess.run(
        [sys.executable, "-m", "cowfs.cli", "exec", "touch", place / "marker"],
        preexec_fn=stop_later,
        stderr=subprocess.PIPE,
        env=environment(),
        timeout=LONG_S,
    )
    assert (done.returncode, b"the program was not started" in done.stderr) == (128 + signal.SIGTERM, True)
    assert not (place / "marker").exists()


# -- as the first process


def test_the_first_process_reaps_orphans_and_forwards(start: Start, place: Path, data: Path) -> None:
    program = f"""
    trap 'echo saved > {data}/saved; exit 0' TERM
    for number in 1 2 3; do sh -c 'sh -c "exit 5" & sleep 0.1 & exit'; done
    sleep 0.5
    grep -l '^State:.Z' /proc/[0-9]*/status > {place}/zombies
    echo $PPID > {place}/parent
    touch {place}/ready
    while :; do sleep 0.05; done
    """
    running = start("-v", f"data:{data}:rw", "--on-stop", "commit", "--", "sh", "-c", program, through=FIRST_PROCESS)
    wait_for(place / "ready")
    assert (place / "parent").read_text() == "1\n"
    assert (place / "zombies").read_text() == ""
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGTERM)
    _, said = running.communicate(timeout=LONG_S)
    assert running.returncode == 0, said
    assert read("data", "saved") == "saved\n"


def test_orphans_are_reaped_elsewhere_too_and_own_children_are_not() -> None:
    program = """
import os, time
from cowfs.base import programs
own = programs.start(["sh", "-c", "exit 5"])
orphan = os.fork() or os._exit(3)
while b"Z" not in open(f"/proc/{own.pid}/stat", "rb").read(): time.sleep(0.01)
while not programs.reap_orphans(): own.poll()
assert own.wait() == 5
while not programs.reap_orphans() or os.path.exists(f"/proc/{orphan}"): time.sleep(0.01)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=LONG_S)


# -- on a terminal

COUNTS = """
import os, signal, sys, time
count = 0
def hear(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, hear)
assert os.tcgetpgrp(0) == os.getpgrp() != os.getpgid(os.getppid())
print("ready", flush=True)
while not count: time.sleep(0.01)
time.sleep(0.5)
print(f"count {count}, read {input()}", flush=True)
sys.exit(9)
"""


def read_until(terminal: int, text: str) -> str:
    said, end_s = "", time.monotonic() + LONG_S
    while text not in said:
        assert time.monotonic() < end_s, said
        if select.select([terminal], [], [], 1)[0]:
            said += os.read(terminal, 4096).decode()
    return said


def test_ctrl_c_on_a_terminal_arrives_once(place: Path, data: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(environment())
        words = [sys.executable, "-m", "cowfs.cli", "exec", "-v", f"data:{data}:rw", "--", sys.executable, "-c", COUNTS]
        os.execv(sys.executable, words)
    try:
        read_until(terminal, "ready")
        os.write(terminal, b"\x03")
        time.sleep(0.1)
        os.write(terminal, b"line\n")
        assert "count 1, read line" in read_until(terminal, "read line")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    finally:
        os.close(terminal)


def test_ctrl_z_stops_both_and_fg_continues_them(place: Path) -> None:
    """Below a shell with job control."""
    (place / "program").write_text(
        f"""
        touch {place}/ready
        until test -e {place}/go; do sleep 0.05; done
        {sys.executable} -c "import os; print('foreground', os.tcgetpgrp(0) == os.getpgrp())"
        """
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(environment())
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    try:
        os.write(terminal, f"{sys.executable} -m cowfs.cli exec sh {place}/program\n".encode())
        wait_for(place / "ready")
        os.write(terminal, b"\x1a")
        read_until(terminal, "Stopped")
        os.write(terminal, b"fg; echo code=$?\n")
        (place / "go").touch()
        read_until(terminal, "foreground True")
        read_until(terminal, "code=0")
        os.write(terminal, b"exit\n")
        wait_gone(pid, 5)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
