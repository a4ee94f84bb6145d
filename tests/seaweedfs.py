"""A real S3 server on this machine: SeaweedFS, started, killed and restarted by tests and by the
demo.

One server is one data directory, ten free ports of 127.0.0.1, one bucket and one pair of
credentials. `start` returns when the bucket answers. `kill` is SIGKILL; what was acknowledged is in
the directory and a later `start` serves it again. The server sends no telemetry. It is ended by its
own process id, never by name.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

PATIENCE_S = 120.0


class SeaweedFS:
    def __init__(self, directory: Path, *, bucket: str = "cowfs", bind: str = "127.0.0.1") -> None:
        """bind: the address that it listens at; 0.0.0.0 for all of this machine."""
        self._bind = bind
        self.directory = directory
        self.bucket = bucket
        self.ports = free_ports(10)
        self.log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.kill()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports[0]}"

    @property
    def store_url(self) -> str:
        """The bucket as a cowfs store."""
        return f"s3://{self.bucket};endpoint={quote(self.endpoint, safe='')};region=us-east-1/stores"

    @property
    def credentials(self) -> dict[str, str]:
        """Environment variables of a client that may do everything."""
        return {"AWS_ACCESS_KEY_ID": "cowfs-tests", "AWS_SECRET_ACCESS_KEY": "not-a-secret-at-all"}

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Returns when the bucket answers; raises, with the end of the server's log, when it does
        not."""
        assert self._process is None, "the server runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                env={**os.environ, **self.credentials},
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + PATIENCE_S
        while not self._bucket_answers():
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"SeaweedFS did not come up:\n{self.log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.1)

    def ask(self, request: Callable[[Any], object]) -> None:
        """Makes a request with a client of the server's own credentials."""
        if not self._answers(request, *self.credentials.values()):
            raise RuntimeError("SeaweedFS has refused a request")

    def give(self, access_key: str, secret_key: str, *actions: str) -> None:
        """An identity more, of that key's name; actions: everything, unless some are named. Returns
        when the server knows it."""
        named = ",".join(actions or ("Admin", "Read", "Write", "List", "Tagging"))
        self._configure(f"-user={access_key} -access_key={access_key} -secret_key={secret_key} -actions={named}")
        self._wait(lambda: self._may_list(access_key, secret_key))

    def take_away(self, access_key: str, secret_key: str) -> None:
        """Deletes the identity, and returns when the server knows it no more."""
        self._configure(f"-user={access_key} -delete")
        self._wait(lambda: not self._may_list(access_key, secret_key))

    def _configure(self, what: str) -> None:
        """The secret goes by standard input: arguments are there for everybody to read."""
        _, _, master, master_grpc, _, _, filer, filer_grpc, _, _ = self.ports
        command = [
            str(Path(sys.executable).with_name("weed")),
            "shell",
            f"-master=127.0.0.1:{master}.{master_grpc}",
            f"-filer=127.0.0.1:{filer}.{filer_grpc}",
        ]
        done = subprocess.run(
            command, input=f"s3.configure {what} -apply\n", capture_output=True, text=True, cwd=self.directory
        )
        if done.returncode != 0 or "error" in done.stdout.lower():
            raise RuntimeError(f"SeaweedFS was not configured: {done.stdout}{done.stderr}")

    def _wait(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                raise RuntimeError("SeaweedFS does not take notice of its identities")
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL; nothing is flushed."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _bucket_answers(self) -> bool:
        return self._answers(lambda client: client.head_bucket(Bucket=self.bucket), *self.credentials.values())

    def _may_list(self, access_key: str, secret_key: str) -> bool:
        return self._answers(
            lambda client: client.list_objects_v2(Bucket=self.bucket, MaxKeys=1), access_key, secret_key
        )

    def _answers(self, request: Callable[[Any], object], access_key: str, secret_key: str) -> bool:
        session = botocore.session.Session()
        session.set_credentials(access_key, secret_key)
        configuration = Config(connect_timeout=2, read_timeout=5, retries={"max_attempts": 0})
        client = session.create_client("s3", "us-east-1", endpoint_url=self.endpoint, config=configuration)
        try:
            request(client)
        except (BotoCoreError, ClientError):
            return False
        finally:
            client.close()
        return True

    def _command(self) -> list[str]:
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc, admin, admin_grpc = self.ports
        return [
            str(Path(sys.executable).with_name("weed")),
            "mini",
            f"-dir={self.directory}",
            f"-bucket={self.bucket}",
            "-ip=127.0.0.1",
            f"-ip.bind={self._bind}",
            f"-s3.port={s3}",
            f"-s3.port.grpc={s3_grpc}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-master.port={master}",
            f"-master.port.grpc={master_grpc}",
            f"-volume.port={volume}",
            f"-volume.port.grpc={volume_grpc}",
            f"-filer.port={filer}",
            f"-filer.port.grpc={filer_grpc}",
            f"-admin.port={admin}",
            f"-admin.port.grpc={admin_grpc}",
            "-admin.ui=false",
            "-webdav=false",
            "-master.telemetry=false",
            "-debug.port=0",
            "-s3.autoCreateBucket=false",
        ]


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now, below the range that outgoing connections take."""
    with ExitStack() as stack:
        found: list[int] = []
        start = 15_000 + os.getpid() % 1_000 * 15
        for port in range(start, start + 2_000):
            listener = stack.enter_context(socket.socket())
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise RuntimeError("no free ports")
