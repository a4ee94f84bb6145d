"""cowfs ls, cat and cp: files of volumes and versions without a mount, and on a machine that cannot
mount."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cowfs.api import sources
from cowfs.api.access import looking
from cowfs.api.sources import Place
from cowfs.blocking import ROVolume, RWVolume, Store, Volume
from cowfs.errors import CowfsError, InvalidInputError
from cowfs.machine.working_copy import list_working_copies
from cowfs.transfer import copying
from cowfs.transfer.upload.upload_reading import SMALL_BYTES
from tests.api.conftest import place
from tests.cli.test_live import Command, run

__all__ = ["place", "run"]

pytestmark = pytest.mark.mount

HEX = "0" * 64
LOCATOR = f"cowfs+file:///dir/-/data@{HEX}"
MODEL = os.urandom(3_000_000)


@pytest.fixture
def tree(place: Path) -> Path:
    root = place / "tree"
    (root / "sub").mkdir(parents=True)
    (root / "model").write_bytes(MODEL)
    (root / "sub" / "note").write_text("a note")
    os.symlink("../model", root / "sub" / "current")
    os.chmod(root / "sub" / "note", 0o640)
    os.utime(root / "sub" / "note", ns=(0, 1_500_000_000_123_456_789))
    return root


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "source", "path", "is_directory"),
    [
        ("data", "data", b"", True),
        ("data:", "data", b"", True),
        ("data:/", "data", b"", True),
        ("data:a/b", "data", b"a/b", False),
        ("data:/a//./b/", "data", b"a/b", True),
        ("data@tag:a:b", "data@tag", b"a:b", False),
        (LOCATOR, LOCATOR, b"", True),
        (LOCATOR + "\n", LOCATOR, b"", True),
        (LOCATOR + "/a%20b/c", LOCATOR, b"a b/c", False),
        (LOCATOR + "/a/", LOCATOR, b"a", True),
        (LOCATOR + ":a%20b/c", LOCATOR, b"a%20b/c", False),
        (LOCATOR + ":", LOCATOR, b"", True),
        ("data:a/.", "data", b"a", True),
        ("data:\udcff", "data", b"\xff", False),
    ],
)
def test_places(text: str, source: str, path: bytes, *, is_directory: bool) -> None:
    assert sources.place(text) == Place(source, path, is_directory)


@pytest.mark.quick
def test_local_paths_are_told_from_places() -> None:
    for text in ("data:", "data:x", "d@t:/x", LOCATOR, LOCATOR + "/x"):
        assert sources.is_place(text), text
    for text in ("data", "./a:b", "/a:b", "a/b:c", ":a", "", "."):
        assert not sources.is_place(text), text
    for text in ("s3://bucket/x", "data:../x", "data:a/../b"):
        with pytest.raises(InvalidInputError) as caught:
            sources.place(text)
        assert caught.value.hint


def test_files_go_in_and_come_out_without_a_mount(run: Command, place: Path, tree: Path) -> None:
    run("create", "data")
    done = run("cp", tree, "data:in", "-m", "copied", "--json").json
    assert (done["files"], done["symlinks"], done["bytes"], done["is_new"]) == (2, 1, 3_000_006, True)
    version = Volume.version("data")
    assert (version.locator, version.message) == (done["locator"], "copied")
    assert list_working_copies() == [], "nothing is left on this machine"

    listed = run("ls", "data:in/sub", "--json").json
    assert (listed["path"], listed["locator"]) == ("in/sub", version.locator)
    assert [(each["name"], each["type"], each["target"]) for each in listed["entries"]] == [
        ("current", "symlink", "../model"),
        ("note", "file", None),
    ]
    assert (listed["entries"][1]["bytes"], listed["entries"][1]["mtime_ns"]) == (6, "1500000000123456789")
    shown = run("ls", f"{version.locator}/in/sub").out.splitlines()
    assert shown[1].endswith("current -> ../model")
    assert shown[2].startswith("-rw-r-----   6 B")
    assert [line.split()[-1] for line in run("ls", "data").out.splitlines()[1:]] == ["in/"]
    assert run("ls", "data@{0}:in/sub/note").out.count("\n") == 2

    assert run("cat", "data:in/sub/note", f"{version.locator}/in/sub/note").out == "a notea note"
    followed = subprocess.run(
        [sys.executable, "-m", "cowfs.cli", "cat", "data:in/sub/current"], capture_output=True, check=True
    )
    assert followed.stdout == MODEL, "a link inside of the volume is followed"

    assert run("cp", f"data@{version.id[:8]}:in", place / "out").out == ""
    assert (place / "out" / "model").read_bytes() == MODEL
    note = (place / "out" / "sub" / "note").stat()
    assert (note.st_mode & 0o7777, note.st_mtime_ns) == (0o640, 1_500_000_000_123_456_789)
    assert os.readlink(place / "out" / "sub" / "current") == "../model"


def test_where_a_file_goes(run: Command, place: Path, tree: Path) -> None:
    run("create", "data")
    file = tree / "sub" / "note"
    for target in ("data:", "data:new/dir/", "data:named", "data:new/dir/deep/er"):
        assert run("cp", file, target).code == 0
    for there in ("note", "new/dir/note", "named", "new/dir/deep/er"):
        assert run("cat", f"data:{there}").out == "a note"
    for target, there in ((f"{place}/a/b/", "a/b/note"), (f"{place}/named", "named"), (f"{place}", "note")):
        assert run("cp", "data:note", target).code == 0
        assert (place / there).read_text() == "a note"
    run("create", "other")
    assert run("cp", "data:new", "other:copied").code == 0, "from a volume to another"
    assert run("cat", "other:copied/dir/deep/er").out == "a note"
    (place / "x:y").write_text("local")
    assert run("cp", "./x:y", "data:").code == 0
    assert run("cat", "data:x:y").out == "local"


def test_what_is_refused_changes_nothing(run: Command, place: Path, tree: Path) -> None:
    run("create", "data")
    run("cp", tree, "data:")
    before = Volume.version("data")
    cases = {
        ("cp", str(tree), str(place / "x")): 2,
        ("cp", str(place / "missing"), "data:"): 3,
        ("cp", str(tree), "nowhere:"): 3,
        ("cp", "data:missing", str(place / "x")): 3,
        ("cp", str(tree), f"data@{before.id[:8]}:"): 7,
        ("cp", str(tree), before.locator): 7,
        ("cp", str(tree), "data:model"): 2,
        ("cp", str(tree / "model"), "data:sub/note/below"): 2,
        ("cat", "data"): 2,
        ("cat", "data:sub"): 2,
        ("cat", "data:missing"): 3,
        ("ls", "data:missing"): 3,
        ("ls", "missing"): 3,
    }
    for arguments, code in cases.items():
        said = run(*arguments)
        assert said.code == code, (arguments, said)
        assert "hint: " in said.err, arguments
        if code == 3:
            assert "missing" in said.err or "'nowhere'" in said.err, "it says what is not there"
    bare = run("cp", "data", place / "x")
    assert (bare.code, "`cowfs cp data: " in bare.err) == (2, True)
    assert Volume.version("data") == before
    assert list_working_copies() == []
    assert not (place / "x").exists()


def test_a_volume_that_is_in_use_here_is_read_at_its_last_version_and_written_by_its_mount(
    run: Command, place: Path, tree: Path
) -> None:
    run("create", "data")
    run("cp", tree, "data:")
    path = place / "mnt" / "data"
    run("mount", "data", path)
    (path / "sub" / "note").write_text("uncommitted")
    assert run("cat", "data:sub/note").out == "a note"
    before = run("log", "data", "--json").json
    copied = run("cp", tree / "model", "data:new/more")
    assert (copied.code, copied.out, f"cowfs commit {path}" in copied.err) == (0, "", True)
    assert (path / "new" / "more").read_bytes() == (tree / "model").read_bytes()
    assert run("cp", "data:sub", "data:", "--json").json["mount_path"] == str(path), "of the last version"
    assert (path / "note").read_text() == "a note"
    refused = run("cp", tree / "model", "data:", "-m", "no version")
    assert (refused.code, "Leave the message out" in refused.err) == (2, True)
    refused = run("cp", tree / "model", "data:", "--label", "a=b", "--author", "ada")
    assert (refused.code, "Leave the labels and the author out" in refused.err) == (2, True)
    refused = run("cp", path, "data:within")
    assert (refused.code, "the mount of data" in refused.err) == (2, True)
    assert run("import", tree / "sub", "data", "--json").json["mount_path"] == str(path)
    for arguments in (("--link", tree / "sub", "data"), ("--absorb", "data")):
        refused = run("import", *arguments)
        assert (refused.code, f"data' is mounted at {path}" in refused.err) == (4, True)
    assert run("log", "data", "--json").json == before, "nothing is published"
    run("unmount", path)
    refused = run("cp", tree / "model", "data:more")
    assert (refused.code, "uncommitted work" in refused.err) == (14, True)
    run("mount", "data", path)
    assert (path / "sub" / "note").read_text() == "uncommitted", "it is kept"
    run("unmount", path, "--commit")
    assert run("cp", tree / "model", "data:more").code == 0
    assert run("cat", "data:sub/note").out == "uncommitted"


def test_a_copy_that_fails_leaves_the_volume_as_it_was(
    place: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume: RWVolume = Volume.new("data")
    before: ROVolume = volume.commit("empty")
    (tree / "closed").write_text("x")

    def fail(self: object, path: bytes) -> None:
        raise PermissionError(13, "Permission denied", os.fsdecode(path))

    monkeypatch.setattr("cowfs.transfer.local_files.LocalFiles.open_file", fail)
    with pytest.raises(CowfsError, match="Permission denied"):
        Store().copy(str(tree), "data:")
    assert Volume.version("data") == before
    assert list_working_copies() == []


def test_a_special_file_is_never_replaced(run: Command, place: Path, tree: Path) -> None:
    run("create", "data")
    run("cp", tree, "data:")
    out = place / "out"
    (out / "sub").mkdir(parents=True)
    os.mkfifo(out / "model")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(out / "sub" / "note"))
    os.mkfifo(out / "sub" / "current")
    os.symlink("model", out / "link")
    special = [out / "model", out / "sub" / "note", out / "sub" / "current"]
    if os.geteuid() == 0:
        os.mknod(out / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        special.append(out / "null")
    before = [path.lstat() for path in special]
    targets = [*special, out / "link"]
    cases = [("data:model", target) for target in targets] + [
        ("data:model", out),
        ("data:", out),
        ("data:sub", special[0]),
    ]
    cases += [("data:sub", out / "sub")]
    for source, target in cases:
        said = run("cp", source, target)
        assert said.code == 2, (source, target, said)
        assert "cowfs cat" in said.err or source == "data:sub", said
    assert [path.lstat() for path in special] == before
    assert not [name for name in os.listdir(out) if name.startswith(".cowfs-")]
    said = run("cp", "data:model", "-")
    assert (said.code, "cowfs cat" in said.err) == (2, True)


def test_what_has_no_name_is_no_target_either(run: Command, place: Path, tree: Path) -> None:
    """As /dev/stdout before a pipe, which this command writes to."""
    run("create", "data")
    run("cp", tree, "data:")
    os.symlink("/proc/self/fd/1", place / "stdout")
    said = run("cp", "data:model", place / "stdout")
    assert (said.code, "cowfs cat" in said.err) == (2, True)
    assert (place / "stdout").is_symlink()


def test_a_link_that_is_named_as_the_target_is_followed(run: Command, place: Path, tree: Path) -> None:
    run("create", "data")
    run("cp", tree, "data:")
    out = place / "out"
    (out / "real").mkdir(parents=True)
    (out / "real" / "file").write_text("old")
    os.symlink("real/file", out / "named")
    os.symlink("real/new", out / "dangling")
    os.symlink("loop", out / "loop")
    os.symlink("real/file", out / "note")
    for link, there in (("named", "file"), ("dangling", "new")):
        assert run("cp", "data:sub/note", out / link).code == 0
        assert (out / link).is_symlink()
        assert (out / "real" / there).read_text() == "a note"
    assert run("cp", "data:sub/note", out / "loop").code == 2
    assert (out / "loop").is_symlink()
    (out / "real" / "file").write_text("old")
    assert run("cp", "data:sub", out).code == 0
    assert not (out / "note").is_symlink(), "one that is met is replaced"
    assert (out / "real" / "file").read_text() == "old"


def test_a_copy_does_not_read_what_it_writes(run: Command, place: Path, tree: Path) -> None:
    run("create", "data")
    assert run("cp", tree / "sub", "data:sub").code == 0
    before = Volume.version("data")
    link = place / "tree" / "link"
    os.symlink(place, link)
    for source in (place, place / "c", place / "store", next((place / "store").iterdir()), f"{link}"):
        said = run("cp", source, "data:in")
        assert (said.code, "which the copy itself writes to" in said.err) == (2, True), (source, said)
    link.unlink()
    assert Volume.version("data") == before
    assert list_working_copies() == []
    for target in (place / "store" / "new", place / "c" / "cache", place / "c" / "state" / "working" / "x"):
        said = run("cp", "data:sub", target)
        assert (said.code, "for cowfs alone" in said.err) == (2, True), (target, said)
    assert [path for path in (place / "store").rglob("*") if path.name == "note"] == []
    path = place / "mnt" / "data"
    run("mount", "data", path)
    assert run("cp", "data:sub", path / "again").code == 0, "into a mount of it"
    run("create", "other")
    assert run("cp", path / "again", "other:").code == 0, "and out of one"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_target_is_named_and_nothing_else_is_said(run: Command, place: Path) -> None:
    run("create", "data")
    (place / "b").mkdir()
    for number in range(40):
        (place / "b" / f"{number}").write_bytes(MODEL[:200_000])
    run("cp", place / "b", "data:b")
    full = place / "full"
    full.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    script = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" -m cowfs.cli cp data:b "$1/out"'
    command = ["unshare", "--mount", "bash", "-c", script, "sh", str(full), sys.executable]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    message, hint = done.stderr.splitlines()
    assert done.returncode == 13
    assert message.startswith(f"cowfs: {full}/out/")
    assert hint == "hint: Free space there, or copy to another disk."


@pytest.mark.parametrize(
    "arguments", [("cat", "data:model"), ("cat", "data:sub/note"), ("ls", "data:"), ("ls", "data:", "--json")]
)
def test_what_cannot_be_printed_is_an_error_about_standard_output(
    run: Command, place: Path, tree: Path, arguments: tuple[str, ...]
) -> None:
    run("create", "data")
    run("cp", tree, "data:")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    command = [sys.executable, "-m", "cowfs.cli", *arguments]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    message, hint = done.stderr.splitlines()
    assert done.returncode == 1
    assert message == "cowfs: standard output cannot be written: No space left on device"
    assert hint.startswith("hint: ")


def test_a_pipe_is_read_to_its_end_and_other_special_files_are_no_source(run: Command, place: Path) -> None:
    run("create", "data")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    (place / "model").write_bytes(MODEL)
    fifo = place / "fifo"
    os.mkfifo(fifo)
    script = """
        cowfs() { "$PYTHON" -m cowfs.cli "$@"; }
        cowfs cp <(cat model) data:substituted --json && cat model | cowfs cp /dev/stdin data:piped
        cowfs cp <(true) data:empty
        cat model > fifo & cowfs cp fifo data:fifo; wait
    """
    done = subprocess.run(
        ["bash", "-ec", script],
        env={**environment, "PYTHON": sys.executable},
        cwd=place,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])["bytes"] == len(MODEL)
    for name, content in (("substituted", MODEL), ("piped", MODEL), ("empty", b""), ("fifo", MODEL)):
        assert b"".join(looking.contents(f"data:{name}", None)) == content
    before = Volume.version("data")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place / "socket"))
    for source in (place / "socket", "/dev/zero", "-"):
        said = run("cp", source, "data:x")
        assert (said.code, "/dev/stdin" in said.err) == (2, True), said
    assert Volume.version("data") == before


def test_waiting_for_a_pipe_can_be_ended(run: Command, place: Path) -> None:
    run("create", "data")
    os.mkfifo(place / "fifo")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    command = [sys.executable, "-m", "cowfs.cli", "cp", str(place / "fifo"), "data:x"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as copy:
        with open(place / "fifo", "wb"):  # opens once the copy has it open
            copy.send_signal(signal.SIGTERM)
            _, said = copy.communicate(timeout=120)
    assert (copy.returncode, said) == (143, "cowfs: interrupted\n")
    assert list_working_copies() == []


ENDLESS = """
import os, sys
from cowfs.base import clock
from cowfs.cli.start import main
from cowfs.transfer.version_tree import VersionTree
from cowfs.transfer.source_files import SourceExtent, SourceFile

