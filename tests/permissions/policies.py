"""The policies of docs/guide/permissions.md, by the title above each, and the requests that cowfs
makes in each role.

    recipes()        title -> policy, for a bucket and a prefix
    Recorder         a proxy before an S3 server; its requests as (action, bucket, key)
    WORK             role -> what it does, as a shell script; all of them in one store, in this order
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from cowfs.base.fast_dataclass import dataclass
from tests.forwarding import forward
from tests.seaweedfs import SeaweedFS
from tests.store.scripted_server import Request, ScriptedServer

PAGE = Path(__file__).parents[2] / "docs/guide/permissions.md"
PREFIX = "stores/team"
PATIENCE_S = 300

READER, WRITER, SOME, COLLECTOR, NOBODY = (
    "Reader",
    "Writer",
    "Writer of some volumes",
    "Collector",
    "Nobody deletes",
)
CREATE_ONLY = "CreateOnly"
Policy = dict[str, Any]

_COLLECT_NOW = """
import sys
from cowfs.maintain.collect import planning
planning.HOUR_NS = -(10**9)
from cowfs.cli.main import main
sys.argv = ["cowfs", "gc", "-y"]
main()
"""

WORK = {
    "store": """
        cowfs create data
        mkdir files
        seq 200000 > files/numbers
        cowfs upload files data -m one
        cowfs tag data v1
        echo more > files/more
        cowfs upload files data -m two
        cowfs fork data@v1 experiment
    """,
    READER: """
        cowfs ls
        cowfs log data
        cowfs ls data
        cowfs show data
        cowfs tag data
        cowfs cat data@v1:numbers > numbers
        cowfs diff data@v1 data
        cowfs cp data:more more
        mkdir data
        cowfs mount data data --read-only
        cmp data/numbers numbers
        cowfs unmount data
        cowfs mount data data --scratch
        echo s > data/more
        cowfs unmount data
        cowfs verify
        cowfs du --stored
        cowfs gc --dry-run
    """,
    WRITER: """
        cowfs create work
        mkdir work
        cowfs mount work work
        seq 300000 > work/numbers
        head -c 9000000 /dev/urandom > work/noise
        cowfs commit work -m a
        echo b > work/b
        cowfs unmount work --commit -m b
        cowfs tag work t
        cowfs tag work other
        cowfs tag work other --delete
        cowfs fork work other
        echo c > c
        cowfs cp c other:c
        cowfs merge other --into work
        cowfs rollback 'work@{1}'
        cowfs restore 'work@{1}:c'
        cowfs quota work 1GB
        cowfs prune work --keep-last 1 -y
        cowfs delete other -y
        cowfs undelete other
        cowfs delete other -y
        cowfs mount work work
        echo z > work/z
        cowfs unmount work
        cowfs unmount work --discard
        cowfs doctor
    """,
    SOME: """
        cowfs fork data train-1
        mkdir train
        cowfs mount train-1 train
        seq 400000 > train/numbers
        cowfs unmount train --commit -m trained
        cowfs tag train-1 best
        cowfs fork train-1 train-2
        echo more > train/more
        cowfs upload train train-2
        cowfs merge train-2 --into train-1
        cowfs delete train-2 -y
    """,
    COLLECTOR: f"""
        cowfs maintain -y
        sleep 2
        {sys.executable} -c '{_COLLECT_NOW}'
        cowfs verify
        cowfs purge work:noise --yes-purge work
    """,
}


def _blocks() -> Iterator[tuple[str, Policy]]:
    title = ""
    for heading, text in re.findall(r"^## ([^\n]*)$|^```json\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        title = heading or title
        if text and "Statement" in (policy := json.loads(text)):
            sid = policy["Statement"][0]["Sid"]
            yield (CREATE_ONLY if sid == CREATE_ONLY else title), policy


def recipes(bucket: str, prefix: str = PREFIX) -> dict[str, Policy]:
    """As a user fills them in."""
    return {
        title: json.loads(json.dumps(policy).replace("BUCKET", bucket).replace("PREFIX", prefix))
        for title, policy in _blocks()
    }


def identities(bucket: str, prefix: str = PREFIX) -> list[dict[str, Any]]:
    """Of the page's configuration for servers that know actions, and no policies."""
    (text,) = re.findall(r"^```json\n(\{\n  \"identities\".*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found: list[dict[str, Any]] = json.loads(text.replace("BUCKET", bucket).replace("PREFIX", prefix))["identities"]
    return found


@dataclass(frozen=True)
class Asked:
    """One permission that a request needs; `prefix` of a listing, `is_create_only` of a put."""

    action: str
    bucket: str
    key: str = ""
    prefix: str = ""
    is_create_only: bool = False

    @property
    def folder(self) -> str:
        """Of the store: `packs`, `volumes/data`, `cowfs.json`."""
        parts = self.key.removeprefix(f"{PREFIX}/").split("/")
        return "/".join(parts[: 2 if parts[0] == "volumes" else 1])


def permissions(request: Request) -> list[Asked]:
    """What a request needs by Amazon's table of S3 actions."""
    path, _, text = request.target.partition("?")
    query = parse_qs(text, keep_blank_values=True)
    bucket, _, key = unquote(path).lstrip("/").partition("/")
    if not key and "delete" in query:
        names = re.findall(rb"<Key>(.*?)</Key>", request.body)
        return [Asked("s3:DeleteObject", bucket, name.decode()) for name in names]
    if not key:
        assert request.method in ("GET", "HEAD"), request.target
        return [Asked("s3:ListBucket", bucket, prefix=query.get("prefix", [""])[0])]
    if "x-amz-copy-source" in request.headers:
        raise AssertionError("copies need two permissions, and cowfs made none when this was written")
    if request.method == "DELETE":
        return [Asked("s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject", bucket, key)]
    if request.method in ("PUT", "POST"):
        return [Asked("s3:PutObject", bucket, key, is_create_only="if-none-match" in request.headers)]
    return [Asked("s3:GetObject", bucket, key)]


class Place:
    """A user's machine: home, and a store on a server at `endpoint`."""

    def __init__(self, home: Path, bucket: str, endpoint: str, credentials: dict[str, str]) -> None:
        self._runtime = tempfile.TemporaryDirectory(prefix="cowfs-test-")  # short: a socket's name has 107 bytes
        self.home = home
        home.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("COWFS_", "XDG_", "AWS_"))}
        self.environ = {
            **kept,
            **credentials,
            "HOME": str(home),
            "XDG_RUNTIME_DIR": self._runtime.name,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COWFS_STORE": f"s3://{bucket};endpoint={quote(endpoint, safe='')};region=us-east-1/{PREFIX}",
        }

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-c", f"set -euo pipefail\n{script}"]
        return subprocess.run(
            command, cwd=self.home, env=self.environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def close(self) -> None:
        subprocess.run(["umount", "-l", *self.home.glob("*/")], capture_output=True, check=False)
        self._runtime.cleanup()


@contextmanager
def place(home: Path, server: SeaweedFS, endpoint: str, credentials: dict[str, str]) -> Iterator[Place]:
    made = Place(home, server.bucket, endpoint, credentials)
    try:
        yield made
    finally:
        made.close()


def record(server: SeaweedFS, home: Path) -> dict[str, list[Asked]]:
    """Runs the work of every role with all permissions; role -> the permissions it has used."""
    found: dict[str, list[Asked]] = {}
    home.mkdir()
    with ScriptedServer(lambda request: forward(server, request)) as proxy:
        for role, work in WORK.items():
            before = len(proxy.requests)
            with place(home / role.replace(" ", "-"), server, proxy.endpoint, server.credentials) as user:
                done = user.run(work)
                assert done.returncode == 0, f"{role}: {done.stdout}{done.stderr}"
            asked = (each for request in proxy.requests[before:] for each in permissions(request))
            found[role] = list(dict.fromkeys(asked))
    return found
