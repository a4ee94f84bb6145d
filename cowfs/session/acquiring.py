"""What opening a volume consists of, whoever writes to it: a mount's engine (`opening`), or a bulk
upload, which has none (`publishing`).

Each step enters into the caller's ExitStack what must be given back. Lease and pin come before
anything of the volume is relied on; the working copy's lock comes before both. What is read earlier
(`early_base`) counts if the volume's head, read behind the pin, still is of that version: the
newest version is never collected.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs import apart, clock, config, log
from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidStateError,
    NotFoundError,
    UnavailableError,
    unusable,
)
from cowfs.ids import VersionId, WriteId
from cowfs.index import empty_index, open_index
from cowfs.machine.state import State
from cowfs.machine.working_copy import WorkingCopy, sweep
from cowfs.session.session import Writer
from cowfs.store import leases, open_store, refs
from cowfs.store.beside import beside
from cowfs.store.holder import current_holder
from cowfs.store.pins import Pin
from cowfs.version import quotas
from cowfs.version.commit import Base
from cowfs.version.heads import settle_head
from cowfs.version.history import open_version
from cowfs.version.protection import Protection
from cowfs.version.volumes import Head, read_head

if TYPE_CHECKING:
    from cowfs.control import SessionSpec
    from cowfs.format.records import StoreRecord
    from cowfs.index import Index
    from cowfs.store import Access, ObjectStore
    from cowfs.store.leases import Lease
    from cowfs.store.packs import PackReader

CLOSE_S = 4.0

_logger = log.get("mount")


_OTHER_CACHE = "set COWFS_CACHE_DIR to a directory that you may write to; mounts take cache_dir (--cache-dir), too."


def check_cache_dir(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        refusal = config.refused_writing(path)
    except OSError as error:
        raise unusable(error, f"the cache directory {path} cannot be made", elsewhere=_OTHER_CACHE) from error
    if refusal is not None:
        raise unusable(refusal, f"the cache directory {path} is not writable", elsewhere=_OTHER_CACHE)


def open_session_store(spec: SessionSpec, stack: ExitStack, access: Access) -> ObjectStore:
    store = open_store(spec.store_url, access=access)
    stack.callback(store.close)
    return store


def prepare_working_copy(spec: SessionSpec, working_copy: WorkingCopy, store: ObjectStore, record: StoreRecord) -> None:
    """Makes the first state, or checks that the one found belongs to this volume. The lock is
    held. What the caller has seen of the volume may be old: `claim` looks again."""
    sweep(working_copy.path.parent)
    if working_copy.exists:
        state = working_copy.state
        if (state.store_id, state.volume) != (record.store_id, spec.volume):
            raise InvalidStateError(
                f"{working_copy.path} belongs to volume {state.volume!r} of store {state.store_id}",
                hint="Another store stands at this URL now. Move the directory away to keep its work.",
            )
        if state.store_url != store.url:  # the same store by another way, or where it has moved to
            working_copy.store_state(replace(state, store_url=store.url))
        working_copy.remember_place()
        return
    working_copy.clear_remains()
    number, version = spec.head_number, spec.head_version
    if not number:
        head = read_head(store, spec.volume)
        number, version = head.number, str(head.version) if head.version is not None else None
    base = VersionId.from_hex(version) if version is not None else None
    working_copy.create_if_absent(State(store.url, record.store_id, spec.volume, number, base))
    working_copy.remember_place()


def require_no_copy(working_copy: WorkingCopy) -> None:
    """InvalidStateError: the volume's work lies in the folder of a copy, where nobody else would
    see it. LeaseHeldError: that folder is not to be seen here, and may be in another container."""
    if (copy := working_copy.copy) is not None:
        copy.require_not_elsewhere()
        path = copy.record.mount_path
        raise InvalidStateError(
            f"volume {working_copy.volume!r} is mounted as a copy at {path}, or has uncommitted work there",
            hint=f"Go on with the copy (`cowfs mount {working_copy.volume} {shlex.quote(path)}`, mount()). For a mount of the other "
            f"kind commit it first (`cowfs commit {working_copy.volume}`, commit()), and unmount it if it is mounted (`cowfs unmount "
            f"{working_copy.volume}`, unmount()); or drop it (`cowfs unmount {working_copy.volume} --discard`, discard()).",
            details={"mount_path": path},
        )


def claim(spec: SessionSpec, stack: ExitStack, store: ObjectStore, working_copy: WorkingCopy) -> tuple[Writer, Head]:
    """Lease and pin, and the volume's head with every earlier writer shut out."""
    state = working_copy.state
    try:
        lease, pin = _lease_and_pin(spec, stack, store, working_copy)
    except AccessDeniedError as error:
        raise AccessDeniedError(
            error.message,
            hint=f"{error.hint} To read the volume it need not be written to: `cowfs mount {spec.volume} --read-only`, "
            f"Volume.version({spec.volume!r}).mount().",
            details=error.details,
        ) from error
    working_copy.record_lease(lease.epoch, pin.key)
    protection = Protection(store, pin, lambda key: working_copy.record_lease(lease.epoch, key))
    settle = partial(
        settle_head,
        store,
        spec.volume,
        epoch=lease.epoch,
        intent=state.intent,
        needs_fence=lease.needs_fence,
        likely=state.head_number,
    )
    # Paused since the lease was taken? Then somebody may be writing already: better told now than
    # at the commit.
    if lease.needs_fence or state.intent is not None:
        settled = settle()
        if state.intent is not None:
            if settled.is_published:
                working_copy.record_published(state.intent)
            else:
                working_copy.drop_intent()
        lease.settled()
        lease.renew()
    else:
        settled, _ = beside(settle, protection.read_lists)
        if settled.head.number != state.head_number:  # by a fence, perhaps, behind a list that came after the look
            protection.forget_lists()
    return Writer(working_copy, lease, protection), settled.head


