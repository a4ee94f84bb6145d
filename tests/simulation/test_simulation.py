"""Writers that take each other's volumes over, sleep and die, over a store that fails, beside a
collector that keeps nothing it need not, an owner who deletes a volume and brings it back,
somebody who forks versions that are being deleted, somebody who merges forks, somebody who copies
versions to a mirror and back, somebody who prunes, tags, restores and rolls back, and somebody who
repairs packs that are damaged or gone.

What must hold, whatever the seed: each volume's line is one line whose epochs never decrease; its
newest version is whole at any time, and so is every one that is not pruned, or is tagged; a version
holds what was asked for; kept work is found again; long after the end nothing is left that nobody
needs. COWFS_SEEDS=first-last runs other seeds, one after the other; a failure names its seed and
the last events, and the seed gives the same run again.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.base import clock, errors, interruptible
from cowfs.format.sealed import Sealed
from cowfs.index import blocks, catalogues
from cowfs.maintain import kept_versions, pruning
from cowfs.maintain.check import pack_check, verify
from cowfs.maintain.collect import alarms, roots
from cowfs.maintain.copy import pack_copies
from cowfs.store import initialize
from cowfs.store.refs import refs
from cowfs.version.names import tags
from cowfs.version.names.volumes import create_volume
from cowfs.version.publish import contents, protection
from cowfs.writer import acquiring
from tests.simulation.collector import Collector, all_but_the_newest
from tests.simulation.forker import Forker
from tests.simulation.keeper import Keeper
from tests.simulation.machine import Machine
from tests.simulation.merger import Merger
from tests.simulation.owner import Owner
from tests.simulation.pools import AtOnce, in_any_order
from tests.simulation.pusher import Pusher
from tests.simulation.repairer import Repairer
from tests.simulation.world import World

TURNS = 1500
SHARED_MEMORY = Path("/dev/shm")
AT_ONCE = (
    refs,
    pack_copies,
    tags,
    pruning,
    contents,
    catalogues,
    blocks,
    protection,
    kept_versions,
    pack_check,
    verify,
)
"""Have thread pools whose work an actor may do itself, one request after the other."""


def seeds(variable: str = "COWFS_SEEDS", usual: str = "0-19") -> list[int]:
    found = re.fullmatch(r"(\d+)-(\d+)", os.environ.get(variable, usual))
    assert found is not None
    return list(range(int(found[1]), int(found[2]) + 1))


def fast_directory() -> Path | None:
    """For working copies and caches: their engines sync and reserve space, which takes half of the
    time on a disk. None: the usual place."""
    return SHARED_MEMORY if SHARED_MEMORY.is_dir() else None


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=fast_directory()) as directory:
        yield Path(directory)


def simulate(
    seed: int,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    turns: int = TURNS,
    *,
    key: bytes | None = None,
    vanishes: bool = False,
) -> World:
    world = World(seed, home, vanishes=vanishes)
    with monkeypatch.context() as patch:
        patch.setattr(clock, "current", world.clock)
        record = initialize(world.objects, writers=[world.objects])
        if key is not None:
            world.objects.sealing = Sealed(key, record.store_id)
        for volume in ("one", "two"):
            create_volume(world.objects, volume)
        machines = [Machine(world, name, volume) for name, volume in world.conditions.machines]
        owners = [Owner(world, "owner")] if world.conditions.has_owner else []
        forkers = [Forker(world, "forker")] if world.conditions.has_forker else []
        mergers = [Merger(world, "meg", "one")] if world.conditions.has_merger else []
        pushers = [Pusher(world, "pusher")] if world.conditions.has_pusher else []
        volumes = sorted({volume for _, volume in world.conditions.machines})
        names = ("kim", "lea") if world.conditions.has_two_keepers else ("kim",)
        keepers = [Keeper(world, name, volumes) for name in names if world.conditions.has_keeper]
        repairers = [Repairer(world, "repairer")] if world.conditions.has_repairer else []
        names = ("collector", "another") if world.conditions.has_two_collectors else ("collector",)
        collectors = [Collector(world, name) for name in names]
        world.actors = [*machines, *collectors, *owners, *forkers, *mergers, *pushers, *keepers, *repairers]
        for module in AT_ONCE:
            patch.setattr(module, "Helpers" if hasattr(module, "Helpers") else "Threads", AtOnce)
        patch.setattr(interruptible, "meanwhile", in_any_order(world.random))
        patch.setattr(errors, "redact", str)  # looks through the environment for each error: a fifth of the time
        if not world.conditions.has_keeper:
            patch.setattr(roots, "find_pruned_heads", all_but_the_newest)
            patch.setattr(alarms, "bytes_gone", lambda *_: [])  # no record says what is pruned
        patch.setattr(acquiring, "open_store", lambda url, **_: world.acting.store)
        patch.setattr(acquiring, "CLOSE_S", 60.0)
        world.run(turns * (2 if keepers else 1))  # so that there are versions to prune
        world.check_end()
    return world


@pytest.mark.parametrize("seed", seeds())
def test_no_seed_breaks_a_promise(seed: int, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = simulate(seed, home, monkeypatch)
    print(
        f"seed {seed}: {world.commits} commits, {world.collections} collections, "
        f"{world.deleted_packs} packs deleted, {world.repacked} repacked, "
        f"{world.restored} files restored, {world.deletions} volumes deleted, "
        f"{world.forks} forks, {world.merges} merges, {world.pulls} pulls, {world.pushes} pushes, "
        f"{world.repairs} repairs, {world.prunes} prunes, {world.tags} tags, {world.brought_back} restored or rolled back"
    )


VANISHING = seeds("COWFS_VANISHING_SEEDS", "0-11")


@pytest.mark.parametrize("seed", VANISHING)
def test_what_vanishes_for_a_while_is_not_lost(seed: int, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """COWFS_VANISHING_S: goes on with later seeds for so long."""
    end_s = time.monotonic() + float(os.environ.get("COWFS_VANISHING_S", "0")) / len(VANISHING)
    for later in itertools.count(seed, len(VANISHING)):
        world = simulate(later, home / f"{later}", monkeypatch, vanishes=True)
        print(
            f"seed {later}: {world.vanishing.count} outages, {world.commits} commits, {world.collections} collections"
        )
        shutil.rmtree(home / f"{later}")
        if time.monotonic() >= end_s:
            return


def test_an_encrypted_store_breaks_no_promise(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its records a collection sees what everybody sees who has the key; of the rest, names."""
    worlds = [simulate(seed, home / str(seed), monkeypatch, key=bytes(range(32))) for seed in range(3, 8)]
    assert sum(world.commits for world in worlds)
    assert sum(world.deleted_packs for world in worlds)
