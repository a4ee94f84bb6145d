"""One process of a store's users: `python -m tests.maintain.crew ROLE NAME STORE HOME SECONDS`. It
fails when anything that it may rely on is not there.

    writer      commits to a volume of its own, mostly contents that were there before, and prunes what is not the newest
    forker      forks the newest versions of others, reads them, and deletes the forks
    merger      lets two forks of its volume change different files, merges them into it, and deletes them
    keeper      tags versions, prunes the others, brings tagged ones back, deletes its volume and brings it back
    copier      copies versions of others to a store of its own, and back under a new name
    breaker     commits in a process that is killed at some step, and again what is left of its work: perhaps when its pin
                has expired, which lives for PIN_S
    leaver      mounts, writes, and leaves without a commit; comes back to what it kept, and commits that
    collector   collects until it has deleted packs FREED times and SECONDS are over; what is young is HOUR_S old

The others go on until there is a file HOME/stop, which the collector makes. All but writer, leaver
and forker use the public API, each on a machine of its own; what they publish is read back, and
refusals (a version that was pruned meanwhile) are no failures.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cowfs.blocking import ROVolume, RWVolume, Store, Volume
from cowfs.control import MountOptions, MountSpec
from cowfs.errors import ConflictError, CowfsError, LeaseHeldError, NotFoundError
from cowfs.format import keys
from cowfs.maintain.collect import planning
from cowfs.maintain.collect.collecting import Collection
from cowfs.maintain.collect.planning import Survey
from cowfs.session.opening import enter_session
from cowfs.store import ObjectStore, load_record, open_store
from cowfs.store.refs import pins
from cowfs.store.refs.holder import current_holder
from cowfs.version.commit import CommitRequest
from cowfs.version.names.deletion import delete_volume
from cowfs.version.names.volumes import find_head, volume_names
from cowfs.version.retention import pruned
from tests.maintain.conftest import contents
from tests.maintain.stores import fork, random_bytes, tree
from tests.simulation import defects
from tests.simulation.machine import View
from tests.version.working_volume import WorkingVolume

CONTENTS = 12
FREED = 2
GRACE_S = 1.0
HOUR_S = 3.0
PIN_S = 6


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
            working.publisher._protection.remove()


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


def merge(store: ObjectStore, name: str, home: Path, stop: Path) -> None:
    drawn = random.Random(name)
    trunk = written(Volume.new(name), {"base": b"base" * 1000}, whole={})
    held = {"base": b"base" * 1000}
    number = 0
    while not stop.exists():
        number += 1
        branches = []
        for side in ("left", "right"):
            path, data = f"{side}{drawn.randrange(4)}", random_bytes(drawn.randrange(CONTENTS), 30_000)
            work = trunk.fork(f"{name}-{side}{number}")
            branches.append(written(work, {path: data}, whole=held if side == "left" else None))
            held[path] = data
        report = Store().merge(name, branches)
        trunk = Volume.version(name)
        assert trunk.locator == report.locator
        expect(trunk, held)
        for side in ("left", "right"):
            Store().delete(f"{name}-{side}{number}")
        Store().prune(Store().plan_prune(name, last=1))


def keep(store: ObjectStore, name: str, home: Path, stop: Path) -> None:
    drawn = random.Random(name)
    held: dict[str, bytes] = {}
    tagged: dict[str, dict[str, bytes]] = {}
    work = Volume.new(name)
    while not stop.exists():
        path, data = f"f{drawn.randrange(4)}", random_bytes(drawn.randrange(CONTENTS), 30_000)
        version = written(work, {path: data}, whole=held)
        held = held | {path: data}
        if drawn.random() < 0.5:
            tag = f"tag{drawn.randrange(3)}"
            version.tag(tag, move=True)
            tagged[tag] = held
        elif tagged and drawn.random() < 0.3:
            tag = drawn.choice(sorted(tagged))
            Store().untag(name, tag)
            del tagged[tag]
        Store().prune(Store().plan_prune(name, last=1))
        for tag, then in tagged.items():
            expect(Volume.version(f"{name}@{tag}"), then)
        if tagged and drawn.random() < 0.4:
            tag = drawn.choice(sorted(tagged))
            Store().rollback(name, Volume.version(f"{name}@{tag}"))
            held = tagged[tag]
            expect(Volume.version(name), held)
        if drawn.random() < 0.3:
            deleted_s = time.monotonic()
            Store().delete(name)
            time.sleep(drawn.random() * GRACE_S / 2)
            try:
                Store().undelete(name)
            except NotFoundError:
                assert time.monotonic() > deleted_s + GRACE_S, "it could still be brought back"
                keep(store, f"{name}x", home, stop)  # it was held up too long: a new one
                return
            expect(Volume.version(name), held)
        work = Volume.open(name)


def copy(store: ObjectStore, name: str, home: Path, stop: Path) -> None:
    drawn = random.Random(name)
    mirror = (home / "mirror").as_uri()
    number = 0
    while not stop.exists():
        source = drawn.choice([each for each in volume_names(store) if each.startswith("writer")] or [""])
        number += 1
        there, back = f"out{number}", f"{name}-back{number}"
        try:
            Store().push(source, mirror, name=there)
        except CowfsError:
            continue  # there is no version yet, or it was pruned meanwhile
        copied = contents(Volume.version(there, store=mirror))
        try:
            Store().pull(there, mirror, name=back)
        except ConflictError:
            continue  # the version is being collected in this store
        expect(Volume.version(back), copied)
        Store().delete(back)


def leave(store: ObjectStore, name: str, home: Path, stop: Path) -> None:
    drawn = random.Random(name)
    held: dict[bytes, bytes] = {}
    Volume.new(name).resolve()
    spec = MountSpec(
        store_url=store.url,
        volume=name,
        mode="rw",
        source=name,
        mount_path=str(home / "mount"),
        registration=name,
        socket="/nowhere",
        log="/nowhere",
        working_copy=str(home / "working"),
        options=MountOptions(cache_dir=home / "c").resolved(),
    )
    while not stop.exists():
        with enter_session(spec) as session:
            assert View(session).tree() == held
            for _ in range(3):
                path, data = b"f%d" % drawn.randrange(5), random_bytes(drawn.randrange(CONTENTS), 30_000)
                View(session).write(path, data)
                held[path] = data
            assert session.writer is not None
            if drawn.random() < 0.5:
                session.writer.committer.upload_quiet(idle_s=0)
        time.sleep(drawn.random() * HOUR_S * 2)
        with enter_session(spec) as session:
            assert View(session).tree() == held, "what was kept"
            assert session.writer is not None
            base = session.writer.committer.commit(CommitRequest())
        assert base.version_id is not None
        assert tree(store, base.version_id, home) == held
        Store().prune(Store().plan_prune(name, last=1))


STEPS = ("commit-after-packs", "commit-after-index", "commit-after-manifest", "commit-after-head")
KILLED = """
import sys