def _lease_and_pin(
    spec: SessionSpec, stack: ExitStack, store: ObjectStore, working_copy: WorkingCopy
) -> tuple[Lease, Pin]:
    """A new pin is put beside the lease. It names the lease: one that is left behind by somebody
    who was refused, and killed then, holds up no collection."""
    holder, state, left_epoch = current_holder(spec.place), working_copy.state, working_copy.left_epoch
    write_id = WriteId(clock.random_bytes(WriteId.length))
    find = partial(leases.find_vacancy, store, spec.volume, left_epoch=left_epoch)
    vacancy = find(take_over=spec.options.take_over, seen=spec.lease_epoch)
    may_be_old = spec.lease_epoch is not None

    def take_lease() -> Lease:
        nonlocal vacancy, may_be_old
        while True:
            try:
                lease = leases.take(store, spec.volume, vacancy, holder, write_id)
            except ConflictError:
                vacancy = find(take_over=spec.options.take_over and may_be_old, seen=vacancy.epoch)
                may_be_old = False
            else:
                stack.callback(_give_back, lease, working_copy)
                return lease

    made: list[Pin] = []

    def make_pin() -> None:
        owner = f"{holder.user}@{holder.host}"
        pin = Pin.create(store, volume=spec.volume, number=state.head_number, owner=owner, generation=0, lease=write_id)
        made.append(pin)

    if state.pin is not None:
        lease = take_lease()
        if (resumed := _resume_pin(store, state, write_id)) is not None:
            return lease, resumed
        make_pin()
        return lease, made[0]
    try:
        lease, _ = beside(take_lease, make_pin)
    except BaseException:
        for pin in made:
            within("remove the pin", pin.remove)
        raise
    return lease, made[0]


def _resume_pin(store: ObjectStore, state: State, lease: WriteId) -> Pin | None:
    """The pin the working copy has left, as a writer's and proven alive; None when there is none
    any more."""
    pin = Pin.resume(store, state.pin) if state.pin is not None else None
    try:
        if pin is not None:
            pin.renew(volume=state.volume, number=state.head_number, lease=lease)
    except NotFoundError:
        return None
    return pin


