"""Files of other programs that come back wrong are noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import jobs
from benchmarks.jobs import tree_digest
from cowfs.bench.crew import Crew
from cowfs.bench.jobs import Wrong

pytestmark = pytest.mark.quick


def test_digests_see_names_modes_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    before = tree_digest(str(tmp_path))
    (tmp_path / "a").chmod(0o600)
    other_mode = tree_digest(str(tmp_path))
    (tmp_path / "a").write_text("2")
    assert len({str(before), str(other_mode), str(tree_digest(str(tmp_path)))}) == 3


def test_a_changed_installed_file_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "x-1.dist-info").mkdir()
    (tmp_path / "module.py").write_bytes(b"")
    line = "module.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n../bin/x,sha256=none,0\n"
    (tmp_path / "x-1.dist-info" / "RECORD").write_text(line)
    list(jobs.verify_record(str(tmp_path)))
    (tmp_path / "module.py").write_bytes(b"changed")
    with pytest.raises(Wrong):
        list(jobs.verify_record(str(tmp_path)))


def test_workers_find_jobs_of_other_modules(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    with Crew() as crew:
        assert crew.run("benchmarks.jobs:append", [{"path": str(tmp_path / "a")}]).results == [1]
        assert crew.run("benchmarks.jobs:digest", [{"path": str(tmp_path)}]).results == [tree_digest(str(tmp_path))]
    assert (tmp_path / "a").read_text() == "1+"
