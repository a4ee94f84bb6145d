"""What a mount does about uncommitted work that an earlier one has left: it says so, drops it or
refuses, in a mount by FUSE and in a copy."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cowfs.api.mounts import left_work
from cowfs.blocking import Declared, DeclaredVolume, MountOptions, ROVolume, RWVolume, Store, Volume
from cowfs.control.options import Mode
from cowfs.errors import ConflictError, CowfsError, InvalidInputError, InvalidStateError, LeaseHeldError
from cowfs.format.record import Holder
from cowfs.machine import registry, sharing
from cowfs.machine.working_copy import WorkingCopy
from cowfs.store import open_store
from cowfs.store.refs import leases
from tests.api.conftest import place
from tests.cli.conftest import Run, run

__all__ = ["place", "run"]

pytestmark = [pytest.mark.mount, pytest.mark.usefixtures("place")]

MODES: tuple[Mode, ...] = ("fuse", "copy")


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    found: Mode = request.param
    return found


def committed(mode: Mode) -> RWVolume:
    """Mounted, with one version."""
    work = Volume.open("work", create=True)
    path = work.mount(mode=mode)
    (path / "kept").write_text("committed")
    work.commit()
    return work


def leave(mode: Mode) -> None:
    """Uncommitted work, which is not mounted: two files of 300 bytes together."""
    work = committed(mode)
    (work.path / "kept").write_bytes(b"a" * 100)
    (work.path / "new").write_bytes(b"b" * 200)
    work.unmount()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_mount_says_what_it_brings_back(mode: Mode, caplog: pytest.LogCaptureFixture) -> None:
    leave(mode)
    work = Volume.open("work")
    path = work.mount(mode=mode)
    assert (path / "new").read_bytes() == b"b" * 200
    (said,) = warnings(caplog)
    version = Volume.version("work").id[:12]
    assert said.startswith("uncommitted work of volume work is back: 2 files, 300 B, since version " + version), said
    assert re.search(r" of \d{4}-\d\d-\d\d \d\d:\d\d[+-]\d\d:\d\d\. `cowfs unmount work --discard", said)
    work.discard()


def test_nothing_is_said_where_nothing_comes_back(mode: Mode, caplog: pytest.LogCaptureFixture) -> None:
    committed(mode).unmount()
    work = Volume.open("work")
    work.mount(mode=mode)
    assert warnings(caplog) == []
    (work.path / "new").write_text("own")
    assert work.mount(mode=mode) == work.path, "its own work, in its own mount"
    assert warnings(caplog) == []
    work.discard()


def test_names_alone_are_work(caplog: pytest.LogCaptureFixture) -> None:
    work = committed("fuse")
    (work.path / "kept").rename(work.path / "renamed")
    work.unmount()
    Volume.open("work").mount(mode="fuse")
    assert "is back: names or attributes, since version" in warnings(caplog)[0]
    Volume.open("work").discard()


def test_work_before_the_first_version(mode: Mode, caplog: pytest.LogCaptureFixture) -> None:
    work = Volume.open("work", create=True)
    (work.mount(mode=mode) / "new").write_bytes(b"1")
    work.unmount()
    work.mount(mode=mode)
    assert "is back: 1 file, 1 B, in no version yet." in warnings(caplog)[0]
    work.discard()


def test_left_work_is_dropped(mode: Mode, caplog: pytest.LogCaptureFixture) -> None:
    leave(mode)
    work = Volume.open("work")
    path = work.mount(mode=mode, uncommitted="discard")
    assert {each.name: each.read_text() for each in path.iterdir()} == {"kept": "committed"}
    assert not work.has_changes()
    work.unmount()
    if mode == "copy":  # no file that is in no version is deleted
        said = warnings(caplog)[-1]
        (moved,) = path.parent.glob("work.dropped-*")
        assert f"lie in {moved}." in said
        assert (moved / "new").read_bytes() == b"b" * 200
    assert warnings(caplog)[0].startswith("dropping uncommitted work of volume work: 2 files, 300 B, since version ")
    assert len(warnings(caplog)) == 1 + (mode == "copy")


def test_left_work_is_refused_and_stays(mode: Mode) -> None:
    leave(mode)
    work = Volume.open("work")
    with pytest.raises(InvalidStateError, match="has uncommitted work on this machine: 2 files, 300 B") as refused:
        work.mount(mode=mode, uncommitted="refuse")
    assert (refused.value.details["files"], refused.value.details["bytes"]) == (2, 300)
    assert registry.list_mounts() == []
    path = work.mount(mode=mode)
    assert (path / "new").read_bytes() == b"b" * 200
    work.discard()
    work.mount(path.with_name("again"), mode=mode, uncommitted="refuse")
    work.unmount()


def test_nothing_is_dropped_for_a_mount_that_another_writer_refuses(mode: Mode, place: Path) -> None:
    leave(mode)
    work = Volume.open("work").resolve()
    ada = Holder("ada", "far-away", "/mnt/data", 4711, 99, "another machine", "another boot")
    lease = leases.acquire(open_store(str(work.store_url)), "work", ada)
    with pytest.raises(LeaseHeldError, match="ada"):
        Volume.open("work").mount(mode=mode, uncommitted="discard")
    lease.release()
    assert (work.mount(mode=mode) / "new").read_bytes() == b"b" * 200
    work.discard()


def test_nothing_is_dropped_for_a_mount_that_fails(mode: Mode, place: Path) -> None:
    leave(mode)
    (place / "full").mkdir()
    (place / "full/x").touch()
    with pytest.raises(CowfsError, match=r"is not empty|is in the copy at"):
        Volume.open("work").mount(place / "full", mode=mode, uncommitted="discard")
    work = Volume.open("work")
    assert (work.mount(mode=mode) / "new").read_bytes() == b"b" * 200
    work.discard()


def test_what_this_process_has_written_without_a_mount_is_not_dropped(mode: Mode) -> None:
    work = committed("fuse")
    work.unmount()
    work.files.write("/new", b"acknowledged")
    for each in (Volume.open("work"), work):
        with pytest.raises(ConflictError, match="has written to volume 'work' without a mount"):
            each.mount(mode=mode, uncommitted="discard")
    assert work.commit().files.read("/new") == b"acknowledged"


def test_dropped_work_leaves_nothing_on_the_disk() -> None:
    leave("fuse")
    work = Volume.open("work", uncommitted="discard")
    work.mount()
    (entry,) = registry.list_mounts()
    assert entry.working_copy is not None
    assert WorkingCopy(Path(entry.working_copy)).has_records is False
    kept = [path for path in Path(entry.working_copy, "staging").rglob("*") if b"bbbb" in path.read_bytes()]
    assert kept == []
    work.discard()


def test_work_that_cannot_be_seen_is_not_dropped(place: Path) -> None:
    work = Volume.open("work", create=True)
    (work.mount(meta_dir=place / "meta") / "new").write_text("precious")
    work.unmount()
    with pytest.raises(InvalidStateError, match="has uncommitted work"):
        Volume.open("work").mount(meta_dir=place / "other", uncommitted="refuse")
    (place / "meta").rename(place / "unplugged")
    with pytest.raises(InvalidStateError, match="which is not there now"):
        Volume.open("work").mount(uncommitted="refuse")
    again = Volume.open("work", uncommitted="discard")
    again.mount(meta_dir=place / "meta")
    again.unmount()
    shutil.rmtree(place / "meta")
    (place / "unplugged").rename(place / "meta")
    assert (Volume.open("work").mount(meta_dir=place / "meta") / "new").read_text() == "precious"
    Volume.open("work").discard()


def test_a_choice_holds_for_files_without_a_mount(mode: Mode) -> None:
    leave(mode)
    with pytest.raises(InvalidStateError, match="has uncommitted work in"):
        Volume.open("work", uncommitted="refuse").files.read("kept")
    work = Volume.open("work", uncommitted="discard")
    assert work.files.read("kept") == b"committed"
    work.files.write("mine", b"mine")
    assert {each.name for each in work.mount(mode="fuse").iterdir()} == {"kept", "mine"}, "its own writes are kept"
    work.discard()


def killed(mode: Mode) -> None:
    """A program mounts, writes and is killed: its mount stays."""
    program = f"""