def _give_back(lease: Lease, working_copy: WorkingCopy) -> None:
    """Only without a head of unknown outcome: while its put may still arrive, the next writer has
    to fence it off."""
    if working_copy.exists and working_copy.state.intent is not None:
        _logger.warning("the outcome of a commit is not known; the lease is left to expire")
        return
    within("give the lease back", lease.release)


@contextmanager
def early_base(
    spec: SessionSpec, store: ObjectStore, packs: PackReader, working_copy: WorkingCopy
) -> Iterator[Callable[[Head, ExitStack], tuple[Base, Index] | None]]:
    """Opens the version on which the working copy stands while the block claims the volume. Gives a
    function that hands it over: of `head`, as `claim` has it, with what must be given back in the
    ExitStack; None if that is another version, or there was an error, which whoever opens it behind
    the claim will meet again."""
    state = working_copy.state

    def open_early() -> tuple[Base, Index] | None:
        try:
            base = open_base(store, state.head_number, state.base_version)
            return base, open_base_index(spec, early, store, packs, base)
        except CowfsError as error:
            _logger.info("the version could not be opened before it was claimed: %s", error)
            return None

    with ExitStack() as early, apart.meanwhile(open_early) as opened:

        def take(head: Head, stack: ExitStack) -> tuple[Base, Index] | None:
            found = opened()
            if found is None or head.version != state.base_version:
                return None
            stack.enter_context(early.pop_all())
            return replace(found[0], head_number=head.number), found[1]

        yield take


def quota_of(spec: SessionSpec, store: ObjectStore) -> int:
    """As of `quotas`."""
    return spec.quota_bytes if spec.quota_bytes is not None else quotas.read(store, spec.volume)


def open_base(store: ObjectStore, head_number: int, version: VersionId | None) -> Base:
    return Base(head_number, version, open_version(store, version) if version is not None else None)


@contextmanager
def moving_on(store: ObjectStore, working_copy: WorkingCopy) -> Iterator[None]:
    """While the version is opened that was the volume's newest when it was claimed.
    UnavailableError: it is that no more, and was collected; this machine may have slept
    meanwhile. NotFoundError: it is gone, and work stands on it."""
    try:
        yield
    except (NotFoundError, CorruptError) as error:
        state = working_copy.state
        is_bucket_there = error.details.get("code") != "NoSuchBucket"
        if isinstance(error, NotFoundError) and is_bucket_there and working_copy.may_have_uncommitted:
            raise working_copy.without_base(error) from error
        if working_copy.may_have_uncommitted or read_head(store, state.volume).version == state.base_version:
            raise
        raise UnavailableError(
            f"volume {state.volume!r} has moved on while it was being opened, perhaps while this machine slept",
            hint="Try again. Nothing is lost.",
        ) from error


def open_base_index(spec: SessionSpec, stack: ExitStack, store: ObjectStore, packs: PackReader, base: Base) -> Index:
    cache_dir = spec.options.cache_path
    if base.manifest is None:
        now_ns = _created_ns(spec, store)
        index = empty_index(cache_dir, uid=os.geteuid(), gid=os.getegid(), now_ns=now_ns, sealing=packs.sealing)
    else:
        index = open_index(store, packs, base.manifest.index, cache_dir=cache_dir)
    stack.callback(within, "close the index", index.close)  # a load may wait for the store in a query
    return index


def _created_ns(spec: SessionSpec, store: ObjectStore) -> int:
    """When the volume was made: the times of its root directory until something changes them, on
    every mount the same."""
    return refs.read_earlier(store, refs.head(spec.volume), refs.FIRST).created_ns


def within(what: str, action: Callable[[], None]) -> None:
    """For steps of the way out that need the store: one that does not answer keeps nobody from
    unmounting.

    What they leave behind expires; a thread left behind ends with the process.
    """

    def run() -> None:
        try:
            action()
        except CowfsError as error:
            _logger.warning("could not %s: %s", what, error)

    thread = threading.Thread(target=run, name=what, daemon=True)
    thread.start()
    thread.join(CLOSE_S)
    if thread.is_alive():
        _logger.warning("could not %s within %.0f s: the store does not answer", what, CLOSE_S)
