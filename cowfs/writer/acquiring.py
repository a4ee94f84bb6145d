"""The steps of opening a volume, shared by its two kinds of writer: a mount's engine (`opening`)
and a bulk upload, which has no engine (`publishing`).

Each step registers its cleanup on the caller's ExitStack. The working copy's lock is taken before
lease and pin, and both before any data of the volume is relied on. Data read earlier (`early_base`)
is used only if the volume's head, read after the pin was set, is still of that version: the newest
version is never collected.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.base import clock, config, interruptible, log, private_directories
from cowfs.base.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidStateError,
    NotFoundError,
    UnavailableError,
    unusable,
)
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId, WriteId
from cowfs.index import empty_index, open_index
from cowfs.machine import left_notes
from cowfs.machine.state import State
from cowfs.machine.working_copy import WorkingCopy, sweep
from cowfs.store import open_store
from cowfs.store.refs import leases, refs
from cowfs.store.refs.beside import beside
from cowfs.store.refs.holder import current_holder
from cowfs.store.refs.pins import Pin
from cowfs.version.commit import Base
from cowfs.version.history import open_version
from cowfs.version.names.volumes import Head, read_head
from cowfs.version.publish import settings
from cowfs.version.publish.heads import settle_head
from cowfs.version.publish.protection import Protection
from cowfs.version.publish.settings import Settings
from cowfs.version.purged_versions import naming_purged_version
from cowfs.writer.writer import Writer

if TYPE_CHECKING:
    from cowfs.control import SessionSpec
    from cowfs.format.records import StoreRecord
    from cowfs.index import Index
    from cowfs.store import Access, ObjectStore
    from cowfs.store.packs import PackReader
    from cowfs.store.refs.leases import Lease

CLOSE_S = 4.0

_logger = log.get("mount")


_OTHER_CACHE = "set COWFS_CACHE_DIR to a directory that you may write to; mounts take cache_dir (--cache-dir), too."


def check_cache_dir(path: Path) -> None:
    try:
        private_directories.make_cache(path)
        refusal = config.find_write_refusal(path)
    except OSError as error:
        raise unusable(error, f"the cache directory {path} cannot be created", elsewhere=_OTHER_CACHE) from error
    if refusal is not None:
        raise unusable(refusal, f"the cache directory {path} is not writable", elsewhere=_OTHER_CACHE)


def open_session_store(spec: SessionSpec, stack: ExitStack, access: Access) -> ObjectStore:
    store = open_store(spec.store_url, access=access)
    stack.callback(store.close)
    return store


def prepare_working_copy(spec: SessionSpec, working_copy: WorkingCopy, store: ObjectStore, record: StoreRecord) -> None:
    """Creates the first state, or checks that the existing one belongs to this volume. Call with
    the lock held. The caller's knowledge of the volume may be old: `claim` checks again."""
    sweep(working_copy.path.parent)
    if working_copy.exists:
        state = working_copy.state
        if (state.store_id, state.volume) != (record.store_id, spec.volume):
            raise InvalidStateError(
                f"{working_copy.path} belongs to volume {state.volume!r} of store {state.store_id}",
                hint="This URL now leads to another store. Move the directory away to keep its work.",
            )
        if state.store_url != store.url:  # the same store under another URL, or moved
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
    """InvalidStateError: the volume's work is in the folder of a copy, where a mount would not see
    it. LeaseHeldError: that folder is not visible here, and may be in another container."""
    if (copy := working_copy.copy) is not None:
        copy.require_not_elsewhere()
        path = copy.record.mount_path
        raise InvalidStateError(
            f"volume {working_copy.volume!r} is mounted as a copy at {path}, or has uncommitted work there",
            hint=f"Continue with the copy ({Command('mount', working_copy.volume, path)}, mount()). For a mount of the other "
            f"kind commit it first ({Command('commit', working_copy.volume)}, commit()), and unmount it if it is mounted "
            f"({Command('unmount', working_copy.volume)}, unmount()); or drop it "
            f"({Command('unmount', working_copy.volume, '--discard')}, discard()).",
            details={"mount_path": path},
        )


def claim(spec: SessionSpec, stack: ExitStack, store: ObjectStore, working_copy: WorkingCopy) -> tuple[Writer, Head]:
    """Takes lease and pin, and reads the volume's head after fencing off every earlier writer."""
    state = working_copy.state
    try:
        lease, pin = _lease_and_pin(spec, stack, store, working_copy)
    except AccessDeniedError as error:
        raise AccessDeniedError(
            error.message,
            hint=f"{error.open_hint} Reading the volume needs no write access: {Command('mount', spec.volume, 'PATH', '--read-only')}, "
            f"Volume.version({spec.volume!r}).mount().",
            details=error.details,
        ) from error
    working_copy.record_lease(lease.epoch, pin.key)
    left_notes.delete(working_copy.path)
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
    # If this process was paused since it took the lease, another writer may be active already: fail
    # now rather than at the commit.
    if lease.needs_fence or state.intent is not None:
        settled = settle()
        if state.intent is not None:
            if settled.is_published:
                working_copy.record_published(state.intent)
            else:
                working_copy.drop_intent()
        lease.settle()
        lease.renew()
    else:
        settled, _ = beside(settle, protection.read_lists)
        if settled.head.number != state.head_number:  # a fence, perhaps, after a list newer than the one read
            protection.forget_lists()
    return Writer(working_copy, lease, protection), settled.head


