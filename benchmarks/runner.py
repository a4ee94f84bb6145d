"""Runs systems through workloads, one at a time, in turn: so that a busy or slow machine is so for
all of them.

    for each round    for each group of workloads    for each system, beginning with another one in each round:
        a fresh session · the group's workloads · unmounted, removed, the disk synced

Only one system is mounted at any moment. A system that cannot start is left out; one that fails a
workload, or gives a wrong result, is out of that group from then on and fails the run at its end.
With `minutes`, the first round is whole, and each later one leaves out what took longest until the
rest fits: slow systems are measured less often, not everybody.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType

from benchmarks import material, stores
from benchmarks import scratch as scratches
from benchmarks.library import Library, make_directory
from benchmarks.results import SuiteResults
from benchmarks.rows import all_rows
from benchmarks.systems.contract import Group, LeftOut, System
from benchmarks.systems.cowfs_mounts import variants
from benchmarks.systems.do_nothing import DoNothing
from benchmarks.systems.juicefs import JuiceFS
from benchmarks.systems.local import LocalDisk
from benchmarks.systems.passthrough_hp import PassthroughHp
from benchmarks.trial import SystemTrial
from benchmarks.workloads import commits, files, large, mounts, programs
from cowfs.base import clock
from cowfs.bench import hardware
from cowfs.bench.crew import Crew, WorkloadFailed
from cowfs.bench.runner import Say, choose
from cowfs.bench.sizes import FULL, QUICK, Sizes
from cowfs.errors import CowfsError
from cowfs.format.store_url import StoreUrl

WORKLOADS: dict[Group, Callable[[SystemTrial], None]] = {
    Group.FILES: files.run,
    Group.FILES_4: files.run_4,
    Group.LARGE: large.run,
    Group.PROGRAMS: programs.run,
    Group.COMMIT: commits.run,
    Group.MOUNTS: mounts.run,
}
OVERRIDES = (
    "COWFS_FAST_LANE",
    "COWFS_RESIDENT",
    "COWFS_TRANSPORT",
    "COWFS_SPIN",
    "COWFS_PASSTHROUGH",
)
"""Variables that would make every variant the same. A run removes them from the environment."""
MOUNT_COUNTS, QUICK_MOUNT_COUNTS = (100, 10_000, 100_000), (10, 200)
"""Files in the versions whose mount is timed."""

INTERRUPTED = {"system": "", "group": "", "message": "the run was interrupted"}

Pair = tuple[str, Group]
"""A system's name and what it is to do."""


def run(
    directory: str | os.PathLike[str],
    *,
    store: str | None = None,
    quick: bool = False,
    rounds: int = 3,
    minutes: float | None = None,
    systems: Sequence[str] = (),
    groups: Sequence[str] = (),
    paths: Mapping[str, str | None] = MappingProxyType({}),
    among: Sequence[System] = (),
    sizes: Sizes | None = None,
    note: str = "",
    say: Say = lambda text: None,
) -> SuiteResults:
    """Runs the suite in a new directory below `directory`, which is removed again. Blocks, for
    minutes.

    store: where cowfs (and JuiceFS, on S3) keep contents; None: a directory beside them. systems,
    groups: only these, by name. say: receives progress. paths: of the programs juicefs,
    passthrough_hp and do_nothing, if they are not on PATH. among: systems to choose from; none: all
    that the suite knows. sizes: other than those of `quick`.
    """
    for name in OVERRIDES:
        os.environ.pop(name, None)
    directory = Path(directory).resolve(strict=True)
    sizes = sizes or (QUICK if quick else FULL)
    counts = QUICK_MOUNT_COUNTS if quick else MOUNT_COUNTS
    settings = {"rounds": rounds, "quick": quick, "store": _kind(store), "note": note, **asdict(sizes)}
    settings["mount_counts"] = counts
    facts = {**hardware.facts(), "file_system": hardware.file_system(directory)}
    results = SuiteResults(facts, settings, all_rows(counts))
    wanted = [Group(name) for name in choose(groups, list(Group), "group")]
    scratch = Path(tempfile.mkdtemp(prefix="cowfs-bench-", dir=directory))
    try:
        base = StoreUrl.parse(store) if store else StoreUrl.from_path(str(make_directory(scratch / "stores")))
        everyone = list(among) or _every_system(base, paths)
        names = choose(systems, [system.name for system in everyone], "system")
        able = _able([system for system in everyone if system.name in names], results, say)
        say("making what the workloads work on")
        with Crew() as crew, stores.fresh(base) as shared:
            made = material.make(scratch / "material", sizes, material.QUICK_PACKAGES if quick else None)
            library = Library(make_directory(scratch / "library"), base, shared, sizes, counts, made, crew)
            _Plan(scratch, library, results, say, minutes).run(able, wanted, rounds)
    except KeyboardInterrupt:  # what was measured is worth keeping
        results.failures.append(INTERRUPTED)
    finally:
        scratches.remove(scratch)
    return results


