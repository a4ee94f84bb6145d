"""A program that forks reads on: workers of a data loader look into the version that their parent
opened, on a store of S3."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

from cowfs.blocking import ROVolume, Volume
from tests.api.conftest import place

__all__ = ["place"]

WATCHDOG_S = 120
FILES = {f"item-{n}": bytes([n]) * 3000 for n in range(6)}

pytestmark = [pytest.mark.s3, pytest.mark.usefixtures("place")]


@pytest.fixture
def version(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> ROVolume:
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    vol = Volume.new("data")
    for name, data in FILES.items():
        vol.files.write(name, data)
    return vol.finalize()


@pytest.fixture(autouse=True)
def forks_beside_threads() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def work(version: ROVolume, names: list[str], sender: Connection) -> None:
    own = Volume.from_locator(version.locator)
    sender.send({name: version.files.read(name) for name in names})
    assert [each.name for each in own.files.ls()] == sorted(FILES)


def test_workers_read_what_their_parent_has_opened(version: ROVolume) -> None:
    assert version.files.read("item-1") == FILES["item-1"]
    context, names = multiprocessing.get_context("fork"), sorted(FILES)
    for _ in range(2):
        workers = []
        for share in (names[::2], names[1::2]):
            receiver, sender = multiprocessing.Pipe(duplex=False)
            process = context.Process(target=work, args=(version, share, sender), daemon=True)
            process.start()
            workers.append((process, receiver, share))
        for process, receiver, share in workers:
            assert receiver.poll(WATCHDOG_S)
            assert receiver.recv() == {name: FILES[name] for name in share}
            process.join(WATCHDOG_S)
            assert process.exitcode == 0
    assert version.files.read("item-2") == FILES["item-2"]