def _lease_and_pin(
    spec: SessionSpec, stack: ExitStack, store: ObjectStore, working_copy: WorkingCopy
) -> tuple[Lease, Pin]:
    """Takes the lease and sets a new pin in parallel. The pin names the lease, so that a pin left
    by a writer that was refused and then killed does not block a collection."""
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
            try_cleanup("remove the pin", pin.remove)
        raise
    return lease, made[0]


def _resume_pin(store: ObjectStore, state: State, lease: WriteId) -> Pin | None:
    """Renews the pin that the working copy has left and returns it as a writer's; None if it is
    gone."""
    pin = Pin.resume(store, state.pin) if state.pin is not None else None
    try:
        if pin is not None:
            pin.renew(volume=state.volume, number=state.head_number, lease=lease)
    except NotFoundError:
        return None
    return pin


def _give_back(lease: Lease, working_copy: WorkingCopy) -> None:
    """Releases the lease, unless a head's outcome is unknown: while its put may still arrive, the
    next writer has to fence it off."""
    if working_copy.exists and working_copy.state.intent is not None:
        _logger.warning("the outcome of a commit is not known; the lease is left to expire")
        return
    try_cleanup("release the lease", lease.release)


@contextmanager
def early_base(
    spec: SessionSpec, store: ObjectStore, packs: PackReader, working_copy: WorkingCopy
) -> Iterator[Callable[[Head, ExitStack], tuple[Base, Index] | None]]:
    """Opens the base version of the working copy while the block claims the volume. Yields a
    function that returns it for `head`, as read by `claim`, and registers the cleanup on the
    ExitStack. It returns None if the head is of another version, or after an error, which a later
    attempt to open the version raises again."""
    state = working_copy.state

    def open_early() -> tuple[Base, Index] | None:
        try:
            base = open_base(store, state.head_number, state.base_version)
            return base, open_base_index(spec, early, store, packs, base)
        except CowfsError as error:
            _logger.info("the version could not be opened before the volume was claimed: %s", error)
            return None

    with ExitStack() as early, interruptible.meanwhile(open_early) as opened:

        def take(head: Head, stack: ExitStack) -> tuple[Base, Index] | None:
            found = opened()
            if found is None or head.version != state.base_version:
                return None
            stack.enter_context(early.pop_all())
            return replace(found[0], head_number=head.number), found[1]

        yield take


def settings_of(spec: SessionSpec, store: ObjectStore) -> Settings:
    if spec.quota_bytes is not None and spec.compress is not None:
        return Settings(spec.quota_bytes, spec.compress)
    return settings.read(store, spec.volume)


def open_base(store: ObjectStore, head_number: int, version: VersionId | None) -> Base:
    return Base(head_number, version, open_version(store, version) if version is not None else None)


@contextmanager
def moving_on(store: ObjectStore, working_copy: WorkingCopy) -> Iterator[None]:
    """Wraps opening the version that was the volume's newest when it was claimed. UnavailableError:
    a newer one exists and this one was collected, perhaps while this machine slept. NotFoundError:
    the version is gone, and uncommitted work depends on it."""
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
            f"volume {state.volume!r} got a newer version while it was being opened, perhaps while this machine slept",
            hint="Try again. Nothing is lost.",
        ) from error


def open_base_index(spec: SessionSpec, stack: ExitStack, store: ObjectStore, packs: PackReader, base: Base) -> Index:
    cache_dir = spec.options.cache_path
    if base.manifest is None:
        now_ns = _read_created_ns(spec, store)
        index = empty_index(cache_dir, uid=os.geteuid(), gid=os.getegid(), now_ns=now_ns, sealing=packs.sealing)
    else:
        assert base.version_id is not None
        with naming_purged_version(store, spec.volume, base.version_id):
            index = open_index(store, packs, base.manifest.index, cache_dir=cache_dir)
    stack.callback(try_cleanup, "close the index", index.close)  # a load may wait for the store in a query
    return index


def _read_created_ns(spec: SessionSpec, store: ObjectStore) -> int:
    """When the volume was created. Its root directory has this time on every mount until something
    changes it."""
    return refs.read_earlier(store, refs.head(spec.volume), refs.FIRST).created_ns


def try_cleanup(what: str, action: Callable[[], None]) -> None:
    """Runs a cleanup step that needs the store for at most CLOSE_S, so that a store that does not
    answer does not block unmounting.

    What the step leaves behind expires; a thread left behind ends with the process.
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
