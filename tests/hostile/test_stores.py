"""A good store in which one entry at a time is something else: no command touches what is outside,
waits for ever, takes the machine's memory or asks for a report.

The share of CI takes `COWFS_HOSTILE_S` seconds (60), in which each entry is a link once, a pipe,
and so on as far as the time goes. With 3600 every case comes several times. The seed is printed;
`COWFS_HOSTILE_SEED` replays one. `entries`, `neighbour` and `runner` know nothing of stores.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.effort import share
from tests.hostile import landlock
from tests.hostile.entries import KINDS, Canary, entries_of, replaced
from tests.hostile.runner import Outcome, Runner

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("COWFS_HOSTILE_S", share(60)))
SEED = int(os.environ.get("COWFS_HOSTILE_SEED", random.SystemRandom().randrange(1 << 32)))
COMMANDS = (
    ("ls",),
    ("ls", "data"),
    ("ls", "{locator}"),
    ("cat", "{locator}:/a/text"),
    ("show", "data"),
    ("log", "data"),
    ("tag", "data"),
    ("gc", "--dry-run"),
    ("gc", "-y"),
    ("verify",),
    ("upload", "{tree}", "data"),
    ("upload", "{tree}", "other{number}"),
    ("create", "new{number}"),
    ("fork", "{locator}", "fork{number}"),
    ("prune", "data", "--keep-last", "1", "-y"),
    ("push", "{locator}", "{target}{number}"),
    ("download", "{locator}", "{target}{number}"),
    ("delete", "data", "-y"),
)


@dataclass
class World:
    """A store with volumes, a tag, and a finished collection."""

    place: Path
    runner: Runner
    locator: str = ""
    number: int = 0

    @property
    def store(self) -> Path:
        return self.place / "store"

    def run(
        self, command: tuple[str, ...], *, is_confined: bool = False, neighbour: dict[str, object] | None = None
    ) -> Outcome:
        self.number += 1
        texts = {
            "locator": self.locator,
            "tree": self.place / "tree",
            "target": self.place / "targets" / "t",
            "number": self.number,
        }
        arguments = [part.format(**texts) for part in command]
        own = [self.place / name for name in ("store", "state", "cache", "run", "home", "targets", "tmp")]
        environment = {
            "COWFS_STORE": str(self.store),
            "COWFS_STATE_DIR": str(self.place / "state"),
            "COWFS_CACHE_DIR": str(self.place / "cache"),
            "XDG_RUNTIME_DIR": str(self.place / "run"),
            "HOME": str(self.place / "home"),
            "TMPDIR": str(self.place / "tmp"),
            "COWFS_STORE_TIMEOUT": "3",
        }
        below = [*own, Path("/dev")] if is_confined and landlock.version() else None
        return self.runner.run(*arguments, environment=environment, write_below=below, neighbour=neighbour)

    def must(self, *command: str) -> str:
        done = self.run(command)
        assert done.code == 0, done
        return done.said


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    for name in ("store", "state", "cache", "run", "home", "targets", "tmp", "tree/a", "away"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "run").chmod(0o700)
    (tmp_path / "tree/a/text").write_bytes(b"some text\n" * 1000)
    (tmp_path / "tree/random").write_bytes(random.Random(1).randbytes(300_000))
    runner = Runner()
    made = World(tmp_path, runner)
    try:
        made.must("upload", "{tree}", "data")
        (tmp_path / "tree/random").write_bytes(random.Random(2).randbytes(300_000))
        said = made.must("upload", "{tree}", "data")
        made.locator = next(line for line in said.splitlines() if line.startswith("cowfs+"))
        made.must("tag", "data", "good")
        made.must("create", "empty")
        made.must("fork", "{locator}", "second")
        made.must("gc", "-y")
        (made.store / "probe").mkdir(exist_ok=True)
        (made.store / ".incoming").mkdir(exist_ok=True)
        yield made
    finally:
        runner.close()


def cases(world: World, choice: random.Random) -> Iterator[tuple[str, str, tuple[str, ...], bool]]:
    """(entry, kind, command, whether it is confined), for ever: each entry as one kind, then each
    as the next kind, by commands at random; when all kinds are done the same under Landlock."""
    entries = entries_of(world.store)
    for is_confined in itertools.cycle((False, True)):
        for kind in KINDS:
            choice.shuffle(entries)
            for entry in entries:
                yield entry, kind, choice.choice(COMMANDS), is_confined


def test_one_strange_entry_in_a_store(world: World, tmp_path: Path) -> None:
    print(f"COWFS_HOSTILE_SEED={SEED}")
    choice, canary = random.Random(SEED), Canary(tmp_path / "canary", f"{1:032x}", f"{(1 << 64) - 2:016x}")
    end_s, count = time.monotonic() + SECONDS, 0
    saved = tmp_path / "saved"
    _copy(world.store, saved)
    for count, (entry, kind, command, is_confined) in enumerate(cases(world, choice), 1):
        with replaced(world.store, entry, kind, canary, tmp_path / "away" / "entry"):
            done = world.run(command, is_confined=is_confined)
        where = f"case {count}: {entry} is a {kind}, cowfs {' '.join(command)}{', confined' * is_confined}: {done}"
        assert not done.faults(), f"{done.faults()} in {where}"
        assert not (is_confined and re.search("Permission denied|not permitted", done.said)), (
            f"wrote outside in {where}"
        )
        assert not canary.changes(), f"{canary.changes()} in {where}"
        _restore(saved, world.store)
        if time.monotonic() > end_s:
            break
    print(f"{count} cases of {len(entries_of(saved))} entries")


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_neighbour_exchanges_what_is_made(world: World, tmp_path: Path, is_shared: bool) -> None:
    print(f"COWFS_HOSTILE_SEED={SEED}")
    canary = Canary(tmp_path / "canary")
    if is_shared:
        for path in [world.store, *world.store.rglob("*")]:
            path.chmod(0o777 if path.is_dir() else 0o666)
    end_s, rounds = time.monotonic() + SECONDS / 4, 0
    while rounds == 0 or time.monotonic() < end_s:
        rounds += 1
        away = tmp_path / "away" / str(rounds)
        away.mkdir()
        neighbour = {
            "tree": str(world.store),
            "away": str(away),
            "canary_directory": str(canary.directory),
            "canary_file": str(canary.file),
            "chance": (0.1, 0.5, 1.0)[rounds % 3],
            "seed": SEED + rounds,
        }
        command = (("create", "n{number}"), ("upload", "{tree}", "u{number}"))[rounds % 2]
        done = world.run(command, neighbour=neighbour)
        where = f"round {rounds}: cowfs {' '.join(command)}: {done}"
        assert not done.faults(), f"{done.faults()} in {where}"
        assert not canary.changes(), f"{canary.changes()} in {where}"
    print(f"{rounds} rounds")


def _copy(store: Path, saved: Path) -> None:
    shutil.copytree(store, saved, symlinks=True)


def _restore(saved: Path, store: Path) -> None:
    """The store as it was, in its own directory."""
    there = set(entries_of(store))
    good = set(entries_of(saved))
    for name in sorted(there - good, reverse=True):
        path = store / name
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    for name in sorted(good - there):
        path = store / name
        path.mkdir() if (saved / name).is_dir() else path.write_bytes((saved / name).read_bytes())
