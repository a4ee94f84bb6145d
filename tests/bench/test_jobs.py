"""What comes back wrong is noticed: each job against a directory in which something was changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cowfs.bench import jobs
from cowfs.bench.crew import Crew, WorkloadFailed
from cowfs.bench.jobs import PAGE_BYTES, Wrong, small_content

pytestmark = pytest.mark.quick


def finish(name: str, **arguments: Any) -> Any:
    job = getattr(jobs, name)(**arguments)
    next(job)
    next(job)
    with pytest.raises(StopIteration) as end:
        next(job)
    return end.value.value


def goes_wrong(name: str, **arguments: Any) -> None:
    job = getattr(jobs, name)(**arguments)
    with pytest.raises(Wrong):
        list(job)


@pytest.fixture
def small(tmp_path: Path) -> dict[str, Any]:
    share = {"directories": [str(tmp_path / "d0"), str(tmp_path / "d1")]}
    finish("make_directories", **share)
    assert finish("create", **share, count=5, size=64) == 10
    return {**share, "count": 5, "size": 64}


def test_small_files_pass_when_nothing_is_wrong(small: dict[str, Any]) -> None:
    for name in ("stat", "traverse"):
        assert finish(name, **small) == 10
    for name in ("read", "rename", "unlink"):
        assert finish(name, **small, checks=True) == 10


def test_contents_differ_from_file_to_file() -> None:
    assert len({small_content(number, 1024) for number in range(100)}) == 100


def swap(directory: Path) -> None:
    (directory / "f1").write_bytes(small_content(2, 64))


def cut(directory: Path) -> None:
    (directory / "f1").write_bytes(b"")


def add(directory: Path) -> None:
    (directory / "f9").touch()


@pytest.mark.parametrize(
    ("change", "job", "checks"),
    [(swap, "read", True), (cut, "stat", None), (cut, "read", False), (add, "traverse", None), (add, "rename", True)],
)
def test_wrong_small_files_are_noticed(
    small: dict[str, Any], change: Callable[[Path], None], job: str, checks: bool | None
) -> None:
    change(Path(small["directories"][1]))
    goes_wrong(job, **small, **({} if checks is None else {"checks": checks}))


def test_a_wrong_byte_in_a_large_file_is_noticed(tmp_path: Path) -> None:
    material = tmp_path / "material"
    material.write_bytes(os.urandom(3 * PAGE_BYTES))
    given = {"path": str(tmp_path / "large"), "material": str(material)}
    finish("write", **given, syncs=True)
    assert finish("sequential_read", **given, checks=True) == 3 * PAGE_BYTES
    assert finish("random_read", **given, checks=True, count=20) == 20
    with (tmp_path / "large").open("r+b") as file:
        file.seek(PAGE_BYTES + 7)
        was = file.read(1)
        file.seek(PAGE_BYTES + 7)
        file.write(bytes([was[0] ^ 1]))
    goes_wrong("sequential_read", **given, checks=True)
    goes_wrong("random_read", **given, checks=True, count=50)
    assert finish("random_write", **given, checks=True, count=5) >= 1


def test_workers_measure_together_and_report_errors(tmp_path: Path) -> None:
    shares = [{"directories": [str(tmp_path / f"d{number}")]} for number in range(3)]
    with Crew() as crew:
        assert crew.run("make_directories", shares).results == [1, 1, 1]
        with pytest.raises(WorkloadFailed, match="FileExistsError"):
            crew.run("make_directories", shares)
        assert crew.run("sqlite", [{"path": str(tmp_path / "db"), "count": 3}]).results == [3]


def test_a_worker_that_hangs_is_given_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")  # opening it to read waits for a writer that never comes
    with Crew() as crew:
        with pytest.raises(WorkloadFailed, match="in time"):
            crew.run("sequential_read", [{"path": str(tmp_path / "fifo"), "material": os.devnull}], timeout_s=1.0)
        assert crew.run("make_directories", [{"directories": [str(tmp_path / "d")]}]).results == [1]
