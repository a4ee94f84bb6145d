"""Writers, background upload and commits at the same time, on a store that fails now and then:
every version is of one moment.

Each file is written whole by single calls, always with the same number in all of it, and numbers
only go up. So a version that mixes two moments of a file, or rows prepared for bytes that were
overwritten since, shows as a file with two numbers.
"""

from __future__ import annotations

import math
import os
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from cowfs.base.ids import VersionId
from cowfs.errors import CowfsError
from cowfs.store import ObjectStore
from cowfs.store.refs import refs
from cowfs.store.reliability import patience
from tests.faulty_store import Fault, FaultyStore
from tests.version.working_volume import ReadingVolume, WorkingVolume

FILES = 12
COMMITS = 25
SIZE = 100_000


class Traffic:
    """Two writers and background upload, until stopped. written: the number each file has at
    least."""

    def __init__(self, volume: WorkingVolume, seed: int) -> None:
        self.written = [0] * FILES
        self.troubles: list[BaseException] = []
        self._volume = volume
        self._seed = seed
        self._stop = threading.Event()
        self._handles = [
            volume.call(volume.engine.open_file, volume.find(b"f%d" % file), os.O_WRONLY) for file in range(FILES)
        ]
        works = (lambda: self._write(0), lambda: self._write(1), self._upload)
        self._threads = [threading.Thread(target=self._guarded, args=(work,)) for work in works]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.troubles.append(error)

    def _write(self, part: int) -> None:
        draw, number = random.Random(self._seed + part), 0
        while not self._stop.is_set():
            number += 1
            file = draw.randrange(part, FILES, 2)
            self._volume.call(self._volume.engine.write, self._handles[file], 0, number.to_bytes(8) * (SIZE // 8))
            self.written[file] = number
            self._stop.wait(draw.random() * 0.01)

    def _upload(self) -> None:
        while not self._stop.is_set():
            with suppress(CowfsError):
                self._volume.committer.upload_quiet(idle_s=0)


def check_version(store: ObjectStore, version: VersionId, home: Path, at_least: list[int]) -> None:
    with ReadingVolume(store, version, home / version.hex()[:8]) as reader:
        for file in range(FILES):
            data = reader.read(b"f%d" % file)
            found = {data[at : at + 8] for at in range(0, len(data), 8)}
            assert (len(data), len(found)) == (SIZE, 1), f"file {file} is of two moments"
            assert int.from_bytes(found.pop()) >= at_least[file], f"file {file} is older than promised"


@pytest.mark.slow
@pytest.mark.parametrize("probability", [0.0, 0.08], ids=["whole", "failing"])
def test_every_version_is_of_one_moment(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probability: float
) -> None:
    monkeypatch.setattr(refs, "APPEND_S", 0.2)
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 0.01)
    seed = random.SystemRandom().randrange(1 << 32)
    faulty = FaultyStore(store, seed=seed)
    promised: list[tuple[VersionId, list[int]]] = []
    with WorkingVolume(faulty, "v", tmp_path / "v") as volume:
        for file in range(FILES):
            volume.write(b"f%d" % file, bytes(SIZE))
        volume.commit()
        for fault in (Fault.FAIL, Fault.LOSE_REPLY):
            faulty.inject(fault, times=math.inf, probability=probability / 2)
        with Traffic(volume, seed) as traffic:
            while len(promised) < COMMITS and not traffic.troubles:
                before = list(traffic.written)
                with suppress(CowfsError):
                    base = volume.commit()
                    assert base.version_id is not None
                    promised.append((base.version_id, before))
        assert traffic.troubles == []
        faulty.heal()
        last = volume.commit()
        expected = volume.tree()
    line = [record.version for _, record in refs.history(store, refs.head("v")) if record.kind == "commit"]
    assert len(line) == len(set(line))
    assert last.version_id is not None
    with ReadingVolume(store, last.version_id, tmp_path / "last") as reader:
        assert reader.tree() == expected
    for version, before in promised[:: max(1, len(promised) // 6)]:
        check_version(store, version, tmp_path, before)
