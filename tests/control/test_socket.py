"""The control socket: calls, progress, errors by kind, garbage, clients that leave, and who may
connect."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cowfs.control import Client, Listener, Server, StoreWait, client, messages, protocol
from cowfs.control.protocol import LINE_LIMIT_BYTES, LineSocket
from cowfs.control.typed import to_json
from cowfs.errors import (
    AccessDeniedError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    LeaseHeldError,
    NoSpaceError,
    UnavailableError,
)
from cowfs.machine.processes import wait_gone
from cowfs.version.commit import Progress, ProgressListener

pytestmark = pytest.mark.quick

WAIT_S = 30


class PanicError(BaseException):
    """As PyO3 raises a panic of native code: no Exception."""


class Handlers:
    def __init__(self) -> None:
        self.proceed = threading.Event()
        self.started = threading.Event()
        self.finished = threading.Event()

    def echo(self, arguments: dict[str, Any], progress: ProgressListener) -> Any:
        return arguments

    def steps(self, arguments: dict[str, Any], progress: ProgressListener) -> int:
        for step in range(arguments["count"]):
            progress(Progress("steps", step, arguments["count"]))
        return int(arguments["count"])

    def wait(self, arguments: dict[str, Any], listener: Listener) -> str:
        listener(StoreWait("waiting for it"))
        listener(Progress("steps"))
        listener(StoreWait(""))
        return "done"

    def refuse(self, arguments: dict[str, Any], progress: ProgressListener) -> None:
        raise LeaseHeldError("somebody writes", hint="wait", details={"host": "elsewhere"})

    def crash(self, arguments: dict[str, Any], progress: ProgressListener) -> None:
        raise ZeroDivisionError("a mistake")

    def panic(self, arguments: dict[str, Any], progress: ProgressListener) -> None:
        raise PanicError("in the engine")

    def slow(self, arguments: dict[str, Any], progress: ProgressListener) -> str:
        self.started.set()
        assert self.proceed.wait(WAIT_S)
        for _ in range(1000):
            progress(Progress("still here"))
        self.finished.set()
        return "done"


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cowfs-test-") as directory:
        yield Path(directory) / "s.sock"


@pytest.fixture
def server(path: Path, handlers: Handlers) -> Iterator[Server]:
    names = ("echo", "steps", "wait", "refuse", "crash", "panic", "slow")
    server = Server(path, {name: getattr(handlers, name) for name in names})
    yield server
    handlers.proceed.set()
    server.close()


def raw(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(WAIT_S)
    connection.connect(os.fspath(path))
    return connection


def replies(connection: socket.socket) -> list[dict[str, Any]]:
    """Every reply until the server closes."""
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return [json.loads(line) for line in data.splitlines()]


def test_arguments_and_results_pass_through(server: Server, path: Path) -> None:
    arguments: dict[str, Any] = {"text": "ü\n\0", "number": 2**60, "table": {"a": [1, None, True]}, "on": "off"}
    assert Client(path).call("echo", **arguments) == arguments


def test_progress_comes_in_order_before_the_result(server: Server, path: Path) -> None:
    seen: list[Any] = []
    assert Client(path).call("steps", on_progress=seen.append, count=100) == 100
    assert seen == [Progress("steps", step, 100) for step in range(100)]


def test_what_a_newer_daemon_says_before_its_answer_is_no_answer(
    server: Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cowfs.control.server._line", lambda event: {"of a newer cowfs": 1})
    assert Client(path).call("steps", count=2) == 2


def test_what_the_daemon_waits_for_is_logged(server: Server, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []
    assert Client(path).call("wait", on_progress=seen.append) == "done"
    assert [record.getMessage() for record in caplog.records] == ["waiting for it", "the store answers again"]
    assert seen == [Progress("steps")]


def test_a_caller_is_told_when_nothing_comes(
    server: Server, path: Path, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "QUIET_S", 0.01)
    calls: list[int] = []

    def quiet() -> None:
        calls.append(1)
        if len(calls) == 3:
            handlers.proceed.set()

    assert Client(path, on_quiet=quiet).call("slow") == "done"
    assert len(calls) >= 3


def test_errors_keep_their_class_hint_and_details(server: Server, path: Path) -> None:
    with pytest.raises(LeaseHeldError, match="somebody writes") as caught:
        Client(path).call("refuse")
    assert (caught.value.hint, caught.value.details) == ("wait", {"host": "elsewhere"})


@pytest.mark.parametrize("op", ["crash", "panic"])
def test_a_mistake_in_a_handler_is_an_internal_error_and_nothing_more(server: Server, path: Path, op: str) -> None:
    with pytest.raises(CowfsError) as caught:
        Client(path).call(op)
    assert caught.value.kind == "internal"
    assert Client(path).call("echo") == {}


@pytest.mark.parametrize("op", ["", "unknown", "close", "__init__"])
def test_unknown_requests_are_refused(server: Server, path: Path, op: str) -> None:
    with pytest.raises(InvalidInputError, match="knows no request"):
        Client(path).call(op)


@pytest.mark.parametrize(
    "data",
    [
        b"garbage\n",
        b"\xff\xfe\n",
        b"[]\n",
        b"null\n",
        b'{"op": "echo"',
        b"[" * 100_000 + b"\n",
        b"x" * (LINE_LIMIT_BYTES + 1),
    ],
    ids=["text", "not-utf8", "array", "null", "cut", "deep", "endless"],
)
def test_garbage_is_answered_with_an_error_and_the_connection_ends(server: Server, path: Path, data: bytes) -> None:
    with raw(path) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        (reply,) = replies(connection)
    assert reply["error"]["kind"] == "invalid_input"
    assert Client(path).call("echo", still="served") == {"still": "served"}


def test_an_op_that_is_no_text_is_refused(server: Server, path: Path) -> None:
    with raw(path) as connection:
        connection.sendall(b'{"op": ["echo"]}\n{"no": "op"}\n')
        connection.shutdown(socket.SHUT_WR)
        assert [reply["error"]["kind"] for reply in replies(connection)] == ["invalid_input"] * 2


def test_one_connection_carries_several_requests(server: Server, path: Path) -> None:
    with raw(path) as connection:
        connection.sendall(b'{"op": "echo", "n": 1}\n{"op": "echo", "n": 2}\n')
        connection.shutdown(socket.SHUT_WR)
        assert replies(connection) == [{"result": {"n": 1}}, {"result": {"n": 2}}]


def test_a_client_that_leaves_does_not_stop_its_request(server: Server, path: Path, handlers: Handlers) -> None:
    with raw(path) as connection:
        connection.sendall(b'{"op": "slow"}\n')
        assert handlers.started.wait(WAIT_S)
    handlers.proceed.set()
    assert handlers.finished.wait(WAIT_S)


def test_a_slow_request_blocks_nobody_else(server: Server, path: Path, handlers: Handlers) -> None:
    with raw(path) as connection:
        connection.sendall(b'{"op": "slow"}\n')
        assert handlers.started.wait(WAIT_S)
        assert Client(path, timeout_s=WAIT_S).call("echo", n=1) == {"n": 1}
        handlers.proceed.set()


def test_closing_answers_what_is_under_way_and_removes_the_socket(
    server: Server, path: Path, handlers: Handlers
) -> None:
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(Client(path).call("slow")))
    asking.start()
    assert handlers.started.wait(WAIT_S)
    handlers.proceed.set()
    server.close()
    asking.join(WAIT_S)
    assert answers == ["done"]
    assert not path.exists()
    with pytest.raises(UnavailableError):
        Client(path).call("echo")


def test_closing_does_not_wait_for_idle_connections(server: Server, path: Path) -> None:
    with raw(path) as connection:
        connection.sendall(b'{"op": "echo"}\n')
        connection.recv(100)
        server.close()
        assert connection.recv(100) == b""


def test_the_socket_is_the_owners_alone(server: Server, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_directory_others_can_enter_is_refused(path: Path) -> None:
    path.parent.chmod(0o755)
    with pytest.raises(AccessDeniedError):
        Server(path, {})


def test_a_stale_socket_is_replaced(path: Path) -> None:
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(os.fspath(path))
    left.close()
    server = Server(path, {"ping": lambda arguments, progress: "pong"})
    assert Client(path).call("ping") == "pong"
    server.close()


def test_a_socket_that_was_removed_is_made_again_here_or_elsewhere(
    server: Server, path: Path, handlers: Handlers
) -> None:
    with closing(raw(path)) as before:
        for again in (path, path.with_name("other.sock")):
            seen = [server.is_there]
            shutil.rmtree(path.parent)
            seen.append(server.is_there)
            path.parent.mkdir(mode=0o700)
            server.listen_at(again)
            assert [*seen, server.is_there] == [True, False, True]
            assert stat.S_IMODE(again.stat().st_mode) == 0o600
            assert Client(again).call("echo", text=str(again)) == {"text": str(again)}
        before.sendall(b'{"op": "steps", "count": 0}\n')
        assert json.loads(before.recv(1000)) == {"result": 0}
    server.close()
    assert list(path.parent.iterdir()) == []
    server.listen_at(path)
    assert list(path.parent.iterdir()) == [], "it has ended"


def test_what_is_anothers_by_now_is_left_to_it(server: Server, path: Path) -> None:
    path.unlink()
    with closing(Server(path, {"ping": lambda arguments, progress: "another"})) as another:
        assert not server.is_there
        with pytest.raises(InvalidStateError, match="not made by this process"):
            server.listen_at(path)
        assert (another.is_there, Client(path).call("ping")) == (True, "another")
    server.listen_at(path)
    assert Client(path).call("echo") == {}
    path.parent.chmod(0o755)
    path.unlink()
    with pytest.raises(AccessDeniedError, match="not private"):
        server.listen_at(path)


def test_a_path_too_long_for_a_socket_is_a_clear_error(path: Path) -> None:
    long = path.parent / ("d" * 100)
    long.mkdir(mode=0o700)
    with pytest.raises(InvalidInputError, match="socket"):
        Server(long / "s.sock", {})


def test_a_disk_without_room_for_a_socket_is_said_to_be_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: socket.socket, address: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(socket.socket, "bind", full)
    with pytest.raises(NoSpaceError, match="full, no control socket"):
        Server(path, {})


def test_a_daemon_that_may_start_no_thread_says_so_and_answers_later(
    server: Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    refused: list[threading.Thread] = []

    def limited(thread: threading.Thread) -> None:
        if thread.name == "control" and len(refused) < 2:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="cannot answer: can't start new thread"):
            Client(path).call("echo")
    assert Client(path).call("echo", word="hello") == {"word": "hello"}


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("can't start new thread"),
        BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)),
        type("PanicException", (BaseException,), {})("failed to spawn thread: Os { code: 11 }"),
    ],
)
def test_what_needs_more_threads_than_there_may_be_says_so(path: Path, error: BaseException) -> None:
    def work(arguments: dict[str, Any], listener: Listener) -> Any:
        raise error

    with closing(Server(path, {"work": work})), pytest.raises(UnavailableError) as refused:
        Client(path).call("work")
    assert "ulimit -u" in refused.value.hint
    assert refused.value.message.startswith("work failed: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_is_refused(server: Server, path: Path) -> None:
    path.parent.chmod(0o755)
    path.chmod(0o666)  # as if the permissions had failed: the peer check still holds
    script = f"""
