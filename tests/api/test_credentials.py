"""Credentials that a program gives: rotated during a commit, asked for again when they are refused,
brought by another program, and found nowhere that they should not be.

The S3 server is real, with identities of its own for each test. What it does at a certain moment
happens in a proxy before it, which forwards whole requests.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cowfs import storage
from cowfs.api.mounts.summaries import MountSummary
from cowfs.blocking import RWVolume, Store, Volume
from cowfs.errors import AccessDeniedError
from cowfs.machine import registry
from cowfs.machine.processes import wait_gone
from cowfs.storage import Storage
from tests.forwarding import forward
from tests.seaweedfs import SeaweedFS
from tests.store.scripted_server import Answer, Request, ScriptedServer

pytestmark = [pytest.mark.mount, pytest.mark.s3]

WATCHDOG_S = 120
CONTENT_BYTES = 40 << 20  # several packs

MOUNT = """
import sys
from pathlib import Path
from cowfs import storage
from cowfs.blocking import Volume

endpoint, prefix, keys = sys.argv[1:4]

def read(line):
    return lambda: Path(keys).read_text().split()[line]

given = {} if len(sys.argv) > 4 else {"access_key": read(0), "secret_key": read(1)}
process = sys.argv[4] if len(sys.argv) > 4 else None
place = storage.MinIO("cowfs", prefix, endpoint=endpoint, credential_process=process, **given)
print(Volume.new("data", store=place).mount(), flush=True)
sys.stdin.readline()
"""

PRINT = """
import json, sys
from pathlib import Path
access_key, secret_key = Path(sys.argv[1]).read_text().split()
print(json.dumps({"Version": 1, "AccessKeyId": access_key, "SecretAccessKey": secret_key}))
"""


DUMP = """
import gc, sys, types
from pathlib import Path
from cowfs import storage
from cowfs.blocking import Volume

endpoint, prefix, keys = sys.argv[1:4]

def used():
    access_key, secret_key = Path(keys).read_text().split()
    return storage.MinIO("cowfs", prefix, endpoint=endpoint, access_key=access_key, secret_key=lambda: secret_key)

def shown():
    wanted = Path(keys).read_text().split()
    skipped = types.FrameType | types.ModuleType
    return [type(each) for each in gc.get_objects() if not isinstance(each, skipped) and any(key in said(each) for key in wanted)
            and each is not wanted]

def said(thing):
    try:
        return repr(thing)
    except Exception:
        return ""