import os, signal
from cowfs.blocking import Volume
work = Volume.open("work", create=True)
path = work.mount(mode={mode!r})
(path / "kept").write_text("committed")
work.commit()
(path / "new").write_bytes(b"b" * 200)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert len(registry.list_mounts()) == 1


def test_the_mount_of_a_killed_program_brings_its_work_back(mode: Mode, caplog: pytest.LogCaptureFixture) -> None:
    killed(mode)
    work = Volume.open("work")
    assert (work.mount() / "new").read_bytes() == b"b" * 200
    assert "is back: 1 file, 200 B, since version" in warnings(caplog)[0]
    work.discard()


def test_the_work_of_a_killed_program_is_dropped(mode: Mode) -> None:
    killed(mode)
    with Volume.open("work", uncommitted="discard") as work:
        assert [each.name for each in work.path.iterdir()] == ["kept"]


def test_the_work_of_a_killed_program_is_refused(mode: Mode) -> None:
    killed(mode)
    work = Volume.open("work", uncommitted="refuse")
    with pytest.raises(InvalidStateError, match="1 file, 200 B"):
        work.mount()
    (entry,) = registry.list_mounts()
    assert not sharing.holds(entry), "the process that was refused does not use it"
    assert (Path(entry.mount_path) / "new").exists()
    Volume.open("work").discard()


def test_work_that_others_are_at_is_never_dropped(mode: Mode, caplog: pytest.LogCaptureFixture) -> None:
    others = committed(mode)
    (others.path / "new").write_text("theirs")
    with pytest.raises(ConflictError, match="in use there, with uncommitted work: 1 file, 6 B"):
        Volume.open("work").mount(uncommitted="discard")
    with pytest.raises(InvalidStateError, match="1 file, 6 B"):
        Volume.open("work").mount(uncommitted="refuse")
    assert (others.path / "new").read_text() == "theirs"
    assert Volume.open("work").mount() == others.path
    assert warnings(caplog) == []
    others.commit()
    assert Volume.open("work").mount(uncommitted="discard") == others.path, "there is nothing to drop"
    others.unmount()


