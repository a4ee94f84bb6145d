"""Mixed work over a local disk that fails in every way it can: never a wrong byte with success, in
files, databases or versions.

Runs for COWFS_DISK_STRESS_S seconds (20 without it). Faults come and go; the daemon is killed and
mounted again; commits go on meanwhile, and what a commit that succeeded holds is compared with what
was written.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from cowfs.errors import CorruptError, CowfsError
from tests.disk.faulty_disk import FaultyDisk
from tests.disk.stress import Checker, DatabaseWorker, FileWorker
from tests.mount.daemons import Mount, Place

pytestmark = [pytest.mark.mount, pytest.mark.slow]

STRESS_S = float(os.environ.get("COWFS_DISK_STRESS_S", "20"))
SEED = int(os.environ.get("COWFS_DISK_STRESS_SEED", "1"))
ROUND_S = 2.0
FAULTS = [
    {"lose": 200},
    {},
    {"lose": 20},
    {"fail_sync": 50},
    {"no_space": 20},
    {"lose": 50, "fail_sync": 20, "no_space": 5},
]


class Stress:
    def __init__(self, place: Place, disk: FaultyDisk) -> None:
        self.place, self.disk = place, disk
        self.random = random.Random(SEED)
        self.checker = Checker()
        self.workers: list[FileWorker | DatabaseWorker] = []
        self.commits = self.refused_commits = self.kills = 0
        self.reasons: Counter[str] = Counter()
        self.volume = 0
        self.mount = self._fresh()

    def _fresh(self) -> Mount:
        self.volume += 1
        self.disk.set()
        mount = self.place.mount(self.place.volume(f"v{self.volume}"))
        # The next mount is at the same path: workers keep theirs.
        self.spec = mount.spec
        files = [FileWorker(mount.path, f"files{n}", self.random.randrange(1 << 30), self.checker) for n in range(3)]
        self.workers = [*files, DatabaseWorker(mount.path, "databases", self.random.randrange(1 << 30), self.checker)]
        for worker in self.workers:
            worker.start()
        return mount

    def run(self) -> None:
        end_s = time.monotonic() + STRESS_S
        faults = itertools.cycle(FAULTS)
        while time.monotonic() < end_s and not self.checker.wrong:
            self.disk.set(**next(faults))
            self._work(ROUND_S)
            self.disk.set()
            for worker in self.workers:
                worker.check_all()
            what = self.random.random()
            if what < 0.5:
                self._commit()
            elif what < 0.8:
                self._kill()
        self._commit()
        for worker in self.workers:
            worker.check_all()

    def _work(self, seconds: float) -> None:
        stop = threading.Event()

        def work(step: Callable[[], None]) -> None:
            try:
                while not stop.is_set():
                    step()
            except BaseException as error:
                self.checker.wrong.append(f"a worker ended: {error!r}")
                raise

        threads = [threading.Thread(target=work, args=(worker.step,)) for worker in self.workers]
        for thread in threads:
            thread.start()
        if self.random.random() < 0.3:  # a commit meanwhile, of which the outcome is of no interest
            time.sleep(seconds / 2)
            self._try_commit()
        time.sleep(seconds / 2)
        stop.set()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive(), "a call hangs"

    def _try_commit(self) -> str | None:
        try:
            return self.mount.commit()
        except CorruptError as error:
            self.refused_commits += 1
            lost = [file["path"] for file in error.details.get("lost_files", [])]
            if not lost:
                self.checker.wrong.append(f"a refused commit names no file: {error}")
            return None
        except CowfsError as error:
            self.refused_commits += 1
            self.reasons[str(error)] += 1
            return None

    def _commit(self) -> None:
        version = self._try_commit() or self._commit_without_lost()
        if version is None:
            return
        self.commits += 1
        environment = {"COWFS_CACHE_DIR": str(self.place.root / "c"), "LD_PRELOAD": "", "FAULTY_DISK": ""}
        spec = self.place.spec(
            f"v{self.volume}", version, cache_dir=str(self.place.root / "c" / f"other{self.commits}")
        )
        reader = self.place.start(spec, environment=environment)
        for worker in self.workers:
            if isinstance(worker, FileWorker):
                for file, data in worker.known.items():
                    found = (reader.path / worker.name / file).read_bytes()
                    self.checker.compare(f"{worker.name}/{file} in version {self.commits}", found, bytes(data))
        reader.unmount()

    def _commit_without_lost(self) -> str | None:
        self._remove_lost()
        return self._try_commit()

    def _remove_lost(self) -> None:
        for file in self.mount.call("status")["writer"]["lost_files"]:
            path = Path(file["path"])
            for worker in self.workers:
                if isinstance(worker, FileWorker) and worker.name == path.parts[0]:
                    worker.known.pop(path.name, None)
                    if worker.synced.pop(path.name, None) is not None:
                        self.checker.wrong.append(f"{path}: synced bytes are lost")
                    (self.mount.path / path).unlink(missing_ok=True)
                elif isinstance(worker, DatabaseWorker) and worker.name == path.parts[0]:
                    (self.mount.path / path).unlink(missing_ok=True)
                    worker.file = None

    def _kill(self) -> None:
        self.kills += 1
        self.mount.kill()
        self.mount = self.place.start(self.spec)
        for worker in self.workers:
            worker.check_all()


def test_never_a_wrong_byte_with_success(place: Place, tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    place.environment |= disk.environment
    stress = Stress(place, disk)
    stress.run()
    checker = stress.checker
    print(
        f"{checker.calls} calls, {checker.faults} failed; {disk.lost} pages lost, {disk.failed_syncs} syncs failed, {disk.refused} "
        f"writes refused; {stress.commits} commits compared, {stress.refused_commits} refused, {stress.kills} kills; {dict(stress.reasons)}"
    )
    assert not checker.wrong, checker.wrong[:10]
    assert disk.lost > 0
