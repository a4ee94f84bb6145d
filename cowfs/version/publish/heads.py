"""Settles the position of a working copy in its volume's line when a writer starts, and what a
crash has left open.

A writer that died between writing down its intent (number n, write id) and learning the outcome
left one of three states:

    head n is ours            the commit happened: the base moves to it
    head n is another's       it did not; another writer continued
    head n is absent          it did not, but the put may still be on its way

A fence closes the third state: head n (same version, our new epoch), which the late put then cannot
replace. A fence also keeps a writer that lost its lease from publishing over us, so every lease
that was not released gets one.

The protocol of several writers. The epochs of a line's heads never decrease:

    settling    a writer whose epoch is lower than the newest head's has been replaced: LeaseLostError, it may write nothing.
                Otherwise its base is a head number n that was the newest after it had settled.
    committing  creates exactly n + 1. If a higher epoch has fenced since, n + 1 exists and the commit is refused.

So a writer that is paused between any two of these steps publishes nothing over its successor, and
if several take over at once, the highest epoch stays.
"""

from __future__ import annotations

from cowfs.base import clock
from cowfs.base.errors import ConflictError, LeaseLostError, NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import WriteId
from cowfs.format.heads import UNCHANGED, Intent
from cowfs.format.records import HeadRecord
from cowfs.store import ObjectStore
from cowfs.store.refs import refs
from cowfs.version.names.volumes import Head, head_of, read_head


@dataclass(frozen=True)
class Settled:
    """head: the newest now. is_published: the intent's head is in the line, so its layer is
    committed."""

    head: Head
    is_published: bool


def settle_head(
    store: ObjectStore, volume: str, *, epoch: int, intent: Intent | None, needs_fence: bool, likely: int = 0
) -> Settled:
    """Call it as the holder of lease `epoch`, before reading anything else of the volume.

    likely: as for `volumes.find_head`.
    needs_fence: the previous lease was not released. Afterwards no writer of an earlier epoch can
    publish. LeaseLostError: a writer of a later epoch has fenced or published; the intent, if any,
    stays unsettled.
    """
    head = read_head(store, volume, likely=likely)
    while (needs_fence or intent is not None) and head.epoch < epoch:
        record = HeadRecord(
            kind="fence",
            version=head.version,
            epoch=epoch,
            created_ns=clock.now_ns(),
            write_id=WriteId(clock.random_bytes(WriteId.length)),
            prev=head.check,
        )
        try:
            head = head_of(volume, head.number + 1, refs.append(store, refs.head(volume), head.number + 1, record))
        except ConflictError:  # a late put came first: look again
            head = read_head(store, volume)
    if head.epoch > epoch:
        raise LeaseLostError(
            f"volume {volume} was taken over by another writer while this one (epoch {epoch}) was starting",
            hint="Nothing is lost. Do it again; a mount with take_over=True (--take-over) ends the other writer.",
            details={"epoch": epoch, "newer_epoch": head.epoch},
        )
    return Settled(head, intent is not None and _is_in_line(store, volume, intent))


def _is_in_line(store: ObjectStore, volume: str, intent: Intent) -> bool:
    """Call it once a fence is on or behind the intent's number, so that the answer is final."""
    try:
        return refs.read(store, refs.head(volume), intent.number).write_id == intent.write_id
    except NotFoundError:
        return False


def is_only_fenced(store: ObjectStore, volume: str, after: int, head: Head) -> bool:
    """Whether no head behind number `after` up to `head` has changed the version, so that work
    based on `after` may continue behind `head`."""
    if head.number <= after:
        return head.number == after
    line = refs.one_by_one(store, refs.head(volume), range(head.number, after, -1))
    return all(record.kind in UNCHANGED for _, record in line)
