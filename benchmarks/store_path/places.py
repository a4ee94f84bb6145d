"""Where the stores of a run are.

    directory    on the local disk
    seaweedfs    an S3 server on this machine, on the same cores as everything else
    delayed      the same behind a relay that adds 30 ms to each answer, and counts requests
    counted      the same without the latency: only for requests
    1gbit, 4gbit the same behind a link of that rate: a pair of virtual interfaces whose queues the
                 kernel empties at that rate (tbf), without processor time of ours. Needs root

A link is between network name spaces: the server stays in ours, the run goes on in another one, in
a process that `over_link` starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cowfs.format.store_url import StoreUrl
from cowfs.store.credentials import trust
from tests.seaweedfs import SeaweedFS

DELAY_MS = 30
RATES = {"1gbit": "1gbit", "4gbit": "4gbit"}
OURS, THEIRS = "10.213.7.1", "10.213.7.2"
NAMES = ("directory", "seaweedfs", "counted", "delayed", *RATES)


class Relayed:
    """What passes a relay."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.port = int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def seen(self, *, traced: bool = False) -> dict[str, int]:
        """Since the last call: requests, sent_bytes, received_bytes, depth. traced: prints the
        requests."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        found: dict[str, Any] = json.loads(self._line())
        lines = found.pop("lines")
        if traced:
            print(*lines, sep="\n", file=sys.stderr)
        return found


@dataclass(frozen=True)
class Place:
    """store: where volumes may be made."""

    name: str
    store: StoreUrl
    relayed: Relayed | None = None


@contextmanager
def opened(name: str, directory: Path) -> Iterator[Place]:
    """A place other than a link's, below an empty directory. Sets the credentials of its store in
    the environment."""
    if name == "directory":
        (directory / "store").mkdir(parents=True)
        yield Place(name, StoreUrl.from_path(str(directory / "store")))
        return
    with SeaweedFS(directory / "server") as server:
        os.environ.update(server.credentials)
        store = StoreUrl.parse(server.store_url)
        if name == "seaweedfs":
            yield Place(name, store)
            return
        with relayed(server.ports[0], DELAY_MS if name == "delayed" else 0) as relay:
            yield Place(name, replace(store, endpoint=f"http://127.0.0.1:{relay.port}"), relay)


@contextmanager
def relayed(port: int, delay_ms: float) -> Iterator[Relayed]:
    command = [sys.executable, "-m", "benchmarks.store_path.relay", str(port), str(delay_ms)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Relayed(process)
    finally:
        process.terminate()
        process.wait()


def over_link(name: str, directory: Path, command: Sequence[str]) -> int:
    """Runs a command whose only way to a new server is a link of that rate; its exit status. The
    command gets `--store URL` and credentials in its environment."""
    with SeaweedFS(directory / "server", bind="0.0.0.0") as server, _link(name) as space:
        endpoint = f"http://{OURS}:{server.ports[0]}"
        store = replace(StoreUrl.parse(server.store_url), endpoint=endpoint)
        inside = ["nsenter", f"--net=/run/netns/{space}", *command, "--store", str(store)]
        names = {**server.credentials, trust.VARIABLE: endpoint}
        return subprocess.run(inside, env={**os.environ, **names}, check=False).returncode


@contextmanager
def _link(name: str) -> Iterator[str]:
    """The network name space at its other end."""
    space = f"cowfs-bench-{os.getpid()}"
    ours, theirs = f"cb{os.getpid()}a"[:15], f"cb{os.getpid()}b"[:15]
    _run("ip", "netns", "add", space)
    try:
        _run("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", space)
        _run("ip", "addr", "add", f"{OURS}/30", "dev", ours)
        _run("ip", "link", "set", ours, "up")
        inside = ("ip", "-n", space)
        _run(*inside, "addr", "add", f"{THEIRS}/30", "dev", theirs)
        for device in (theirs, "lo"):
            _run(*inside, "link", "set", device, "up")
        shape = ("root", "tbf", "rate", RATES[name], "burst", "4mb", "latency", "50ms")
        _run("tc", "qdisc", "add", "dev", ours, *shape)
        _run("tc", "-n", space, "qdisc", "add", "dev", theirs, *shape)
        yield space
    finally:
        _run("ip", "netns", "delete", space)  # with its interface, and so with ours


def _run(*command: str) -> Any:
    return subprocess.run(command, check=True)
