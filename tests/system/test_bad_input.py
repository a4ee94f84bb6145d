"""Bad input and broken surroundings: an error of its kind with a hint, its exit code, no traceback,
nothing mounted."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from blake3 import blake3

from cowfs.errors import BY_KIND
from tests.system.machine import COMMAND, Machine, mounted_below

pytestmark = [pytest.mark.mount]


def refused(machine: Machine, kind: str, *arguments: str | Path, environment: dict[str, str] | None = None) -> str:
    """The command fails with this kind and its exit code, says what to do, and leaves nothing
    mounted; its message."""
    before = list(mounted_below(machine.root))
    done = machine.cowfs(*arguments, "--json", check=False, timeout_s=120, environment=environment)
    return check_refusal(done, kind, before, machine)


def check_refusal(done: subprocess.CompletedProcess[str], kind: str, before: list[str], machine: Machine) -> str:
    said = f"{done.args}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == BY_KIND[kind].exit_code, said
    assert "Traceback" not in done.stdout + done.stderr, said
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == kind, said
    assert error["message"], said
    assert error["hint"], said
    assert list(mounted_below(machine.root)) == before, said
    return str(error["message"])


@pytest.fixture
def published(machine: Machine) -> str:
    """The locator of a version on the machine's store; nothing is mounted."""
    machine.create("published")
    mounted = machine.mount("published")
    (mounted / "file").write_bytes(os.urandom(1_500_000))
    (mounted / "small").write_text("small")
    locator = machine.commit(mounted)
    machine.unmount(mounted)
    return locator


def damaged(locator: str) -> dict[str, str]:
    head, _, version = locator.rpartition("@")
    other = "0" if version[5] != "0" else "1"
    return {
        "cut short": locator[:-1],
        "too long": locator + "a",
        "upper case": f"{head}@{version.upper()}",
        "not hex": f"{head}@{'z' * 64}",
        "no volume": locator.replace("/-/published@", "/-/@"),
        "no separator": locator.replace("/-/", "/"),
        "unknown scheme": locator.replace("cowfs+file:", "cowfs+nothing:"),
        "one digit changed": f"{head}@{version[:5]}{other}{version[6:]}",
        "another version": f"{head}@{'0' * 64}",
    }


MISSING = ("one digit changed", "another version")


def test_unknown_volume_and_store(machine: Machine, published: str) -> None:
    assert "nothing-here" in refused(machine, "not_found", "mount", "nothing-here", machine.mount_point("m"))
    refused(machine, "not_found", "log", "nothing-here")
    refused(machine, "not_found", "mount", "published@no-tag", machine.mount_point("m"))
    refused(machine, "not_found", "ls", "--store", (machine.root / "no-store").as_uri())
    refused(machine, "conflict", "create", "published")
    refused(machine, "conflict", "fork", published, "published")


@pytest.mark.parametrize("name", ["", ".", "a/b", "a b", "x" * 300, "-rf", "é\n"])
def test_names_that_cannot_be(machine: Machine, name: str) -> None:
    refused(machine, "invalid_input", "create", "--", name)


def test_damaged_locators(machine: Machine, published: str) -> None:
    for what, locator in damaged(published).items():
        kind = "not_found" if what in MISSING else "invalid_input"
        refused(machine, kind, "mount", locator, machine.mount_point("m"))


def test_locator_of_a_deleted_version(machine: Machine, published: str, elsewhere: Machine) -> None:
    version = published.rpartition("@")[2]
    (store_path(machine) / "versions" / version[:2] / version).unlink()
    assert version[:8] in refused(elsewhere, "not_found", "mount", published, elsewhere.mount_point("m"))


