"""A mount shows the version's owner as somebody else (`map_owner`), and keeps what that one does
under the version's owner: in both servers, for real other users."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest

from cowfs.base.ids import VersionId
from cowfs.session.opening import enter_session
from cowfs.version.names import volumes
from tests.mount.daemons import Mount, Place
from tests.mount.test_ordinary_user import run_as_nobody
from tests.system.machine import as_nobody

pytestmark = [
    pytest.mark.mount,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make files of several users"),
]

NOBODY = 65_534
MAPPED = f"{NOBODY}:{NOBODY}"
SERVERS = pytest.mark.parametrize("fast_lane", [True, False], ids=["lane", "pyfuse3"])
KEPT = {
    "": (0, 0),
    "private": (0, 0),
    "directory": (0, 0),
    "directory/inside": (0, 0),
    "group": (0, 0),
    "link": (0, 0),
    "of-another": (7, 8),
    "of-nobody": (NOBODY, NOBODY),
    "sticky": (7, 8),
    "sticky/of-nobody": (NOBODY, NOBODY),
    "sticky/of-root": (0, 0),
    "sticky/of-another": (9, 9),
}
"""Owners in the version that tests begin with."""


def fill(root: Path) -> None:
    (root / "private").write_text("secret")
    (root / "private").chmod(0o600)
    (root / "directory").mkdir(0o755)
    (root / "directory" / "inside").write_text("x")
    (root / "group").mkdir()
    (root / "group").chmod(0o2775)
    (root / "link").symlink_to("private")
    (root / "of-another").write_text("x")
    (root / "of-nobody").write_text("x")
    (root / "of-nobody").chmod(0o600)
    (root / "sticky").mkdir()
    (root / "sticky").chmod(0o1777)
    for name in ("of-nobody", "of-root", "of-another"):
        (root / "sticky" / name).write_text("x")
    for name, (user, group) in KEPT.items():
        os.chown(root / name, user, group, follow_symlinks=False)


@pytest.fixture
def version(place: Place) -> str:
    """Of volume `v`, which is not mounted any more."""
    writer = place.mount("v", map_owner="none")
    fill(writer.path)
    return str(writer.unmount(commit=True)["version"])


def fork(place: Place, version: str, name: str = "fork") -> None:
    origin = volumes.locator(place.store, "v", VersionId.from_hex(version))
    volumes.fork_volume(place.store, name, origin, owner="test")


@pytest.fixture
def mapped(place: Place, version: str, fast_lane: bool) -> Mount:
    """A fork of it, with nobody in the place of root."""
    fork(place, version)
    return place.mount("fork", map_owner=MAPPED, fast_lane=fast_lane)


def owners(root: Path) -> dict[str, tuple[int, int]]:
    """By paths; of what is found by listing, and of what is asked for by name."""
    listed = {"": owner(os.stat(root))}
    for directory, _, _ in os.walk(root):
        with os.scandir(directory) as entries:
            for entry in entries:
                listed[os.path.relpath(entry.path, root)] = owner(entry.stat(follow_symlinks=False))
    assert listed == {name: owner(os.lstat(root / name)) for name in listed}
    return listed


def owner(found: os.stat_result) -> tuple[int, int]:
    return found.st_uid, found.st_gid


def kept(place: Place, mount: Mount) -> dict[str, tuple[int, int]]:
    """Owners as the version has them that holds what the mount has now."""
    reader = place.mount("fork", version=mount.commit(), map_owner="none")
    found = owners(reader.path)
    reader.unmount()
    return found


@SERVERS
def test_the_owners_files_are_shown_as_the_mapped_owners_and_others_as_they_are(mapped: Mount) -> None:
    shown = {name: (NOBODY, NOBODY) if kept == (0, 0) else kept for name, kept in KEPT.items()}
    assert owners(mapped.path) == shown


@SERVERS
def test_the_mapped_owner_may_do_what_an_owner_may(place: Place, mapped: Mount) -> None:
    root = mapped.path

    def work() -> None:
        (root / "private").write_text("changed")
        (root / "of-nobody").write_text("changed")
        (root / "directory" / "inside").unlink()
        (root / "directory" / "new").write_text("x")
        (root / "made").mkdir()
        (root / "made" / "link").symlink_to("nowhere")
        os.mkfifo(root / "made" / "fifo")
        os.link(root / "private", root / "made" / "second")
        os.rename(root / "link", root / "made" / "moved")
        (root / "private").chmod(0o640)
        os.chown(root / "private", NOBODY, NOBODY)
        os.utime(root / "private", (1, 2))

    assert as_nobody(work) == 0
    assert as_nobody(lambda: (root / "of-another").write_text("x")) == errno.EACCES
    assert as_nobody(lambda: (root / "of-another").chmod(0o777)) == errno.EPERM
    assert as_nobody(lambda: os.chown(root / "private", 7, -1)) == errno.EPERM
    made = ("directory/new", "made", "made/link", "made/fifo", "made/second", "made/moved")
    assert {name: owners(root)[name] for name in made} == dict.fromkeys(made, (NOBODY, NOBODY))

    expected = {**KEPT, **dict.fromkeys(made, (0, 0))}
    del expected["directory/inside"], expected["link"]
    assert kept(place, mapped) == expected, "one owner, whoever has worked on it"


@SERVERS
def test_owners_that_root_gives_are_kept_and_the_two_are_one(place: Place, mapped: Mount) -> None:
    root = mapped.path
    (root / "of-root").write_text("x")
    for name, (user, group) in {"a": (NOBODY, NOBODY), "b": (0, 0), "c": (3, 4), "d": (NOBODY, 4)}.items():
        (root / name).write_text("x")
        os.chown(root / name, user, group)
    one = (NOBODY, NOBODY)
    found = owners(root)
    assert [found[name] for name in ("of-root", "a", "b", "c", "d")] == [one, one, one, (3, 4), (NOBODY, 4)]
    stored = kept(place, mapped)
    assert [stored[name] for name in ("of-root", "a", "b", "c", "d")] == [(0, 0), (0, 0), (0, 0), (3, 4), (0, 4)]


@SERVERS
def test_set_group_id_and_sticky_directories_go_by_owners_as_they_are_shown(place: Place, mapped: Mount) -> None:
    root = mapped.path
    assert as_nobody((root / "sticky" / "of-nobody").unlink) == 0, "kept as theirs"
    assert as_nobody((root / "sticky" / "of-root").unlink) == 0, "shown as theirs"
    assert as_nobody((root / "sticky" / "of-another").unlink) == errno.EPERM

    def make() -> None:
        (root / "group" / "by-member").write_text("x")
        (root / "group" / "by-member").chmod(0o2755)

    assert as_nobody(make) == 0
    assert stat.S_IMODE((root / "group" / "by-member").stat().st_mode) == 0o2755
    assert owner((root / "group" / "by-member").stat()) == (NOBODY, NOBODY)
    assert kept(place, mapped)["group/by-member"] == (0, 0)


@SERVERS
def test_nobody_becomes_root_by_what_is_kept(mapped: Mount) -> None:
    """Whose files are kept as root's has no more rights than before: set-id bits are cleared."""
    file = mapped.path / "private"
    for change in (lambda: os.truncate(file, 3), lambda: file.write_text("x"), lambda: os.chown(file, -1, NOBODY)):
        file.chmod(0o6777)
        assert as_nobody(change) == 0
        assert stat.S_IMODE(file.stat().st_mode) == 0o777


