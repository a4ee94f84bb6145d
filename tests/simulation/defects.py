"""Puts defects back that were there once, or could be, and counts the seeds until the simulation
finds each.

    python -m tests.simulation.defects [SEEDS [DEFECT]]

A defect that is not found any more means that the simulation has lost its sight: look at its
probabilities.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cowfs.errors import ConflictError, LeaseLostError
from cowfs.session import acquiring
from cowfs.session.committer import Committer
from cowfs.store import ObjectStore, refs
from cowfs.store.leases import Lease
from cowfs.store.packs import PackReader
from cowfs.store.pins import Pin
from cowfs.version import heads
from cowfs.version.heads import Settled, settle_head
from cowfs.version.protection import Protection
from cowfs.version.publish import Publisher
from cowfs.version.volumes import find_head, read_head
from tests.simulation.test_simulation import simulate

TURNS = 3000


def superseded_writer_goes_on(patch: pytest.MonkeyPatch) -> None:
    """A writer paused between its lease and its look at the head takes its successor's fence for
    its own."""

    def settle(store: ObjectStore, volume: str, **arguments: Any) -> Settled:
        try:
            return settle_head(store, volume, **arguments)
        except LeaseLostError:
            return Settled(read_head(store, volume), False)

    patch.setattr(acquiring, "settle_head", settle)
    patch.setattr(Lease, "renew", lambda self: None)


def takeover_without_a_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "needs_fence", property(lambda self: False))


def deduplication_onto_lost_chunks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PackReader, "has_failed", lambda self, pack, hash: False)
    patch.setattr(PackReader, "has_read", lambda self, pack: True)


def fence_stepped_over(patch: pytest.MonkeyPatch) -> None:
    """Behind a collection's fence the writer puts what it had prepared before."""
    put_version = Publisher._put_version

    def step_over(self: Publisher, prepared: Any) -> bool:
        while not put_version(self, prepared):
            self.chunks._proven_lapses = self._protection.lapses
        return True

    patch.setattr(Publisher, "_put_version", step_over)


def unsettled_head_acknowledges(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Protection, "is_bound", property(lambda self: False, lambda self, value: None), raising=False)
    patch.setattr(
        Committer,
        "heed_collections",
        lambda self: self._publisher.acknowledge(),
    )


def pin_resurrected(patch: pytest.MonkeyPatch) -> None:
    def append(self: Pin, record: Any) -> None:
        while True:
            try:
                refs.append(self._store, refs.pin(self._id), self._at + 1, record)
            except ConflictError:
                self._at += 1
                continue
            self._at += 1
            self._record, self._written_s = record, 0.0
            return

    patch.setattr(Pin, "_append", append)


def lists_not_compared_before_the_head(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publisher, "_may_be_published", lambda self, prepared: True)


def deleted_volume_fenced(patch: pytest.MonkeyPatch) -> None:
    """A writer that comes while the volume is deleted brings it back by its fence."""
    patch.setattr(heads, "read_head", find_head)


DEFECTS: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    superseded_writer_goes_on,
    takeover_without_a_fence,
    deduplication_onto_lost_chunks,
    fence_stepped_over,
    unsettled_head_acknowledges,
    pin_resurrected,
    lists_not_compared_before_the_head,
    deleted_volume_fenced,
)


def seeds_until_found(defect: Callable[[pytest.MonkeyPatch], None], limit: int) -> tuple[int, str] | None:
    """(how many, what was said), None: not found."""
    for seed in range(limit):
        with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
            defect(patch)
            try:
                simulate(seed, Path(home), patch, TURNS)
            except AssertionError as error:
                return seed + 1, str(error).partition("\n")[0]
    return None


def main() -> None:
    logging.disable(logging.CRITICAL)
    limit = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    for defect in DEFECTS:
        if sys.argv[2:] and defect.__name__ not in sys.argv[2:]:
            continue
        found = seeds_until_found(defect, limit)
        print(defect.__name__, "not found" if found is None else f"found by seed {found[0]}: {found[1]}", flush=True)


if __name__ == "__main__":
    main()