def endless_file(self, offset, target):
    if not offset:
        os.write(1, b"at work\\n")
    clock.sleep_s(0.01)
    target[:] = b"x" * len(target)

def endless(self, path):
    yield 0, b"x" * 65536
    os.write(1, b"at work\\n")
    while True:
        clock.sleep_s(0.01)
        yield 65536, b"x"

if "--local" in sys.argv:
    sys.argv.remove("--local")
    SourceFile.extents = lambda self, size: [SourceExtent(0, 1 << 50)]
    SourceFile.read_into = endless_file
else:
    VersionTree.pieces = endless
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("is_into_volume", [True, False])
def test_a_copy_that_is_ended_leaves_nothing_half_done(
    run: Command, place: Path, number: signal.Signals, *, is_into_volume: bool
) -> None:
    run("create", "data")
    many = place / "many"
    many.mkdir()
    for each in range(20):
        (many / f"{each}").write_text("x" * (SMALL_BYTES + 1))
    assert run("cp", many, "data:").code == 0
    before, out = Volume.version("data"), place / "out"
    arguments = ["--local", "cp", str(many), "data:in"] if is_into_volume else ["cp", "data:", str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    command = [sys.executable, "-c", ENDLESS, *arguments]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as copy:
        assert copy.stdout is not None
        for _ in range(1 if is_into_volume else copying.THREADS):  # of large files one is stored at a time
            assert copy.stdout.readline() == "at work\n"
        copy.send_signal(number)
        try:
            _, said = copy.communicate(timeout=120)
        finally:
            copy.kill()
    assert (copy.returncode, "cowfs: interrupted" in said) == (128 + number, True), said
    assert "Traceback" not in said
    assert "ignored" not in said
    assert Volume.version("data") == before
    assert list_working_copies() == []
    assert is_into_volume or os.listdir(out) == []


def test_of_two_copies_at_once_the_second_is_told_to_wait(run: Command, place: Path, tree: Path) -> None:
    run("create", "data")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    command = [sys.executable, "-c", ENDLESS, "--local", "cp", str(tree), "data:"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as copy:
        assert copy.stdout is not None
        assert copy.stdout.readline() == "at work\n"
        on_this_machine = run("cp", tree, "data:")
        with pytest.MonkeyPatch.context() as elsewhere:
            elsewhere.setenv("COWFS_STATE_DIR", str(place / "elsewhere"))
            with_other_state = run("cp", tree, "data:")
        copy.terminate()
        copy.communicate(timeout=120)
    for said in (on_this_machine, with_other_state):
        assert said.code == 5, said
        assert "A copy, a commit or a program" in said.err
        assert "Wait until it ends" in said.err
        assert "End process" not in said.err
        assert "Unmount" not in said.err


def test_a_killed_copy_leaves_nothing_of_itself_in_the_volume(run: Command, place: Path, tree: Path) -> None:
    run("create", "data")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    command = [sys.executable, "-c", ENDLESS, "--local", "cp", str(tree), "data:"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as copy:
        assert copy.stdout is not None
        assert copy.stdout.readline() == "at work\n"
        copy.kill()
    assert not Volume.open("data").has_changes()
    assert run("ls", "data").code == 3, "there is no version"
    assert run("cp", tree / "model", "data:").code == 0
    assert [line.split()[-1] for line in run("ls", "data").out.splitlines()[1:]] == ["model"]
    assert list_working_copies() == []


def test_a_directory_is_uploaded(run: Command, place: Path, tree: Path) -> None:
    first = run("upload", tree, "-m", "first", "--json").json
    assert (first["files"], first["unchanged"], first["is_new"]) == (2, 0, True)
    assert Volume.version("tree").message == "first"
    again = run("upload", tree)
    assert (again.out, again.err) == (f"{first['locator']}\n", "Nothing has changed\n")
    (tree / "sub" / "note").unlink()
    (tree / "more").write_text("more")
    assert run("upload", tree, "tree", "--exclude", "model", "--delete").err.startswith("Uploaded 1 of 1 file,")
    assert [line.split()[-1] for line in run("ls", "tree").out.splitlines()[1:]] == ["model", "more", "sub/"]
    assert run("upload", tree, "other:in/it").code == 0
    assert run("cat", "other:in/it/more").out == "more"
    for arguments, code in {
        (str(tree), "tree@x"): 7,
        (first["locator"],): 3,
        (str(tree / "model"),): 2,
        (str(place / "none"),): 3,
    }.items():
        refused = run("upload", *arguments)
        assert (refused.code, "hint:" in refused.err) == (code, True), refused


def test_a_version_is_downloaded(run: Command, place: Path, tree: Path) -> None:
    run("upload", tree, "data")
    first = run("download", "data")
    assert first.err.startswith("Downloaded 2 of 2 files")
    assert (place / "volumes" / "data" / "model").read_bytes() == MODEL
    assert run("download", "data").err.startswith("Downloaded 0 of 2 files")
    (place / "volumes" / "data" / "sub" / "note").write_text("mine")
    refused = run("download", "data")
    assert (refused.code, "--overwrite newer" in refused.err) == (4, True)
    done = run("download", first.out.strip() + "/sub", "out", "--overwrite", "always", "--json").json
    assert (done["files"], (place / "out" / "note").read_text()) == (1, "a note")
    assert run("download", "nowhere").code == 3


HIDDEN = """
set -e
mkdir "$1/dev"
mount -t tmpfs none "$1/dev"
for name in null zero full random urandom tty; do touch "$1/dev/$name"; mount --bind "/dev/$name" "$1/dev/$name"; done
mkdir "$1/dev/shm"; mount -t tmpfs none "$1/dev/shm"
mount --rbind "$1/dev" /dev
test ! -e /dev/fuse
PYTHON="$2"
cowfs() { "$PYTHON" -m cowfs.cli "$@"; }
cowfs create data
cowfs cp "$3" data:in
cowfs ls data:in --json
cowfs cat data:in/sub/note
cowfs cp data:in "$1/out"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="hides /dev/fuse by a mount")
def test_all_of_it_works_where_nothing_can_be_mounted(place: Path, tree: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    command = ["unshare", "--mount", "bash", "-c", HIDDEN, "sh", str(place), sys.executable, str(tree)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    name, _, listed, note = done.stdout.splitlines()
    assert (name, note) == ("data", "a note")
    assert [each["name"] for each in json.loads(listed)["entries"]] == ["model", "sub"]
    assert (place / "out" / "model").read_bytes() == MODEL


def test_paths_longer_than_the_kernel_takes_are_told_in_short(run: Command, place: Path) -> None:
    names = [f"{number:02}" + "n" * 200 for number in range(25)]
    (place / "deep").mkdir()
    deep = os.open(place / "deep", os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=deep)
        above, deep = deep, os.open(name, os.O_RDONLY, dir_fd=deep)
        os.close(above)
    os.close(deep)
    volume = Volume.new("data")
    volume.files.mkdir("/".join(names), parents=True)
    volume.commit()
    volume.unmount()
    for arguments in (
        ("upload", place / "deep", "data"),
        ("download", "data", place / "there"),
        ("cp", "data:/", place / "copy"),
    ):
        said = run(*arguments)
        message, hint = said.err.splitlines()
        assert (said.code, message.endswith(": File name too long"), "4,095 bytes" in hint) == (2, True, True)
        assert len(message) < 300


@pytest.mark.mount
@pytest.mark.parametrize("is_mounted", [False, True])
def test_a_file_goes_into_the_directory_that_a_link_leads_to(
    run: Command, place: Path, tree: Path, is_mounted: bool
) -> None:
    """As with GNU cp; a link to a file, or to nothing, is replaced."""
    source = place / "source"
    (source / "d").mkdir(parents=True)
    (source / "f").write_text("old")
    for name, target in (("link", "d"), ("twice", "link"), ("file", "f"), ("lost", "nothing"), ("out", "/tmp")):
        (source / name).symlink_to(target)
    assert run("upload", source, "data").code == 0
    if is_mounted:
        assert run("mount", "data", place / "mnt").code == 0
    file = tree / "sub" / "note"
    for target in ("data:link", "data:twice/", "data:twice/.", "data:new/.", "data:file", "data:lost", "data:out"):
        assert run("cp", file, target).code == 0, target
    if is_mounted:
        assert run("unmount", place / "mnt", "--commit").code == 0
    files = Volume.version("data").files
    assert {each.path: each.type for each in files.ls(recursive=True)} == {
        "/d": "directory",
        "/d/note": "file",
        "/f": "file",
        "/new": "directory",
        "/new/note": "file",
        "/link": "symlink",
        "/twice": "symlink",
        "/file": "file",
        "/lost": "file",
        "/out": "file",
    }
    assert files.read("/f") == b"old"
    assert run("cp", "data:f", f"{place}/made/.").code == 0
    assert (place / "made" / "f").read_text() == "old"


@pytest.mark.mount
def test_a_pipe_in_a_version_is_named_and_no_fault_of_a_file_system(run: Command, place: Path) -> None:
    with Volume.new("data") as volume:
        os.mkfifo(volume.path / "pipe")
        for command in (("cat", "data:pipe"), ("cp", "data:pipe", "x")):
            volume.commit()
            said = run(*command)
            assert said.code == 2
            assert "pipe" in said.err.split("hint:")[0]
            assert "FAT" not in said.err


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/Adak", "UTC"])
@pytest.mark.parametrize(
    "moment", ["9999-12-31T23:59:59", "0001-01-01", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00+14:00"]
)
def test_a_time_at_the_ends_of_the_calendar_is_told(
    run: Command, tree: Path, monkeypatch: pytest.MonkeyPatch, zone: str, moment: str
) -> None:
    run("upload", tree, "data")
    monkeypatch.setenv("TZ", zone)
    assert run("cat", f"data@{{{moment}}}:sub/note").code in (0, 2, 3)