def _every_system(base: StoreUrl, paths: Mapping[str, str | None]) -> list[System]:
    juicefs = [JuiceFS(paths.get("juicefs"), metadata, base) for metadata in ("sqlite3", "badger")]
    passthrough_hp = PassthroughHp(paths.get("passthrough_hp"))
    return [LocalDisk(), *variants(), *juicefs, passthrough_hp, DoNothing(paths.get("do_nothing"))]


def _able(systems: list[System], results: SuiteResults, say: Say) -> list[System]:
    able = []
    for system in systems:
        try:
            results.versions[system.name] = system.check()
        except LeftOut as reason:
            results.left_out[system.name] = str(reason)
            say(f"{system.name} is left out: {reason}")
            continue
        results.titles[system.name] = system.title
        able.append(system)
    return able


class _Plan:
    def __init__(self, scratch: Path, library: Library, results: SuiteResults, say: Say, minutes: float | None) -> None:
        self._scratch, self._library, self._results, self._say = scratch, library, results, say
        self._end_s = clock.monotonic_s() + minutes * 60 if minutes else None
        self._took_s: dict[Pair, float] = {}
        self._failed: set[Pair] = set()

    def run(self, systems: list[System], groups: list[Group], rounds: int) -> None:
        for number in range(rounds):
            affordable = self._affordable(rounds - number) if number else None
            first = number % max(1, len(systems))
            for group in groups:
                for system in systems[first:] + systems[:first]:
                    pair = (system.name, group)
                    if (
                        group in system.groups
                        and pair not in self._failed
                        and (affordable is None or pair in affordable)
                    ):
                        start_s = clock.monotonic_s()
                        self._try(number, group, system)
                        self._took_s[pair] = clock.monotonic_s() - start_s

    def _affordable(self, rounds_left: int) -> set[Pair] | None:
        """What of a later round fits its share of the time: the quickest first. None:
        everything."""
        if self._end_s is None:
            return None
        share_s = (self._end_s - clock.monotonic_s()) / rounds_left
        affordable: set[Pair] = set()
        for pair, took_s in sorted(self._took_s.items(), key=lambda item: item[1]):
            share_s -= took_s
            if share_s < 0:
                self._say(f"left out of this round, the time would not do: {pair[0]}, {pair[1]} ({took_s:.0f} s)")
            else:
                affordable.add(pair)
        return affordable

    def _try(self, number: int, group: Group, system: System) -> None:
        start_s = clock.monotonic_s()
        place = make_directory(self._scratch / f"{number}-{group}-{system.name}")
        found: list[str] = []
        library = self._library

        def save(row: str, name: str, value: float) -> None:
            self._results.add(row, name, value)
            found.append(f"{row} {value:.3g}")

        try:
            with system.open(place, library, group) as session:
                parts = (library.sizes, library.material, library.crew)
                WORKLOADS[group](SystemTrial(system.name, session.root, *parts, save, system, session, library, place))
        except LeftOut as reason:
            self._leave_out(group, system, str(reason))
        except (WorkloadFailed, CowfsError, OSError) as error:
            self._fail(group, system, f"{type(error).__name__}: {error}")
        finally:
            scratches.remove(place)
            os.sync()
        took_s = clock.monotonic_s() - start_s
        self._say(f"round {number + 1}, {group}, {system.name}: {', '.join(found)}; {took_s:.1f} s in all")

    def _leave_out(self, group: Group, system: System, reason: str) -> None:
        if any(system.name in samples for samples in self._results.samples.values()):
            self._fail(group, system, reason)  # it did start, once
            return
        self._results.left_out[system.name] = reason
        self._results.titles.pop(system.name, None)
        self._failed |= {(system.name, each) for each in Group}
        self._say(f"{system.name} is left out: {reason}")

    def _fail(self, group: Group, system: System, message: str) -> None:
        self._results.failures.append({"system": system.name, "group": group, "message": message})
        self._failed.add((system.name, group))
        self._say(f"FAILED: {system.name}, {group}: {message}")


def _kind(store: str | None) -> str:
    """The store without its name: results are published."""
    return StoreUrl.parse(store).protocol if store else "directory on the same disk"