def test_mount_points_that_will_not_do(machine: Machine, published: str) -> None:
    missing = machine.root / "mnt" / "no" / "such"
    assert str(missing.parent) in refused(machine, "not_found", "mount", published, missing)

    full = machine.mount_point("full")
    (full / "precious").write_text("mine")
    refused(machine, "conflict", "mount", published, full)
    assert (full / "precious").read_text() == "mine"

    file = machine.root / "mnt" / "file"
    file.write_text("not a directory")
    refused(machine, "invalid_input", "mount", published, file)

    machine.mount(published, at="busy")
    refused(machine, "conflict", "mount", published, machine.mount_point("busy"), "--scratch")
    machine.cowfs("fork", published, "other")
    refused(machine, "conflict", "mount", "other", machine.mount_point("busy"))
    assert (machine.mount_point("busy") / "small").read_text() == "small"


def test_second_writer_is_told_who_where_and_since_when(machine: Machine, published: str, elsewhere: Machine) -> None:
    mounted = machine.mount("published")
    for other in (machine, elsewhere):
        done = other.cowfs("mount", "published", other.mount_point("second"), "--json", check=False)
        check_refusal(done, "lease_held", list(mounted_below(other.root)), other)
        details = json.loads(done.stdout)["error"]["details"]
        assert details["where"] == str(mounted)
        assert {"who", "since"} <= details.keys()
    assert elsewhere.mounts() == []


def test_read_only_mount_refuses_every_change(machine: Machine, published: str) -> None:
    mounted = machine.mount(published, at="ro")
    attempts: list[Callable[[], object]] = [
        lambda: (mounted / "new").write_text("x"),
        lambda: (mounted / "small").open("a"),
        (mounted / "small").unlink,
        lambda: (mounted / "small").rename(mounted / "other"),
        (mounted / "dir").mkdir,
        lambda: (mounted / "small").chmod(0o600),
        lambda: os.utime(mounted / "small"),
        lambda: os.setxattr(mounted / "small", "user.a", b"b"),
        lambda: os.link(mounted / "small", mounted / "link"),
        lambda: os.truncate(mounted / "small", 0),
    ]
    for attempt in attempts:
        with pytest.raises(OSError, match="Read-only file system") as raised:
            attempt()
        assert raised.value.errno == errno.EROFS
    refused(machine, "read_only", "commit", mounted)


@pytest.fixture
def read_only_directory(machine: Machine) -> Iterator[Callable[[Path], None]]:
    """Makes a directory read-only even for root, by a bind mount over itself."""
    bound: list[Path] = []

    def bind(path: Path) -> None:
        subprocess.run(["mount", "--bind", path, path], check=True)
        bound.append(path)
        subprocess.run(["mount", "-o", "remount,ro,bind", path], check=True)

    yield bind
    for path in bound:
        subprocess.run(["umount", "-l", path], check=True)


def test_read_only_store(machine: Machine, published: str, read_only_directory: Callable[[Path], None]) -> None:
    read_only_directory(store_path(machine))
    refused(machine, "read_only", "create", "new")
    refused(machine, "read_only", "fork", published, "new")
    refused(machine, "read_only", "mount", "published", machine.mount_point("rw"))
    mounted = machine.mount(published, at="ro")
    assert (mounted / "small").read_text() == "small", "reading needs nothing but reading"
    machine.unmount(mounted)


def test_unwritable_cache_directory(
    machine: Machine, published: str, read_only_directory: Callable[[Path], None]
) -> None:
    place = machine.root / "local" / "cache"
    place.mkdir()
    read_only_directory(place)
    environment = {"COWFS_CACHE_DIR": str(place)}
    for source in (published, "published"):
        refused(machine, "read_only", "mount", source, machine.mount_point("m"), environment=environment)


@pytest.mark.parametrize("how", [("--mode", "fuse"), ("--scratch",)])
def test_no_fuse_device(machine: Machine, published: str, how: tuple[str, ...]) -> None:
    before = list(mounted_below(machine.root))
    without_device = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9"
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-c",
            f'{without_device} && exec "$@"',
            "sh",
            COMMAND,
            "mount",
            *how,
            published,
            machine.mount_point("m"),
            "--json",
        ],
        env=machine.environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "/dev/fuse" in check_refusal(done, "mount_failed", before, machine)
    hint = json.loads(done.stdout)["error"]["hint"]
    assert "modprobe" in hint
    assert ("--mode copy" in hint and "`cowfs download" in hint) == ("--scratch" in how)