import os, select, socket
os.setuid(65534)
s = socket.socket(socket.AF_UNIX); s.connect({os.fspath(path)!r})
select.select([s], [], [], {WAIT_S})  # the refusal is there before the request
s.sendall(b'{{"op": "echo"}}\\n'); print(s.recv(1000).decode())
"""
    said = subprocess.run(["python3", "-c", script], capture_output=True, text=True, timeout=WAIT_S).stdout
    assert json.loads(said)["error"]["kind"] == "access_denied"


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_full_queue_of_callers_is_waited_in(path: Path, is_taken: bool) -> None:
    queued = 0

    def enter() -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            caller.setblocking(False)
            return caller.connect_ex(os.fspath(path)) == 0

    def take() -> None:
        for _ in range(queued + 1):
            connection, _ = listener.accept()
            with connection:
                if connection.recv(100):
                    connection.sendall(b'{"result": "taken"}\n')

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(os.fspath(path))
        listener.listen(1)
        while enter():
            queued += 1
        if not is_taken:
            with pytest.raises(UnavailableError) as caught:
                Client(path, timeout_s=0.1).call("echo")
            assert isinstance(caught.value.__cause__, TimeoutError)
            return
        taking = threading.Timer(0.2, take)
        taking.start()
        assert Client(path, timeout_s=WAIT_S).call("echo") == "taken"
        taking.join(WAIT_S)


def test_a_client_of_a_daemon_that_dies_gets_unavailable(path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(os.fspath(path))
    listener.listen()

    def die() -> None:
        connection, _ = listener.accept()
        connection.recv(100)
        connection.close()

    dying = threading.Thread(target=die)
    dying.start()
    with pytest.raises(UnavailableError, match="ended before"):
        Client(path).call("echo")
    dying.join(WAIT_S)
    listener.close()


def test_wait_gone_sees_the_end_even_of_a_child_nobody_reaped() -> None:
    child = subprocess.Popen(["sleep", "1000"])
    assert not wait_gone(child.pid, 0.01)
    child.send_signal(signal.SIGKILL)
    assert wait_gone(child.pid, WAIT_S)
    child.wait()
    assert wait_gone(child.pid, 0)


def test_a_message_longer_than_a_line_travels_in_pieces(server: Server, path: Path) -> None:
    text = '"\\\u20ac\udcff' * (LINE_LIMIT_BYTES // 4)
    assert Client(path).call("echo", text=text) == {"text": text}
    with raw(path) as connection:
        connection.sendall(b'{"piece": "{\\"op\\": "}\n{"pieces": 2}\n')
        connection.shutdown(socket.SHUT_WR)
        (reply,) = replies(connection)
    assert reply["error"]["kind"] == "invalid_input"


def test_of_many_things_as_many_are_told_as_a_message_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MESSAGE_LIMIT_BYTES", 1_500_000)
    monkeypatch.setattr(protocol, "OTHER_BYTES", 1000)
    paths = tuple(messages.RestoredPath(f"/{number}" + "\udcff" * 40, "changed") for number in range(8000))
    count = protocol.fitting(paths)
    assert 4000 < count < 6000
    assert protocol.fitting(paths[:10]) == 10
    for shown, fits in ((paths[:count], True), (paths[: count + 20], False)):
        ours, theirs = socket.socketpair()
        with closing(ours), closing(theirs):
            reader = threading.Thread(target=LineSocket(theirs).receive)
            reader.start()
            answer = to_json(messages.Restored(None, shown, 7))
            if fits:
                LineSocket(ours).send(answer)
            else:
                with pytest.raises(InvalidInputError, match="too long"):
                    LineSocket(ours).send(answer)
            ours.close()
            reader.join()