from cowfs.blocking import Volume
from cowfs.store.refs import pins

pins.LIFETIME_S = int(sys.argv[3])
Volume.open(sys.argv[1]).files.upload(sys.argv[2])
"""


def break_off(store: ObjectStore, name: str, home: Path, stop: Path) -> None:
    drawn = random.Random(name)
    pins.LIFETIME_S = PIN_S
    Volume.new(name).resolve()
    work = home / "tree"
    work.mkdir()
    while not stop.exists():
        (work / f"f{drawn.randrange(5)}").write_bytes(random_bytes(drawn.randrange(CONTENTS), 30_000))
        command = [sys.executable, "-c", KILLED, name, str(work), str(PIN_S)]
        killed = subprocess.run(
            command, env={**os.environ, "COWFS_FAILPOINT": drawn.choice(STEPS)}, capture_output=True, text=True
        )
        assert killed.returncode in (0, -signal.SIGKILL), killed.stderr
        time.sleep(drawn.random() * PIN_S * 2)
        Volume.open(name).files.upload(str(work))
        expect(Volume.version(name), {path.name: path.read_bytes() for path in work.iterdir()})
        Store().prune(Store().plan_prune(name, last=1))


def written(work: RWVolume, files: dict[str, bytes], *, whole: dict[str, bytes] | None) -> ROVolume:
    """The volume's next version, with `files`; whole: what it had before, if that is known."""
    for path, data in files.items():
        work.files.write(path, data)
    version = work.finalize()
    if whole is not None:
        expect(version, whole | files)
    return version


def expect(version: ROVolume, files: dict[str, bytes]) -> None:
    found = contents(version)
    assert found == files, f"{version.locator}: {sorted(found)}, not {sorted(files)}"


def collect_always(store: ObjectStore, name: str, home: Path, stop: Path) -> None:
    planning.HOUR_NS = int(HOUR_S * 1e9)
    freed = 0
    end = time.monotonic() + float(sys.argv[5])
    while (freed < FREED or time.monotonic() < end) and not stop.exists():
        survey = Survey(store, home / name, grace_s=GRACE_S, gain_bytes=0)
        plan = survey.plan()
        try:
            done = Collection(survey, current_holder(name), wait_s=1.0).apply(plan)
            freed += any(key.startswith(keys.PACKS) for key in done.deleted)
        except LeaseHeldError:
            time.sleep(0.1)
    stop.touch()


ROLES: dict[str, Callable[[ObjectStore, str, Path, Path], None]] = {
    "writer": write,
    "forker": make_forks,
    "merger": merge,
    "keeper": keep,
    "copier": copy,
    "breaker": break_off,
    "leaver": leave,
    "collector": collect_always,
}


def main() -> None:
    role, name, url, home, _ = sys.argv[1:]
    own = Path(home) / name
    for variable, folder in (
        ("COWFS_CACHE_DIR", "c"),
        ("COWFS_STATE_DIR", "s"),
        ("XDG_RUNTIME_DIR", "r"),
        ("HOME", "h"),
    ):
        (own / folder).mkdir(parents=True)
        os.environ[variable] = str(own / folder)
    os.environ["COWFS_STORE"] = url
    if defect := os.environ.get("COWFS_TEST_DEFECT"):  # does this find it? One of tests.simulation.defects
        getattr(defects, defect)(pytest.MonkeyPatch())
    store = open_store(url)
    load_record(store)
    try:
        ROLES[role](store, name, own, Path(home) / "stop")
    except BaseException:
        (Path(home) / "stop").touch()
        raise
    store.close()


if __name__ == "__main__":
    main()
