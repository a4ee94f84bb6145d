"""Work that is in no version, on the command line: what it is (`diff`); and what is taken
back into it (`restore`, `rollback`)."""

from __future__ import annotations

import pytest

from cowfs.blocking import ROVolume, Store, Volume
from cowfs.errors import NotFoundError
from tests.api.conftest import place
from tests.cli.conftest import Run, run
from tests.cli.test_comparing import versions
from tests.cli.test_json import check

__all__ = ["place", "run", "versions"]


def test_work_that_is_in_no_version(run: Run, versions: tuple[ROVolume, ROVolume]) -> None:
    first, last = versions
    vol = Volume.open("data")
    assert list(vol.diff()) == []
    assert list(vol.diff(path="new")) == []
    assert run("diff", "data:nowhere").code == 3
    vol.files.write("new", b"another line\n")
    vol.files.write("b/more", b"x")
    kinds = [("added", "/b/more"), ("changed", "/new")]
    assert [(each.kind, each.path) for each in vol.diff()] == kinds
    assert "->" not in repr(vol.diff()), "nothing is renamed"
    assert [each.path for each in vol.diff(path="b")] == ["/b/more"]
    assert run("diff", "data", "--name-status").out == "A\t/b/more\nM\t/new\n", "of this process's session"
    vol.unmount()
    assert [(each.kind, each.path) for each in vol.diff()] == kinds, "of work that is kept"
    assert vol.has_changes(), "nothing was published"
    assert run("diff", "data:b", "--name-status").out == "A\t/b/more\n"
    assert "+another line" in run("diff", "data", "-p").out
    told = run("diff", "data", "--json").json
    check("diff", told)
    assert (told["old_locator"], told["new_locator"]) == (last.locator, None)
    since_first = run("diff", f"data@{first.id[:12]}", "data", "--work", "--name-status").out.splitlines()
    assert {"R\t/a/\t/b/", "A\t/b/more", "A\t/new", "M\t/bytes"} <= set(since_first)
    assert [(each.kind, each.path) for each in vol.diff(first)] == [
        (each.kind, each.path) for each in first.diff(vol.commit())
    ]
    assert vol.files.read("new") == b"another line\n"
    assert run("diff", "data", "--exit-code").code == 0
    assert run("diff", f"data@{first.id[:12]}").code == 2
    vol.finalize()
    fresh = Volume.new("fresh")
    assert list(fresh.diff()) == []
    with pytest.raises(NotFoundError):
        fresh.diff(path="nowhere")
    fresh.files.write("f", b"x")
    assert [(each.kind, each.path) for each in fresh.diff()] == [("added", "/f")]
    assert run("diff", "fresh", "--json").json["old_locator"] is None
    fresh.discard()


def test_a_mounted_volume_takes_back_into_its_working_copy(run: Run, versions: tuple[ROVolume, ROVolume]) -> None:
    first, last = versions
    with Volume.open("data") as vol:
        old = f"data@{first.id[:12]}"
        (vol / "mine").write_text("not committed")
        shown = run("restore", f"{old}:gone", "--dry-run").out
        assert shown == "A  /gone\nA  /gone/deep\n"
        assert not (vol / "gone").exists()
        done = run("restore", f"{old}:gone", "--json").json
        check("restore", done)
        assert (done["locator"], done["is_new"], done["mount_path"]) == (last.locator, False, str(vol.path))
        assert (vol / "gone/deep").read_bytes() == b"x" * 3000
        assert run("restore", f"{old}:gone", "-m", "why").code == 2
        said = run("rollback", f"data@{first.id[:12]}")
        assert said.out == f"{vol.path}\n"
        assert "cowfs commit data" in said.err
        assert not (vol / "mine").exists()
        assert Volume.version("data") == last, "nothing was published"
        assert list(first.diff(vol.commit(), times=True)) == []
        assert Store().restore("data", last, to="copy").mount_path == str(vol.path)
        assert (vol / "copy/new").read_text() == "line\n"
        with pytest.raises(NotFoundError):
            Store().restore("data", last, to="no/where")