volume = Volume.new("dump", store=used())
volume.files.write("/file", bytes(1 << 20))
version = volume.commit("one")
assert version.files.read("/file") == bytes(1 << 20)
gc.collect()
print(len(gc.get_objects()), shown(), flush=True)
volume.unmount()
"""


class Key:
    """An access key of the server that nobody else has."""

    def __init__(self, server: SeaweedFS, *actions: str) -> None:
        self.access_key, self.secret_key = f"KEY{os.urandom(8).hex()}", f"secret-{os.urandom(12).hex()}"
        self._server = server
        server.give(self.access_key, self.secret_key, *actions)

    def take_away(self) -> None:
        self._server.take_away(self.access_key, self.secret_key)

    def store(self, prefix: str, endpoint: str | None = None) -> Storage:
        return storage.MinIO(
            self._server.bucket,
            prefix,
            endpoint=endpoint or self._server.endpoint,
            access_key=self.access_key,
            secret_key=self.secret_key,
        )


@pytest.fixture(autouse=True)
def stranger(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has no credentials."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def prefix() -> str:
    return f"credentials/{os.urandom(6).hex()}"


def test_one_commit_spans_two_identities_and_no_key_is_found(seaweedfs: SeaweedFS, prefix: str, place: Path) -> None:
    first, second = Key(seaweedfs), Key(seaweedfs)
    used = [first]
    puts: list[str] = []
    is_rotating = threading.Event()
    rotated = threading.Event()

    def forwarded(request: Request) -> Answer:
        """After the first pack of the commit its key is deleted, and nothing goes on until it
        is."""
        is_pack = request.method == "PUT" and f"/{prefix}/packs/" in request.target
        if is_pack and is_rotating.is_set():
            if puts and not rotated.is_set():
                assert rotated.wait(WATCHDOG_S)
            puts.append(re.search(r"Credential=([^/]+)/", request.headers["authorization"])[1])  # type: ignore[index]
        answer = forward(seaweedfs, request)
        if is_pack and is_rotating.is_set() and not rotated.is_set():
            used[0] = second
            first.take_away()
            rotated.set()
        return answer

    with ScriptedServer(forwarded) as proxy:
        bucket = storage.MinIO(
            seaweedfs.bucket,
            prefix,
            endpoint=proxy.endpoint,
            access_key=lambda: used[0].access_key,
            secret_key=lambda: used[0].secret_key,
        )
        with Volume.new("data", store=bucket) as volume:
            content = os.urandom(CONTENT_BYTES)
            path = volume.mount(max_uploads=1)
            (path / "small").write_bytes(b"before")
            volume.commit()
            is_rotating.set()
            (path / "large").write_bytes(content)
            version = volume.commit("over the rotation")
            assert {puts[0], puts[-1]} == {first.access_key, second.access_key}, puts
            secrets = [each for key in (first, second) for each in (key.access_key, key.secret_key)]
            assert found_anywhere(secrets, place, second.store(prefix), repr(volume), version.locator) == []
            assert volume.status().details.credentials_problem is None  # type: ignore[union-attr]
        again = Volume.from_locator(version.locator, store=second.store(prefix, proxy.endpoint))
        with again:
            assert (again / "large").read_bytes() == content


def found_anywhere(secrets: list[str], place: Path, bucket: Storage, *texts: str) -> list[str]:
    """Where a secret can be read: the store's objects, this machine's files of cowfs, logs among
    them, what processes show of themselves, texts."""
    wanted = re.compile("|".join(map(re.escape, secrets)).encode())
    found = [f"text {number}" for number, text in enumerate(texts) if wanted.search(text.encode())]
    with bucket as s:
        objects = s.ls()
        assert any(each.key.startswith("packs/") for each in objects)
        for each in objects:
            stored = s.download(each.key, place / "object").read_bytes()
            found += [each.key] if wanted.search(stored) or wanted.search(each.key.encode()) else []
    seen = [path for path in place.rglob("*") if path.is_file() and place / "mnt" not in path.parents]
    assert any(path.name == "daemon.log" for path in seen)
    for path in [*seen, *Path("/proc").glob("[0-9]*/cmdline"), *Path("/proc").glob("[0-9]*/environ")]:
        try:
            if wanted.search(path.read_bytes()):
                found.append(str(path))
        except OSError:  # it ended
            continue
    return found


def test_no_object_of_a_process_that_uses_a_key_shows_it(seaweedfs: SeaweedFS, prefix: str, place: Path) -> None:
    """Of whatever library; what a debugger, a crash report or a log could print."""
    key = Key(seaweedfs)
    (place / "keys").write_text(f"{key.access_key} {key.secret_key}")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DUMP, seaweedfs.endpoint, prefix, str(place / "keys")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
    )
    assert done.returncode == 0, done.stderr
    count, _, found = done.stdout.strip().partition(" ")
    assert int(count) > 10_000
    assert found == "[]"
    assert key.secret_key not in done.stderr


def test_volumes_of_one_process_use_their_own_identity_for_one_bucket(seaweedfs: SeaweedFS, prefix: str) -> None:
    writer, reader = Key(seaweedfs), Key(seaweedfs, "Read", "List")
    with Volume.new("data", store=writer.store(prefix)) as volume:
        (volume / "file").write_text("one")
        version = volume.commit("one")
        with pytest.raises(AccessDeniedError):
            Volume.new("other", store=reader.store(prefix)).mount()
        assert [each.name for each in Store(storage=reader.store(prefix)).volumes()] == ["data"]
        with Volume.from_locator(version.locator, store=reader.store(prefix)) as read:
            assert (read / "file").read_text() == "one"
            (volume / "file").write_text("two")
            assert volume.commit("two").fork("fork").history()[0].message == "two"
        with pytest.raises(AccessDeniedError, match="without credentials"):
            Volume.from_locator(version.locator)


def test_commands_without_credentials_commit_and_unmount_what_is_mounted(seaweedfs: SeaweedFS, prefix: str) -> None:
    with Volume.new("data", store=Key(seaweedfs).store(prefix)) as volume:
        for number, arguments in enumerate((["commit"], ["commit", "--json"], ["unmount", "--commit", "--force"])):
            path = volume.mount()
            (path / "file").write_text(f"{number}")
            done = subprocess.run(
                [str(Path(sys.executable).with_name("cowfs")), *arguments, str(path)],
                capture_output=True,
                text=True,
                timeout=WATCHDOG_S,
            )
            assert done.returncode == 0, done.stderr
            last = volume.history(limit=1)[0]
            assert last.locator in done.stdout
            assert f"Version {last.id[:12]} of data" in done.stderr or "--json" in arguments
        assert len(volume.history()) == 3
        volume.mount()


@pytest.fixture
def program(place: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts programs that mount "data" and wait."""
    running: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(
            [sys.executable, "-c", MOUNT, *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().strip()
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate(timeout=WATCHDOG_S)


@pytest.mark.slow
def test_work_waits_for_the_program_that_brings_new_credentials(
    seaweedfs: SeaweedFS, prefix: str, place: Path, program: Callable[..., subprocess.Popen[str]]
) -> None:
    first, second = Key(seaweedfs), Key(seaweedfs)
    keys = place / "keys"
    keys.write_text(f"{first.access_key} {first.secret_key}")
    process = program(seaweedfs.endpoint, prefix, str(keys))
    keys.unlink()
    process.send_signal(signal.SIGKILL)
    process.wait(WATCHDOG_S)
    entry = registry.list_mounts()[0]
    first.take_away()
    Path(entry.mount_path, "file").write_text("kept")
    other = Volume.open("data", store=second.store(prefix))
    other.resolve()
    with ThreadPoolExecutor() as pool:
        committing = pool.submit(other.commit, "waits")
        until(lambda: problem_of(other) is not None or committing.done())
        assert not committing.done(), committing.result()
        other.mount()  # brings what it has to the mount that is there
        version = committing.result(WATCHDOG_S)
    assert registry.list_mounts()[0].pid == entry.pid
    assert problem_of(other) is None
    other.unmount(force=True)
    assert wait_gone(entry.pid, WATCHDOG_S)
    with Volume.from_locator(version.locator, store=second.store(prefix)) as read:
        assert (read / "file").read_text() == "kept"
    log = "".join(path.read_text() for path in place.rglob("daemon.log"))
    assert first.secret_key not in log
    assert second.secret_key not in log


@pytest.mark.slow
def test_a_credential_process_goes_on_when_its_program_has_gone(
    seaweedfs: SeaweedFS, prefix: str, place: Path, program: Callable[..., subprocess.Popen[str]]
) -> None:
    first, second = Key(seaweedfs), Key(seaweedfs)
    keys, script = place / "keys", place / "print.py"
    keys.write_text(f"{first.access_key} {first.secret_key}")
    script.write_text(PRINT)
    process = program(seaweedfs.endpoint, prefix, "", f"{sys.executable} {script} {keys}")
    process.send_signal(signal.SIGKILL)
    process.wait(WATCHDOG_S)
    entry = registry.list_mounts()[0]
    keys.write_text(f"{second.access_key} {second.secret_key}")
    first.take_away()
    Path(entry.mount_path, "file").write_text("kept")
    volume = Volume.open("data", store=second.store(prefix)).resolve()
    version = volume.commit("by the daemon alone")
    assert problem_of(volume) is None
    volume.unmount(force=True)
    with Volume.from_locator(version.locator, store=second.store(prefix)) as read:
        assert (read / "file").read_text() == "kept"


def test_wrong_credentials_are_an_error_at_once(seaweedfs: SeaweedFS, prefix: str) -> None:
    key = Key(seaweedfs)
    key.take_away()
    made = storage.MinIO(
        seaweedfs.bucket,
        prefix,
        endpoint=seaweedfs.endpoint,
        access_key=lambda: key.access_key,
        secret_key=lambda: key.secret_key,
    )
    for each in (made, key.store(prefix)):
        with pytest.raises(AccessDeniedError) as caught:
            Volume.new("data", store=each).mount()
        assert "Storage" in caught.value.hint
        assert key.access_key not in json.dumps([str(caught.value), caught.value.hint, caught.value.details])


@pytest.mark.parametrize("scratch", [False, True])
def test_a_mount_whose_own_credentials_are_refused_says_whose_they_are(
    seaweedfs: SeaweedFS, prefix: str, monkeypatch: pytest.MonkeyPatch, scratch: bool
) -> None:
    first, second = Key(seaweedfs), Key(seaweedfs)
    in_environment(first, monkeypatch)
    volume = Volume.new("data", store=first.store(prefix).url)
    volume.files.write("old", b"old")
    version = volume.commit()
    path = version.mount(scratch=True) if scratch else volume.mount()
    (path / "new").write_bytes(b"kept")
    first.take_away()
    in_environment(second, monkeypatch)
    cowfs = str(Path(sys.executable).with_name("cowfs"))
    refused = subprocess.run(
        [cowfs, "commit", str(path), *(["--name", "new"] if scratch else [])],
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
    )
    assert refused.returncode == AccessDeniedError.exit_code
    assert "the credentials that it was started with" in refused.stderr
    assert ("Nothing is lost" in refused.stderr) is not scratch
    assert (f"cowfs mount data {path}" in refused.stderr) is not scratch
    if scratch:
        version.unmount()
    else:
        volume.unmount()
        volume.mount()
        assert volume.commit().files.read("new") == b"kept"
        volume.unmount()


def test_the_status_of_a_mount_says_that_its_own_credentials_are_refused(
    seaweedfs: SeaweedFS, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Key(seaweedfs), Key(seaweedfs)
    in_environment(first, monkeypatch)
    volume = Volume.new("data", store=first.store(prefix).url)
    for name in ("one", "two"):
        volume.files.write(name, os.urandom(20 << 20))
    version = volume.finalize()
    path = version.mount()
    assert path.joinpath("one").read_bytes()
    assert version.status().details.credentials_problem is None  # type: ignore[union-attr]
    first.take_away()
    in_environment(second, monkeypatch)
    with pytest.raises(PermissionError):
        path.joinpath("two").read_bytes()
    cowfs = str(Path(sys.executable).with_name("cowfs"))
    said = subprocess.run([cowfs, "status"], capture_output=True, text=True, timeout=WATCHDOG_S)
    assert "the store is not reached" in said.stderr + said.stdout
    assert "mount it again" in said.stderr + said.stdout
    version.unmount()


def test_a_key_that_may_only_read_is_told_how_to_read(seaweedfs: SeaweedFS, prefix: str) -> None:
    volume = Volume.new("data", store=Key(seaweedfs).store(prefix))
    volume.files.write("old", b"old")
    volume.finalize()
    reader = Key(seaweedfs, "Read", "List").store(prefix)
    with pytest.raises(AccessDeniedError) as caught:
        Volume.open("data", store=reader).mount()
    assert "cowfs mount data PATH --read-only" in caught.value.hint
    version = Volume.version("data", store=reader)
    assert (version.mount() / "old").exists()
    version.unmount()


def in_environment(key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key.secret_key)


def problem_of(volume: RWVolume) -> str | None:
    found = volume.status()
    assert isinstance(found, MountSummary)
    assert found.details is not None
    return found.details.credentials_problem


def until(condition: Callable[[], bool]) -> None:
    end = threading.Event()
    for _ in range(WATCHDOG_S * 10):
        if condition():
            return
        end.wait(0.1)
    raise AssertionError("it does not come")
