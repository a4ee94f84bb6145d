"""Runs the workloads in a directory and on the local disk, in turn.

    for each round, for each group of workloads, for each of the two:
        a fresh directory · the group's workloads · the directory removed, the disk synced

Both see the same load of the machine: they take turns within a round, and the order alternates
between rounds. Worker processes do all the work in the two directories, so a file system that hangs
does not hang the run. A directory where a workload fails is left out of that group from then on.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from cowfs.base import clock, config
from cowfs.bench import hardware, material, table
from cowfs.bench.crew import Crew, WorkloadFailed
from cowfs.bench.material import Material
from cowfs.bench.results import Results
from cowfs.bench.sizes import FULL, QUICK, Sizes
from cowfs.bench.trial import Trial
from cowfs.bench.workloads import large, small_files, sqlite
from cowfs.errors import InvalidInputError, NotFoundError, from_local_disk

WORKLOADS: dict[str, Callable[[Trial], None]] = {
    "files": small_files.run,
    "files4": small_files.run_4,
    "large": large.run,
    "sqlite": sqlite.run,
}
DIRECTORY, LOCAL = "directory", "local"

Say = Callable[[str], None]


def run(
    directory: str | os.PathLike[str],
    *,
    local: str | os.PathLike[str] | None = None,
    quick: bool = False,
    rounds: int = 3,
    groups: Sequence[str] = (),
    say: Say = lambda text: None,
) -> Results:
    """Blocks, for minutes. Works in new directories, which are removed afterwards, even if an
    interrupt ends the run.

    local: a directory on the local disk; None: the system's directory for temporary files. quick: a
    few megabytes only. groups: only these workloads, by name. say: receives progress.
    """
    places = {DIRECTORY: _check_directory(directory), LOCAL: _check_directory(local or tempfile.gettempdir())}
    wanted = choose(groups, WORKLOADS, "group")
    sizes = QUICK if quick else FULL
    kinds = {name: hardware.file_system(place) for name, place in places.items()}
    settings = {"rounds": rounds, "quick": quick, "file_systems": kinds, **asdict(sizes)}
    titles = {DIRECTORY: str(places[DIRECTORY]), LOCAL: "local disk"}
    results = Results(hardware.facts(), settings, table.ALL, titles)
    scratch = _new_directory(places[LOCAL])
    with Crew() as crew, _finally(lambda: shutil.rmtree(scratch, ignore_errors=True)):
        say("making the input of the workloads")
        scratch.mkdir(0o700)
        turns = _Turns(results, sizes, material.make(scratch / "material", sizes), crew, say)
        for number in range(rounds):
            for group in wanted:
                for name in (DIRECTORY, LOCAL) if number % 2 else (LOCAL, DIRECTORY):
                    turns.take(number, group, name, places[name])
    return results


def choose(names: Sequence[str], known: Collection[str], what: str) -> list[str]:
    """The requested names, in the order of the known ones; all of them if none is requested."""
    if wrong := set(names) - set(known):
        raise InvalidInputError(f"no {what} {', '.join(sorted(wrong))}", hint=f"There are {', '.join(known)}.")
    return [name for name in known if not names or name in names]


def _check_directory(directory: str | os.PathLike[str]) -> Path:
    path = Path(directory).expanduser().resolve()
    if not path.is_dir():
        raise NotFoundError(f"{path} is not a directory", hint="Name one with room for a gigabyte.")
    if (refusal := config.find_write_refusal(path)) is not None:
        raise from_local_disk(refusal, f"{path} cannot be measured", elsewhere="choose another directory.")
    return path


def _new_directory(place: Path) -> Path:
    return place / f"cowfs-bench-{clock.random_bytes(6).hex()}"


@contextmanager
def _finally(remove: Callable[[], None]) -> Iterator[None]:
    """Removes what the block has made; tries again if an interrupt comes in between."""
    try:
        yield
    finally:
        try:
            remove()
        except BaseException:
            remove()
            raise


class _Turns:
    def __init__(self, results: Results, sizes: Sizes, made: Material, crew: Crew, say: Say) -> None:
        self._results, self._sizes, self._material, self._crew, self._say = results, sizes, made, crew, say
        self._failed: set[tuple[str, str]] = set()

    def take(self, number: int, group: str, name: str, place: Path) -> None:
        if (name, group) in self._failed:
            return
        root = _new_directory(place)
        found: list[str] = []

        def save(row: str, column: str, value: float) -> None:
            self._results.add(row, column, value)
            found.append(f"{row} {value:.3g}")

        try:
            with _finally(lambda: self._remove(root)):
                self._crew.run("make_directories", [{"directories": [str(root)]}])
                WORKLOADS[group](Trial(name, root, self._sizes, self._material, self._crew, save))
        except (WorkloadFailed, OSError) as error:
            self._failed.add((name, group))
            self._results.failures.append({"system": name, "group": group, "message": str(error)})
            self._say(f"FAILED: {name}, {group}: {error}")
        self._say(f"round {number + 1}, {group}, {name}: {', '.join(found)}")

    def _remove(self, root: Path) -> None:
        try:
            self._crew.run("remove", [{"path": str(root)}])
        except WorkloadFailed as error:
            self._say(f"{root} is left behind: {error}")
