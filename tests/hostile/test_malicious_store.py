"""A malicious store under the everyday commands of two machines: every command ends with the right
content, or with an error that says what was seen.

Never another exception, wrong bytes, something older than this machine has seen, a plain object in
a store that it knows as encrypted, or a guess at a passphrase for less than the least cost. When
the store is honest again, all that was acknowledged is there. Machines that were shown two lines
find out when they meet.

CI's share takes `COWFS_HOSTILE_S` seconds (60); `COWFS_MALICIOUS_RUNS` is a number of runs instead.
Each run has a seed of its own, which is printed when it fails; `COWFS_MALICIOUS_SEED` replays it.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.kdf import argon2

from cowfs.api import stores
from cowfs.api.access import file_session
from cowfs.base import clock
from cowfs.format.key_slots import Secret
from cowfs.store import open as opening
from cowfs.store.credentials import unlocking
from tests.effort import share
from tests.hostile import lies
from tests.hostile.machines import TAGS, VOLUMES, Line, Machine, World, WorldClock
from tests.hostile.malicious_store import Lie, Violation

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("COWFS_HOSTILE_S", share(60)))
RUNS = int(os.environ.get("COWFS_MALICIOUS_RUNS", "0"))
SEED = os.environ.get("COWFS_MALICIOUS_SEED", "")
STEPS = 9
PASSPHRASES, REQUIRED = 0.1, 0.2
LEAST_PASSES, LEAST_MEMORY_KIB = 3, 64 << 10
PASSPHRASE = "five words that nobody guesses"
KEY = bytes(range(100, 132))

_derived: dict[tuple[object, ...], bytes] = {}
_cheap: list[str] = []


class Stretching:
    """Argon2id, once for each passphrase and slot; notes what costs too little."""

    def __init__(self, *, salt: bytes, length: int, iterations: int, lanes: int, memory_cost: int) -> None:
        self._given: dict[str, Any] = {
            "salt": salt, "length": length, "iterations": iterations, "lanes": lanes, "memory_cost": memory_cost
        }  # fmt: skip
        if iterations < LEAST_PASSES or memory_cost < LEAST_MEMORY_KIB:
            _cheap.append(f"a passphrase was tried for {iterations} passes of {memory_cost} KiB")

    def derive(self, passphrase: bytes) -> bytes:
        name = (passphrase, *self._given.values())
        if name not in _derived:
            _derived[name] = _Argon2id(**self._given).derive(passphrase)
        return _derived[name]


_Argon2id = argon2.Argon2id


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in (*unlocking.VARIABLES, unlocking.REQUIRED):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("COWFS_STATE_DIR", "COWFS_CACHE_DIR", "COWFS_STORE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("COWFS_STORE_TIMEOUT", "3")
    monkeypatch.setattr(argon2, "Argon2id", Stretching)
    monkeypatch.setattr(stores, "_open", {})
    monkeypatch.setattr(clock, "current", clock.current)
    logging.getLogger("cowfs").setLevel(logging.CRITICAL)
    yield tmp_path
    file_session._end_all()
    logging.getLogger("cowfs").setLevel(logging.NOTSET)


def test_a_malicious_store(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "key").write_bytes(KEY)
    (machine / "key").chmod(0o600)
    (machine / "store").mkdir()
    seeds = iter([int(SEED)]) if SEED else iter(lambda: random.SystemRandom().randrange(1 << 32), -1)
    done: dict[str, list[int]] = {}
    begun: dict[tuple[bool, bool], World] = {}
    count, began_s = 0, time.monotonic()
    for count, seed in enumerate(seeds, 1):
        try:
            one_run(machine, seed, monkeypatch, begun, done)
        except Violation as violation:
            pytest.fail(f"run {count}, COWFS_MALICIOUS_SEED={seed}: {violation}", pytrace=bool(SEED))
        if count >= RUNS if RUNS else time.monotonic() - began_s > SECONDS:
            break
    print(f"{count} runs, {time.monotonic() - began_s:.0f} s; done and refused: {done}")


def one_run(
    root: Path,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
    begun: dict[tuple[bool, bool], World],
    done: dict[str, list[int]],
) -> None:
    choice = random.Random(seed)
    kind = has_passphrase, in_storage = choice.random() < PASSPHRASES, choice.random() < 0.4
    is_new = choice.random() < 0.15
    env = {unlocking.PASSPHRASE: PASSPHRASE} if has_passphrase else {unlocking.KEY_FILE: str(root / "key")}
    _cheap.clear()
    with monkeypatch.context() as patch:
        if not in_storage:
            for name, value in env.items():
                patch.setenv(name, value)
        if kind not in begun and not is_new:
            world = World(
                root, f"begun-{has_passphrase}-{in_storage}", random.Random(0), env=env, in_storage=in_storage
            )
            begin(world, patch, 0)
            begun[kind] = world
        world = World(root, "run", choice, env=env, in_storage=in_storage)
        world.done = done
        try:
            if is_new:
                begin(world, patch, seed)
            else:
                world.begin_as(begun[kind])
            if choice.random() < REQUIRED:
                patch.setenv(unlocking.REQUIRED, "required")
                in_storage = True
            for each in world.machines:  # it is told that the store is
                each.knows_encrypted |= in_storage
            clock.current = WorldClock(seed)
            patch.setattr(opening, "_open_backend", world.backend)
            Run(world, choice, has_passphrase).whole()
        except Violation as violation:
            told = "\n".join(world.log)
            raise Violation(f"{violation}\n{told}") from violation
        finally:
            file_session._end_all()
            shutil.rmtree(world.place, ignore_errors=True)


def begin(world: World, patch: pytest.MonkeyPatch, seed: int) -> None:
    """A volume of one version, which has a tag."""
    clock.current = WorldClock(~seed)  # the run draws other ids
    patch.setattr(opening, "_open_backend", world.backend)
    one = world.machines[0]
    world.run(one, "create", lambda m: world.create(m, VOLUMES[0]), must=True)
    world.run(one, "commit", lambda m: world.commit(m, VOLUMES[0], how="files"), must=True)
    world.run(one, "tag", lambda m: world.tag(m, VOLUMES[0], TAGS[0], is_removed=False), must=True)
    world.run(one, "key list", world.key_list, must=True)


class Run:
    """One run: a good beginning, commands under lies, and an honest end."""

    def __init__(self, world: World, choice: random.Random, has_passphrase: bool) -> None:
        self.world, self.choice = world, choice
        self.earlier: list[dict[str, bytes]] = []
        self.guesses = [Secret("passphrase", PASSPHRASE.encode())] if has_passphrase else [Secret("key", KEY)]

    def whole(self) -> None:
        world, choice = self.world, self.choice
        self._remember()
        if choice.random() < 0.7:
            world.run(world.machines[1], "read", lambda m: world.read(m, VOLUMES[0]), must=True)
            world.run(world.machines[1], "read tag", lambda m: world.read_tag(m, VOLUMES[0], TAGS[0]), must=True)
        for number in range(STEPS):
            self._step(number)
        self._end()

    def _step(self, number: int) -> None:
        world, choice = self.world, self.choice
        chosen = choice.choice(world.machines)
        if choice.random() < 0.15:
            clock.current.sleep_s(choice.choice((60.0, 7200.0, 9 * 86400.0)))
        if number > 2 and not world.is_split and choice.random() < 0.06:
            world.is_split = True
            world.machines[1].line = world.line.copy()
            world.log.append("m2 is shown another line from here")
        chosen.lie = self._lie(chosen) if choice.random() < 0.6 else None
        name, command = self._command(chosen, number)
        world.run(chosen, name, command)
        if _cheap:
            raise Violation(_cheap[0])
        chosen.lie = None
        self._remember()

    def _remember(self) -> None:
        self.earlier.append(self.world.line.objects.snapshot())

    def _lie(self, machine: Machine) -> Lie | None:
        objects, choice = machine.line.objects, self.choice
        match choice.randrange(20):
            case 0 | 1 | 2:
                return lies.edit_slots(objects, choice, self.guesses)
            case 3 | 4 | 5:
                return None if self.world.is_split else lies.put_back(objects, choice, self.earlier)
            case 6 if machine.knows_encrypted:
                return lies.become_plain(objects, choice)
            case 7 if machine.seen:
                return lies.become_another(objects, choice)
            case _:
                return choice.choice(lies.SIMPLE)(objects, choice)

    def _command(self, machine: Machine, number: int) -> tuple[str, Callable[[Machine], object]]:
        world, choice = self.world, self.choice
        volume = choice.choice([*world.acknowledged] * 3 + list(VOLUMES))
        tag = choice.choice(TAGS)
        tagged = choice.choice([name for each in world.machines for name in each.tags] or [(volume, tag)])
        commands: list[tuple[int, str, Callable[[Machine], object]]] = [
            (2, "create", lambda m: world.create(m, VOLUMES[1])),
            (5, "commit", lambda m: world.commit(m, volume, how="files")),
            (3, "upload", lambda m: world.commit(m, volume, how="upload")),
            (5, "read", lambda m: world.read(m, volume)),
            (1, "download", lambda m: world.download(m, volume)),
            (2, "locator", lambda m: world.read_locator(m, choice.choice([*world.locators]))),
            (2, "log", lambda m: world.log_of(m, volume)),
            (1, "ls", world.ls),
            (1, "fork", lambda m: world.fork(m, volume, f"fork{number}")),
            (3, "tag", lambda m: world.tag(m, volume, tag, is_removed=False)),
            (1, "untag", lambda m: world.tag(m, *tagged, is_removed=True)),
            (2, "read tag", lambda m: world.read_tag(m, *tagged)),
            (1, "tags", lambda m: world.tags(m, volume)),
            (3, "key list", world.key_list),
            (2, "key add", lambda m: world.key_add(m, m.place / f"added{number}")),
            (1, "key remove", world.key_remove),
            (1, "gc", world.gc),
            (1, "verify", world.verify),
        ]
        _, name, command = choice.choices(commands, weights=[each[0] for each in commands])[0]
        return name, command

    def _end(self) -> None:
        """The store is honest; of two lines both machines are shown one."""
        world, choice = self.world, self.choice
        clock.current.sleep_s(3600)
        line: Line = choice.choice([machine.line for machine in world.machines])
        for machine in world.machines:
            is_other = machine.line is not line
            machine.line, machine.lie, machine.opened = line, None, {}
            for volume in sorted(world.acknowledged):
                if world.is_split:
                    world.run(machine, "end read", lambda m, volume=volume: world.read(m, volume))  # type: ignore[misc]
                elif not world.acknowledged[volume] & world.unseen:
                    world.run(machine, "end read", lambda m, volume=volume: self._read_all(m, volume), must=True)  # type: ignore[misc]
            if not world.is_split and not is_other:
                world.run(machine, "end ls", world.ls, must=True)
        if world.is_split:
            return
        for locator, (serial, machine) in sorted(world.locators.items()):
            if serial not in world.unseen:
                world.run(machine, "end locator", lambda m, locator=locator: world.read_locator(m, locator), must=True)  # type: ignore[misc]
        world.run(world.machines[0], "end keys", world.key_list, must=True)

    def _read_all(self, machine: Machine, volume: str) -> None:
        world = self.world
        world.read(machine, volume)
        if lost := world.acknowledged[volume] - world.ancestors(machine.seen[volume]):
            raise Violation(f"{volume}: contents {lost} were acknowledged, and are lost")