def test_a_choice_at_opening_is_for_the_first_mount(mode: Mode) -> None:
    """What the object has written itself is kept by its unmount."""
    leave(mode)
    work = Volume.open("work", uncommitted="discard")
    (work.mount(mode=mode) / "mine").write_text("mine")
    work.unmount()
    assert (work.mount(mode=mode) / "mine").read_text() == "mine"
    work.discard()


def test_a_call_can_choose_otherwise(mode: Mode) -> None:
    leave(mode)
    work = Volume.open("work", uncommitted="discard")
    assert (work.mount(mode=mode, uncommitted="resume") / "new").exists()
    work.discard()


GUIDE = Path(__file__).parents[2] / "docs/guide/training.md"
WRITES_MODEL = '(run.path / "model.bin").write_bytes(bytes(100_000))'


def test_a_checkpoint_that_was_written_in_part_is_not_resumed(place: Path) -> None:
    """The recipe of the guide, killed between its two writes. The next run begins where the last
    commit ended, and its files belong together."""
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    (recipe,) = [block for block in blocks if "run-17" in block]
    killing = f"""{WRITES_MODEL}
        (run.path / "model.bin").write_text(f"of step {{step}}")
        if step == 1 and first == 0: __import__("os").kill(__import__("os").getpid(), 9)"""
    assert recipe.count(WRITES_MODEL) == 1
    program = place / "recipe.py"
    program.write_text(recipe.replace(WRITES_MODEL, killing))
    done = subprocess.run([sys.executable, program], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    run = Volume.open("run-17")
    files = run.files
    assert [files.read(name) for name in ("step.txt", "model.bin")] == [b"0", b"of step 1"], "a state of no commit"
    subprocess.run([sys.executable, program], check=True, timeout=120)
    messages = [version.message for version in Volume.version("run-17").history()]
    assert messages == ["step 3", "step 2", "step 1", "step 0"], "step 1 was done again"
    for version in Volume.version("run-17").history():
        step = version.labels["step"]
        assert [version.files.read(name) for name in ("step.txt", "model.bin")] == [
            step.encode(),
            f"of step {step}".encode(),
        ]


def test_the_command_says_it_and_chooses(place: Path, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    leave("fuse")
    path = str(place / "mnt/work")
    assert run("mount", "work", path).code == 0
    assert "uncommitted work of volume work is back: 2 files, 300 B" in warnings(caplog)[0]
    run("unmount", path)
    caplog.clear()
    refused = run("mount", "work", path, "--uncommitted", "refuse")
    assert (refused.code, "--uncommitted resume" in refused.err) == (14, True), refused.err
    assert run("mount", "work", path, "--uncommitted", "discard").code == 0
    assert warnings(caplog)[0].startswith("dropping uncommitted work of volume work: 2 files, 300 B")
    assert os.listdir(path) == ["kept"]
    run("unmount", path)
    refused = run("mount", "work", path, "--read-only", "--uncommitted", "discard")
    assert (refused.code, "no uncommitted work to find" in refused.err) == (2, True)


def test_a_declaration_chooses(place: Path) -> None:
    leave("fuse")

    def declare(**said: Any) -> Declared:
        path, file = place / "mnt/work", place / "volumes.cowfs.yml"
        file.write_text(json.dumps({"volumes": [{"name": "work", "path": str(path), "read_only": False, **said}]}))
        return Declared.load(file)

    with pytest.raises(InvalidStateError, match="2 files, 300 B"):
        declare(uncommitted="refuse").up()
    declare(uncommitted="discard").up()
    assert os.listdir(place / "mnt/work") == ["kept"]
    declare().down()
    with pytest.raises(InvalidInputError, match="a read-only mount has no uncommitted work"):
        DeclaredVolume(name="work", path="~/work", uncommitted="refuse")


def test_a_wrong_choice_is_named() -> None:
    with pytest.raises(InvalidInputError, match="uncommitted"):
        Volume.open("work", uncommitted="drop")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="uncommitted"):
        Store().volume("work").mount(uncommitted="drop")  # type: ignore[arg-type]


def test_a_read_only_mount_has_no_choice() -> None:
    committed("fuse").unmount()
    version: ROVolume = Volume.version("work")
    with pytest.raises(InvalidInputError, match="no uncommitted work"):
        version.mount(options=MountOptions(uncommitted="discard"))


def test_a_mount_that_does_not_say_how_much_is_mounted_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leave("fuse")

    def fail(*_: object) -> None:
        raise CowfsError("busy")

    monkeypatch.setattr(left_work, "mount_of", fail)
    Volume.open("work").mount()
    assert warnings(caplog) == []
    Volume.open("work").discard()
