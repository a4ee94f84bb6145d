"""The names of volumes in a store: claiming one, looking one up, listing them.

A volume exists as soon as its head number 1 does: `create` (no version yet) or `fork` (points to an
existing version). That one create-only object claims the name, so that of several claimants one
wins, and a crash leaves either no volume or a complete one. The meta record is written after it; a
volume without one has no settings, so a failure to write it is not a failure to create the volume.
If there is a record and no head 1, heads were deleted, and `create` refuses the name: a new head
would take the place of the lost one. A head of kind `void` says that the volume was forked too late
and has no usable version. One of kind `delete` says that the volume is deleted, unless an
`undelete` follows (`deletion`); a `void` behind it makes that permanent.

Cost: creating is a list and two objects, a fork two objects and the protection of its source
(`keeping`); listing is two requests a volume. Not here: leases (`store.refs.leases`), adding heads
(`heads`, `publish`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

from cowfs.base import clock, log
from cowfs.base.errors import AccessDeniedError, ConflictError, CowfsError, NotFoundError, report_done
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId, WriteId
from cowfs.format import keys
from cowfs.format.locator import Locator
from cowfs.format.records import HeadRecord, MetaRecord
from cowfs.format.store_url import StoreUrl
from cowfs.store import ObjectStore, remembering
from cowfs.store.refs import refs
from cowfs.store.refs.beside import beside
from cowfs.version.retention.keeping import being_deleted, keeping

if TYPE_CHECKING:
    from cowfs.version.publish.settings import Settings

_log = log.get("volumes")

_PAGE = 1000  # objects of a list
_TAKEN = "Its name stays taken. Choose another one."


@dataclass(frozen=True)
class Seen:
    """Objects that were read together with a head, for the next opening of the volume (`seen`).
    objects: by key. lease_epoch: the newest in a list, 0: no lease; None: not known. settings:
    None: not known."""

    objects: Mapping[str, bytes]
    lease_epoch: int | None
    settings: Settings | None


@dataclass(frozen=True)
class Head:
    """A volume's newest head: version None until the first commit. write_id, check: of its
    record."""

    volume: str
    number: int
    version: VersionId | None
    epoch: int
    created_ns: int
    is_void: bool = False
    is_deleted: bool = False
    write_id: WriteId | None = field(default=None, compare=False, repr=False)
    check: str | None = field(default=None, compare=False, repr=False)
    seen: Seen | None = field(default=None, compare=False, repr=False)


def create_volume(store: ObjectStore, name: str, *, owner: str = "") -> Head:
    """Claims `name` for a volume without versions. ConflictError: the name is taken. CorruptError:
    it is taken by a volume that has lost its heads."""
    require_first_head(store, name)
    head = _claim(store, name, None, None)
    _describe(store, head, owner)
    return head


def fork_volume(store: ObjectStore, name: str, source: Locator, *, owner: str = "") -> Head:
    """Claims `name` for a volume whose first version is `source`'s, sharing every byte.

    ConflictError: the name is taken. NotFoundError: the store has no such version, or a collection
    is deleting it. The message of any other error says so if the volume was made.
    """
    with keeping(store, source.volume, source.version, owner=owner) as kept:
        if store.size(keys.version(source.version)) is None:
            raise NotFoundError(
                f"{store.url} has no version {source.version}",
                hint=f"It may have been deleted, or the locator names another store. {Command('log')} and history() list versions.",
            )
        head = _claim(store, name, source.version, str(source))
        try:
            _, is_alive = beside(partial(_describe, store, head, owner), kept.end)
        except CowfsError as error:
            raise report_done(
                error,
                f"volume {name!r} was made, but whether its version was kept from a collection meanwhile is not known",
                hint=f"The volume is yours: {Command('verify', name)}, Store().verify({name!r}), shows whether its version is whole; "
                f"if it is not, {Command('delete', name)} and fork another one. Uncommitted work has not moved there: fork it "
                "again, under another name.",
            ) from error
        if not is_alive:  # this process slept too long: the version may have been deleted
            _make_void(store, head)
            raise being_deleted(store, source.version)
        return head


def require_free(store: ObjectStore, name: str) -> None:
    """ConflictError: a new volume cannot have the name, as far as that is known in advance."""
    if find_head(store, name) is not None:
        raise _error_of_taken_name(store, name)


def require_first_head(store: ObjectStore, name: str) -> None:
    """CorruptError: the volume has a record but not its first head, which is put before the record.
    Costs a list, and the head if there is a record; without permission to list, nothing is
    reported."""
    has_record = 0
    with suppress(AccessDeniedError):
        has_record = refs.newest_listed(store, refs.meta(name))
    if has_record:
        hint = (
            f"Restore the missing objects below {keys.head_prefix(name)} from a backup of the store, or from the bucket's "
            f"earlier versions. To give the volume up, remove all objects below {keys.volume(name)} in the store by hand, "
            f"and accept that ({Command('store', 'accept', '--volume', name)}, storage.accept_store())."
        )
        refs.read_earlier(store, refs.head(name), refs.FIRST, hint=hint)


def _make_void(store: ObjectStore, head: Head) -> None:
    write_id = WriteId(clock.random_bytes(WriteId.length))
    record = HeadRecord("void", None, head.epoch, clock.now_ns(), write_id, prev=head.check)
    refs.append(store, refs.head(head.volume), head.number + 1, record)


def find_head(store: ObjectStore, name: str, *, likely: int = 0) -> Head | None:
    """The newest head of a volume; None: it never had one. likely: the number of a recently newest
    head, 0 if unknown; it saves a list if it is still the newest."""
    ref = refs.head(name)
    found = refs.newest_from(store, ref, likely) if likely >= refs.FIRST else refs.newest(store, ref)
    if found is None:
        return None
    return head_of(name, *found)


def head_of(name: str, number: int, record: HeadRecord, seen: Seen | None = None) -> Head:
    return Head(
        name,
        number,
        record.version,
        record.epoch,
        record.created_ns,
        is_void=record.kind == "void",
        is_deleted=record.kind == "delete",
        write_id=record.write_id,
        check=record.check or None,
        seen=seen,
    )


def read_head(store: ObjectStore, name: str, *, likely: int = 0) -> Head:
    """As `find_head`. NotFoundError: there is no such volume, it was deleted, or forked from a
    version that was being deleted. CorruptError: it has lost its heads."""
    return require_usable(store, name, find_head(store, name, likely=likely))


def require_usable(store: ObjectStore, name: str, head: Head | None) -> Head:
    """Returns the result of `find_head`, or raises the errors of `read_head`."""
    if head is not None and head.is_void:
        raise NotFoundError(_describe_gone(store, name), hint=_TAKEN)
    if head is not None and head.is_deleted:
        raise NotFoundError(
            f"volume {name!r} of {store.url} was deleted",
            hint=f"{Command('undelete', name)}, or Store().undelete({name!r}), brings it back.",
            details={"is_deleted": True},
        )
    if head is None:
        require_first_head(store, name)
        if (error := find_loss(store, name)) is not None:
            raise error
        raise NotFoundError(
            f"{store.url} has no volume {name!r}",
            hint=f"{Command('ls')}, or Store().volumes(), lists the volumes; {Command('create', name)}, or "
            f"Volume.new({name!r}), makes this one.",
        )
    return head


def find_loss(store: ObjectStore, name: str) -> CowfsError | None:
    """The error if the store shows no head of this volume, but this machine has seen one."""
    ref = refs.head(name)
    known = remembering.read_mark(store, ref)
    if known is None or refs.newest_listed(store, ref) >= refs.FIRST:
        return None
    return remembering.rollback_error(store, ref, known, 0)


def volume_names(store: ObjectStore, *, limit: int | None = None, start: str = "") -> list[str]:
    """Names of the store's volumes in the order of their keys: one list request for each _PAGE
    objects, and one for each volume with more objects. start: leaves out earlier names."""
    names: dict[str, None] = {}
    after = keys.VOLUMES + start if start else ""
    while limit is None or len(names) < limit:
        found = store.list(keys.VOLUMES, start_after=after, limit=_PAGE)
        for info in found:
            if (name := keys.parse_volume(info.key)) is not None:  # otherwise not a key of cowfs
                names[name] = None
        if len(found) < _PAGE:
            break
        last = keys.parse_volume(found[-1].key)
        after = found[-1].key if last is None else keys.volume(last)[:-1] + "0"  # "0" is the character after "/"
    return list(names)[:limit]


def locator(store: ObjectStore, volume: str, version: VersionId) -> Locator:
    return Locator(StoreUrl.parse(store.url), volume, version)


def _claim(store: ObjectStore, name: str, version: VersionId | None, source: str | None) -> Head:
    keys.check_volume_name(name)
    record = HeadRecord(
        kind="create" if version is None else "fork",
        version=version,
        epoch=0,
        created_ns=clock.now_ns(),
        write_id=WriteId(clock.random_bytes(WriteId.length)),
        source=source,
    )
    try:
        return head_of(name, refs.FIRST, refs.append(store, refs.head(name), refs.FIRST, record))
    except ConflictError as error:
        raise _error_of_taken_name(store, name) from error


def _describe(store: ObjectStore, head: Head, owner: str) -> None:
    """Writes the meta record of a volume that was just claimed."""
    meta = MetaRecord(owner=owner, created_ns=head.created_ns, write_id=WriteId(clock.random_bytes(WriteId.length)))
    try:
        refs.append(store, refs.meta(head.volume), 1, meta)
    except CowfsError as error:
        _log.warning("volume %s was made, without a record of its owner: %s", head.volume, error)


def _describe_gone(store: ObjectStore, name: str) -> str:
    return (
        f"volume {name!r} of {store.url} is gone for good: it was deleted too long ago, or forked from a version that "
        "was being deleted"
    )


def _error_of_taken_name(store: ObjectStore, name: str) -> ConflictError:
    head = find_head(store, name)
    if head is not None and head.is_deleted:
        return ConflictError(
            f"{store.url} keeps a volume {name!r} that was deleted",
            hint=f"Choose another name, or bring it back: {Command('undelete', name)}, Store().undelete({name!r}).",
            details={"volume": name},
        )
    if head is not None and head.is_void:
        return ConflictError(_describe_gone(store, name), hint=_TAKEN, details={"volume": name})
    return ConflictError(
        f"{store.url} has a volume {name!r} already",
        hint=f"Choose another name, or open the existing volume: {Command('mount', name, 'PATH')}, Volume.open({name!r}).",
        details={"volume": name},
    )