@SERVERS
def test_acls_name_owners_as_attributes_do(place: Place, mapped: Mount) -> None:
    def named(root: Path) -> list[str]:
        said = subprocess.run(["getfacl", "-cnp", root / "of-another"], capture_output=True, text=True, check=True)
        return [line for line in said.stdout.split() if line.startswith(("user:", "group:")) and "::" not in line]

    subprocess.run(["setfacl", "-m", f"u:{NOBODY}:rw,u:9:r,g:{NOBODY}:r", mapped.path / "of-another"], check=True)
    assert named(mapped.path) == ["user:9:r--", f"user:{NOBODY}:rw-", f"group:{NOBODY}:r--"]
    assert as_nobody(lambda: (mapped.path / "of-another").write_text("x")) == 0
    reader = place.mount("fork", version=mapped.commit(), map_owner="none")
    assert named(reader.path) == ["user:0:rw-", "user:9:r--", "group:0:r--"]


@SERVERS
def test_nothing_is_changed_by_being_shown(place: Place, version: str, mapped: Mount) -> None:
    owners(mapped.path)
    done = mapped.call("commit")
    assert (done["version"], done["is_new"]) == (version, False)


@SERVERS
def test_a_version_can_be_read_by_the_mapped_owner(place: Place, version: str, fast_lane: bool) -> None:
    reader = place.mount("v", version=version, map_owner=MAPPED, fast_lane=fast_lane)
    plain = place.mount("v", version=version, fast_lane=fast_lane)
    read = [lambda path=mount.path: (path / "private").read_text() for mount in (reader, plain)]
    assert [as_nobody(each) for each in read] == [0, errno.EACCES], "root's mounts map nobody unless told so"
    assert owners(plain.path) == KEPT