def test_unknown_format_number(machine: Machine, published: str, elsewhere: Machine) -> None:
    path = store_path(machine) / "cowfs.json"
    record = json.loads(path.read_bytes())
    record["format"] = 99
    del record["check"]
    record["check"] = blake3(json.dumps(record, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    path.write_text(json.dumps(record, sort_keys=True, separators=(",", ":")))
    assert "99" in refused(elsewhere, "unsupported_format", "mount", published, elsewhere.mount_point("m"))
    refused(elsewhere, "unsupported_format", "create", "new")


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["flipped bit", "cut short", "emptied", "deleted"])
def test_damaged_packs_never_give_wrong_bytes(
    machine: Machine, published: str, machines: Callable[..., Machine], damage: str
) -> None:
    """Whatever pack is hit and wherever: the mount is refused, or the read fails with EIO, or the
    bytes are right."""
    reference = machine.mount(published, at="reference")
    expected = {path.name: path.read_bytes() for path in reference.iterdir()}
    machine.unmount(reference)
    noticed = 0
    packs = sorted(path for path in (store_path(machine) / "packs").rglob("*") if path.is_file())
    assert len(packs) >= 2, "a data pack and an index pack"
    for pack in packs:
        whole = pack.read_bytes()
        for position in (0, len(whole) // 3, len(whole) // 2, len(whole) - 1):
            apply_damage(pack, whole, damage, position)
            reader = machines(machine.store)
            point = reader.mount_point("m")
            done = reader.cowfs("mount", published, point, "--json", check=False)
            if done.returncode:
                kind = json.loads(done.stdout)["error"]["kind"]
                assert kind in ("corrupt", "not_found"), done.stdout + done.stderr
                check_refusal(done, kind, [], reader)
                noticed += 1
            else:
                noticed += read_damaged(point, expected)
            reader.close()
            pack.write_bytes(whole)
    assert noticed >= len(packs), "damage went unnoticed"


def apply_damage(pack: Path, whole: bytes, damage: str, position: int) -> None:
    if damage == "flipped bit":
        pack.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
    elif damage == "cut short":
        pack.write_bytes(whole[:position])
    elif damage == "emptied":
        pack.write_bytes(b"")
    else:
        pack.unlink()


def read_damaged(point: Path, expected: dict[str, bytes]) -> int:
    """1 if a read failed, 0 if everything was right; anything else is the failure this is about."""
    failed = 0
    try:
        names = sorted(os.listdir(point))
    except OSError as error:
        assert error.errno == errno.EIO
        return 1
    assert names == sorted(expected)
    for name, data in expected.items():
        try:
            assert (point / name).read_bytes() == data, "wrong bytes"
        except OSError as error:
            assert error.errno == errno.EIO
            failed = 1
    return failed


def store_path(machine: Machine) -> Path:
    return Path(machine.store.removeprefix("file://"))


@pytest.mark.s3
def test_wrong_credentials_and_unreachable_server(machine: Machine, s3: dict[str, str]) -> None:
    store = s3["COWFS_STORE"]
    machine.cowfs("create", "there", "--store", store, environment=s3)
    wrong = {**s3, "AWS_SECRET_ACCESS_KEY": "wrong"}
    refused(machine, "access_denied", "create", "new", "--store", store, environment=wrong)
    point = machine.mount_point("m")
    refused(machine, "access_denied", "mount", "there", point, "--store", store, environment=wrong)
    refused(machine, "not_found", "ls", "--store", "s3://no-such-bucket" + store.partition("cowfs")[2], environment=s3)
    nobody = "s3://bucket;endpoint=http%3A%2F%2F127.0.0.1%3A1;region=us-east-1/prefix"
    refused(machine, "unavailable", "ls", "--store", nobody, environment=s3)
