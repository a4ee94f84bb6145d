"""One process of a store's users: `python -m tests.maintain.crew ROLE NAME STORE HOME`. It fails when
anything that it may rely on is not there.

    writer      commits to a volume of its own, mostly contents that were there before, and prunes what is not the newest
    forker      forks the newest versions of others, reads them, and deletes the forks
    collector   collects until it has deleted something FREED times; what is young is a tenth of a second old

The others go on until there is a file HOME/stop, which the collector makes.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from cowfs.errors import CowfsError, LeaseHeldError
from cowfs.format import keys
from cowfs.maintain import planning
from cowfs.maintain.collecting import Collection
from cowfs.maintain.planning import Survey
from cowfs.store import ObjectStore, load_record, open_store
from cowfs.store.holder import current_holder
from cowfs.version import pruned
from cowfs.version.deletion import delete_volume
from cowfs.version.volumes import find_head, volume_names
from tests.maintain.stores import fork, random_bytes, tree
from tests.version.working_volume import WorkingVolume

CONTENTS = 12
FREED = 2
GRACE_S = 0.2


def write(store: ObjectStore, name: str, home: Path, stop: Path) -> None:
    drawn = random.Random(name)
    held: dict[bytes, bytes] = {}
    rounds = 0
    while not stop.exists() or rounds == 0:
        rounds += 1
        with WorkingVolume(store, name, home / f"{name}{rounds}") as working:
            assert working.tree() == held
            for _ in range(drawn.randrange(1, 5)):
                for _ in range(3):
                    path, data = b"f%d" % drawn.randrange(5), random_bytes(drawn.randrange(CONTENTS), 30_000)
                    working.write(path, data)
                    held[path] = data
                working.publisher.acknowledge()
                base = working.commit()
                assert base.version_id is not None
                assert tree(store, base.version_id, home) == held
                pruned.append(store, name, pruned.read(store, name), [(1, base.head_number - 1)])
            working.publisher._protection.pin.remove()


def make_forks(store: ObjectStore, name: str, home: Path, stop: Path) -> None:
    drawn = random.Random(name)
    number = 0
    while not stop.exists():
        source = drawn.choice([each for each in volume_names(store) if each.startswith("writer")] or [""])
        head = find_head(store, source) if source else None
        if head is None or head.version is None:
            time.sleep(0.05)
            continue
        number += 1
        try:
            made = fork(store, source, f"{name}-{number}", head.version)
        except CowfsError:
            continue  # it was pruned meanwhile, and is being deleted
        assert made.version is not None
        assert tree(store, made.version, home)
        if drawn.random() < 0.8:
            delete_volume(store, made.volume, current_holder(name))


def collect_always(store: ObjectStore, name: str, home: Path, stop: Path) -> None:
    planning.HOUR_NS = 10**8
    freed = 0
    while freed < FREED and not stop.exists():
        survey = Survey(store, home / name, grace_s=GRACE_S)
        plan = survey.plan()
        try:
            done = Collection(survey, current_holder(name), wait_s=1.0).apply(plan)
            freed += any(key.startswith(keys.PACKS) for key in done.deleted)
        except LeaseHeldError:
            time.sleep(0.1)
    stop.touch()


ROLES = {"writer": write, "forker": make_forks, "collector": collect_always}


def main() -> None:
    role, name, url, home = sys.argv[1:]
    store = open_store(url)
    load_record(store)
    (Path(home) / name).mkdir()
    try:
        ROLES[role](store, name, Path(home) / name, Path(home) / "stop")
    except BaseException:
        (Path(home) / "stop").touch()
        raise
    store.close()


if __name__ == "__main__":
    main()