@SERVERS
def test_a_second_mount_goes_on_with_the_same_owner(place: Place, mapped: Mount, fast_lane: bool) -> None:
    assert as_nobody(lambda: (mapped.path / "one").write_text("x")) == 0
    mapped.unmount()
    again = place.mount("fork", map_owner=MAPPED, fast_lane=fast_lane)
    assert as_nobody(lambda: (again.path / "two").write_text("x")) == 0
    stored = kept(place, again)
    assert (stored["one"], stored["two"]) == ((0, 0), (0, 0))


def test_what_is_written_without_a_mount_is_kept_as_the_versions_owners(place: Place) -> None:
    writer = place.mount("v", map_owner="none")
    os.chown(writer.path, 7, 8)
    writer.unmount(commit=True)
    with enter_session(place.spec("v", map_owner="0:0")) as session:
        session.files.write("file", b"x")
        session.files.mkdir("directory")
        assert [(attr.uid, attr.gid) for _, attr in session.files.list()] == [(7, 8)] * 2


@SERVERS
@pytest.mark.parametrize("mode", ["rw", "ro"])
def test_an_ordinary_user_has_a_fork_of_another_users_version(
    place: Place, version: str, fast_lane: bool, mode: str
) -> None:
    """Through the setuid fusermount3, nothing said: the default."""
    fork(place, version)
    for directory, _, files in os.walk(place.root / "store"):
        os.chown(directory, NOBODY, NOBODY)
        for name in files:
            os.chown(os.path.join(directory, name), NOBODY, NOBODY)
    run_as_nobody(
        f"""
with Place({place.store_url!r}) as shared:
    mount = shared.mount("fork", version={version if mode == "ro" else None!r}, fast_lane={fast_lane})
    assert {{(mount.path / name).lstat().st_uid for name in ("", "private", "link")}} == {{os.geteuid()}}
    assert (mount.path / "of-another").stat().st_uid == 7
    if {mode == "rw"}:
        (mount.path / "private").write_text("changed")
        (mount.path / "new").write_text("mine")
        version = mount.commit()
        mount.unmount()
        reader = shared.mount("fork", version=version, map_owner="none")
        assert [(reader.path / name).stat().st_uid for name in ("", "private", "new")] == [0, 0, 0]
"""
    )


@SERVERS
def test_whoever_owns_the_version_is_not_mapped(place: Place, fast_lane: bool) -> None:
    """Also with another group than the version's."""
    writer = place.mount("v", map_owner="none")
    os.chown(writer.path, 0, 5)
    (writer.path / "file").write_text("x")
    os.chown(writer.path / "file", 0, 5)
    writer.unmount()
    again = place.mount("v", map_owner="caller", fast_lane=fast_lane)
    assert owner((again.path / "file").stat()) == (0, 5)
