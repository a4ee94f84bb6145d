"""A child that is forked after the store was used goes on with it: data loaders fork.

obstore hangs there, so the child's requests are sent by s3fs. Every child has an alarm: a hang is a
failure, not a wait.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from urllib.parse import quote

import pytest

from cowfs.errors import ConflictError
from cowfs.store import ObjectStore, open_store
from cowfs.store.backends.s3 import s3_by_obstore
from cowfs.store.reliability import upload_turns
from cowfs.store.reliability.retrying import LARGE_BYTES
from tests.seaweedfs import SeaweedFS
from tests.store.scripted_server import STORED, Answer, Request, ScriptedServer, response

WATCHDOG_S = 120


@pytest.fixture(autouse=True)
def forks_beside_threads() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "cowfs-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret-at-all")

    def answer(request: Request) -> Answer:
        if request.method == "PUT":
            return STORED, True
        return response("200 OK", b"value" if request.method == "GET" else b""), True

    with ScriptedServer(answer) as found:
        yield found


def url(server: ScriptedServer) -> str:
    return f"s3://cowfs;endpoint={quote(server.endpoint, safe='')};region=us-east-1/stores"


def in_child(work: Callable[[], object], *, ends: Callable[[int], object] = os._exit) -> None:
    """Forks; fails unless the child's work ends well, and in time. One that hangs shows where."""
    child = os.fork()
    if child == 0:
        faulthandler.register(signal.SIGALRM, chain=True)
        signal.alarm(WATCHDOG_S)
        try:
            work()
        except BaseException as error:
            print(f"in the child: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
        ends(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_uses_its_parents_store_and_one_of_its_own(server: ScriptedServer) -> None:
    store = open_store(url(server))
    assert store.get("key") == b"value"

    def work() -> None:
        assert not s3_by_obstore.is_usable()
        for each in (store, open_store(url(server))):
            assert each.get("key") == b"value"
            each.put("key", b"x")
            each.close()
        in_child(lambda: open_store(url(server)).get("key"))  # its child, too

    in_child(work)
    assert s3_by_obstore.is_usable()
    assert store.get("key") == b"value"
    store.close()


def test_a_child_of_a_parent_that_has_asked_nothing_has_a_sender_of_its_own(server: ScriptedServer) -> None:
    """In a new interpreter: this one has loaded obstore."""
    program = (
        "import os, sys\n"
        "from cowfs.store import open_store; from cowfs.store.backends.s3 import s3_by_obstore as s3_obstore\n"
        f"store = open_store({url(server)!r})\n"
        "child = os.fork()\n"
        "assert store.get('key') == b'value' and s3_obstore.is_usable()\n"
        "assert child == 0 or os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-W", "ignore", "-c", program]) == 0


def test_a_child_whose_parent_has_used_obstore_without_cowfs(server: ScriptedServer) -> None:
    """In a new interpreter: nothing of ours is there to see the fork."""
    program = (
        "import os, obstore\n"
        "from obstore.store import S3Store\n"
        f"native = S3Store('cowfs', endpoint={server.endpoint!r}, client_options={{'allow_http': True}})\n"
        "obstore.get(native, 'key')\n"
        "child = os.fork()\n"
        "from cowfs.store import open_store; from cowfs.store.backends.s3 import s3_by_obstore as s3_obstore\n"
        f"assert open_store({url(server)!r}).get('key') == b'value'\n"
        "assert s3_obstore.is_usable() == (child != 0)\n"
        "assert child == 0 or os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    assert subprocess.run(command, timeout=WATCHDOG_S).returncode == 0


def test_a_fork_in_the_middle_of_requests(server: ScriptedServer) -> None:
    """Other threads of the parent hold whatever they hold at that moment."""
    store = open_store(url(server))
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            store.get("key")

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        try:
            for _ in range(5):
                in_child(lambda: store.get("key"))
        finally:
            stop.set()
        for each in asking:
            each.result()
    store.close()


def test_a_child_has_turns_for_uploads_of_its_own(server: ScriptedServer) -> None:
    """Those that its parent has under way never end there."""
    is_sent, may_end = threading.Event(), threading.Event()
    real = server._answer

    def answer(request: Request) -> Answer:
        if request.body[:1] == b"p":
            is_sent.set()
            may_end.wait(WATCHDOG_S)
        return real(request)

    server._answer = answer
    store = open_store(url(server))
    with ThreadPoolExecutor(upload_turns.START) as pool:
        sent = [pool.submit(store.put, f"key{n}", b"p" * LARGE_BYTES) for n in range(upload_turns.START)]
        assert is_sent.wait(WATCHDOG_S)
        while store._pace._running < upload_turns.START:
            may_end.wait(0.01)
        in_child(lambda: store.put("own", b"c" * LARGE_BYTES))
        may_end.set()
        for each in sent:
            each.result()
    store.close()


def test_a_child_ends_as_programs_do(server: ScriptedServer) -> None:
    """Nothing that the interpreter does at its end waits for what the parent had."""
    store = open_store(url(server))
    store.get("key")
    process = multiprocessing.get_context("fork").Process(target=lambda: store.get("key"), daemon=True)
    process.start()
    process.join(WATCHDOG_S)
    assert process.exitcode == 0
    store.close()


@pytest.mark.s3
def test_workers_of_a_data_loader(seaweedfs: SeaweedFS, s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As loaders do: the parent looks at the store, forks workers, and both read, for some
    epochs."""
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    store = open_store(s3["COWFS_STORE"])
    for number in range(8):
        store.put(f"item/{number}", b"%d" % number * 1000)
    for epoch in range(2):
        assert len(store.list("item/")) == 8
        workers = [Worker(store, range(first, 8, 2)) for first in range(2)]
        assert [worker.items() for worker in workers] == [[b"%d" % n * 1000 for n in w.numbers] for w in workers]
        in_child(partial(compete, store, epoch))
        assert store.get(f"made/{epoch}") == b"by the child"
    store.close()


class Worker:
    """A process that reads some items, and sends them back."""

    def __init__(self, store: ObjectStore, numbers: range) -> None:
        self.numbers = numbers
        self._receiver, sender = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=self._read, args=(store, sender), daemon=True)
        self._process.start()

    def items(self) -> list[bytes]:
        assert self._receiver.poll(WATCHDOG_S)
        found: list[bytes] = self._receiver.recv()
        self._process.join(WATCHDOG_S)
        assert self._process.exitcode == 0
        return found

    def _read(self, store: ObjectStore, sender: Connection) -> None:
        assert [info.size for info in store.list("item/")] == [1000] * 8
        sender.send([bytes(store.get_range(f"item/{number}", 0, 1000)) for number in self.numbers])


def compete(store: ObjectStore, epoch: int) -> None:
    store.put_if_absent(f"made/{epoch}", b"by the child")
    with pytest.raises(ConflictError):
        store.put_if_absent(f"made/{epoch}", b"again")
    assert store.size(f"made/{epoch}") == 12
