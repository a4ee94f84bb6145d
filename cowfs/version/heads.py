"""Where a working copy stands in its volume's line when a writer comes (back): settles what a crash
left open.

A writer that died between writing down its intent (number n, write id) and learning the outcome
left one of three states:

    head n is ours            the commit happened: the base moves to it
    head n is another's       it did not; somebody else went on
    head n is absent          it did not, but the put may still be on its way

The third is closed by a fence: head n (same version, our new epoch), which the late put then cannot
replace. A fence is also what keeps a writer that lost its lease from publishing over us, so every
lease that was not given back gets one.

The protocol of several writers. The epochs of a line's heads never decrease:

    settling    a writer whose epoch is lower than the newest head's has been replaced: LeaseLostError, it may write nothing.
                Otherwise its base is a head number n that was the newest after it had settled.
    committing  creates exactly n + 1. If a higher epoch has fenced since, n + 1 exists and the commit is refused.

So whoever is paused between any two of these steps publishes nothing over its successor, and of
several that take over at once the highest epoch stays.
"""

from __future__ import annotations

from cowfs import clock
from cowfs.errors import ConflictError, LeaseLostError, NotFoundError
from cowfs.format.heads import UNCHANGED, Intent
from cowfs.format.records import HeadRecord
from cowfs.ids import WriteId
from cowfs.store import ObjectStore, refs
from cowfs.values import dataclass
from cowfs.version.volumes import Head, read_head


@dataclass(frozen=True)
class Settled:
    """head: the newest now. is_published: the intent's head is in the line, so its layer is
    committed."""

    head: Head
    is_published: bool


def settle_head(
    store: ObjectStore, volume: str, *, epoch: int, intent: Intent | None, needs_fence: bool, likely: int = 0
) -> Settled:
    """To be called by the holder of lease `epoch`, before it reads anything else of the volume.

    likely: as of `volumes.find_head`.
    needs_fence: the lease before was not given back. Afterwards no writer of an earlier epoch can
    publish. LeaseLostError: a writer of a later epoch has fenced or published; the intent, if any,
    stays to be settled.
    """
    head = read_head(store, volume, likely=likely)
    while (needs_fence or intent is not None) and head.epoch < epoch:
        record = HeadRecord(
            kind="fence",
            version=head.version,
            epoch=epoch,
            created_ns=clock.now_ns(),
            write_id=WriteId(clock.random_bytes(WriteId.length)),
        )
        try:
            refs.append(store, refs.head(volume), head.number + 1, record)
        except ConflictError:  # a late put came first: look again
            head = read_head(store, volume)
        else:
            head = Head(volume, head.number + 1, head.version, epoch, record.created_ns)
    if head.epoch > epoch:
        raise LeaseLostError(
            f"volume {volume} was taken over by another writer while this one (epoch {epoch}) was starting",
            hint="Nothing is lost. Do it again; a mount with take_over=True (--take-over) ends the other writer.",
            details={"epoch": epoch, "newer_epoch": head.epoch},
        )
    return Settled(head, intent is not None and _is_in_line(store, volume, intent))


def _is_in_line(store: ObjectStore, volume: str, intent: Intent) -> bool:
    """Asked once a fence stands behind or on the intent's number, so that the answer is final."""
    try:
        return refs.read(store, refs.head(volume), intent.number).write_id == intent.write_id
    except NotFoundError:
        return False


def is_only_fenced(store: ObjectStore, volume: str, after: int, head: Head) -> bool:
    """Whether no head behind number `after` up to `head` has changed the version, so that work made
    on `after` may go on behind `head`."""
    ref = refs.head(volume)
    numbers = range(head.number, after, -1)
    return head.number >= after and all(refs.read_earlier(store, ref, number).kind in UNCHANGED for number in numbers)
