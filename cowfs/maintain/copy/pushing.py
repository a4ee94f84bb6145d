"""Copies versions of a volume to another store, under the same ids: everything that is hashed is
copied byte for byte.

    pin at the target ─▶ condemned lists ─▶ packs (`pack_copies`) ─▶ manifests ─▶ lists again ─▶ lease ─▶ heads ─▶ tags
                                ▲                                                    │
                                └── a relied-on object was condemned, the pin was dead, a collection's fence

A head is appended at the target for each version, so that each is protected there. It has the time
of the head at the source, so that NAME@{TIME} and rules for pruning mean the same there. The
target's last version must be the source's, or an ancestor of the pushed versions: nothing at the
target is ever replaced, except a damaged manifest, which gets the bytes that its id names. Nothing
is inserted before the target's last version either. An earlier version counts as present at the
target only if a head keeps it; being named by a parent or a pruned head is not enough. After an
interruption, the next run finds the copied objects and copies the rest.

The push heeds the target's collections as any writer does (`version.publish.protection`): a pin
before the first look, lists read before the head, everything proven again after a fence. Not
thread-safe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import partial
from pathlib import Path

from cowfs.base import clock
from cowfs.base.errors import ConflictError, CorruptError, CowfsError, NotFoundError
from cowfs.base.failpoints import hit
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import PackId, VersionId, WriteId
from cowfs.format import keys
from cowfs.format.manifest import Manifest
from cowfs.format.record import Holder
from cowfs.format.records import HeadRecord
from cowfs.maintain.copy.pack_copies import InParts, PackCopies
from cowfs.store import ObjectStore, scratch_objects
from cowfs.store.packs import load_purged
from cowfs.store.refs import leases, refs
from cowfs.store.refs.pins import Pin, lately_condemned, load_collected_records, load_condemned_versions
from cowfs.store.reliability.damaged import read_as
from cowfs.store.sealed import sealing_of
from cowfs.version.commit import Progress, ProgressListener
from cowfs.version.history import history, open_version
from cowfs.version.names import head_line, quotas, tags
from cowfs.version.names.head_line import Step
from cowfs.version.names.volumes import Head, create_volume, find_head, require_usable, volume_names
from cowfs.version.publish import settings
from cowfs.version.publish.heads import settle_head
from cowfs.version.publish.protection import Protection

ACKNOWLEDGE_EVERY_S = 60.0


@dataclass(frozen=True)
class Pushed:
    """The result of a push. heads: versions added to the target's volume; versions: those whose
    packs were looked for; packs: needed by these; put_packs: those that the target did not have;
    tags: set there. mended: versions whose manifests were damaged there, and were put again.
    left_out: earlier versions that the target's volume does not get, since it has a later one;
    left_out_tags: tags on those. pruned: versions that were pruned there."""

    heads: list[VersionId]
    versions: int
    packs: int
    put_packs: int
    put_bytes: int
    tags: list[str]
    mended: list[VersionId]
    left_out: list[VersionId]
    left_out_tags: list[str]
    pruned: set[VersionId]


class Push:
    """volume: at the source; name: at the target. versions: oldest first."""

    def __init__(
        self,
        source: ObjectStore,
        target: ObjectStore,
        volume: str,
        name: str,
        versions: Sequence[VersionId],
        *,
        holder: Holder,
        owner: str,
        cache_dir: Path,
        progress: ProgressListener,
        in_parts: InParts | None = None,
    ) -> None:
        """in_parts: as for `PackCopies`."""
        self._source = source
        self._target = target
        self._volume = volume
        self._name = name
        self._versions = versions
        self._holder = holder
        self._owner = owner
        self._progress = progress
        self._copies = PackCopies(source, target, cache_dir, self._report_packs, in_parts=in_parts)
        self._protection: Protection | None = None
        self._acknowledged_s = clock.monotonic_s()
        self._wanted: list[VersionId] = []
        self._needed: set[PackId] = set()
        self._line = _Line()
        self._heads: list[VersionId] = []
        self._mended: list[VersionId] = []

    def run(self, *, with_tags: bool) -> Pushed:
        head = find_head(self._target, self._name)
        if head is not None:
            require_usable(self._target, self._name, head)
        left = self._begin(head)  # raises before anything is copied
        if head is not None and left:
            self._check_quota(head, left[-1])
        with self._hold_pin(head.number if head is not None else 0) as protection:
            self._publish(protection, head, left)
        kept = self._line.kept | set(self._heads)
        left_out = [version for version in self._versions[:-1] if version not in kept]
        set_tags, left_out_tags = self._push_tags(kept) if with_tags else ([], [])
        copied = self._copies.copied
        return Pushed(
            self._heads,
            len(self._wanted),
            len(self._needed),
            copied.packs,
            copied.bytes,
            set_tags,
            self._mended,
            left_out if with_tags else [],
            left_out_tags,
            self._line.pruned,
        )

    def _begin(self, head: Head | None) -> list[VersionId]:
        """As `_find_missing`. Then computes which versions the target should have, and which packs
        they need; missing packs of versions that heads keep there are copied again."""
        self._line = _line_of(self._target, head) if head is not None else _Line()
        left = self._find_missing(head)
        wanted = {*left, *self._line.kept, self._versions[-1]}
        if not wanted.intersection(self._versions) <= set(self._wanted):
            self._wanted = [version for version in self._versions if version in wanted]
            self._progress(Progress("versions", 0, len(self._versions)))
            gone = load_purged(self._source).versions | load_purged(self._target).versions
            whole = [version for version in self._wanted if version not in gone]
            self._needed = self._copies.find_needed([open_version(self._source, version) for version in whole])
        return left

    def _check_quota(self, head: Head, newest: VersionId) -> None:
        before = self._open_version(head.version).stats.bytes if head.version is not None else 0
        quota_bytes = settings.read(self._target, self._name).quota_bytes
        quotas.check(self._name, quota_bytes, before, open_version(self._source, newest).stats.bytes)

    def _open_version(self, version: VersionId) -> Manifest:
        """Opens a version of the target; if it is damaged there, the source's."""
        try:
            return open_version(self._target, version)
        except CorruptError:
            with suppress(NotFoundError):
                return open_version(self._source, version)
            raise

    # -- what the target lacks

    def _find_missing(self, head: Head | None) -> list[VersionId]:
        """Versions after the target's last one. ConflictError: the target has diverged, or is ahead
        and does not keep the newest of them."""
        last = head.version if head is not None else None
        if head is None or last is None:
            return list(self._versions)
        if last in self._versions:
            at = len(self._versions) - 1 - list(reversed(self._versions)).index(last)
            return list(self._versions[at + 1 :])
        newest = self._versions[-1]
        newer = None
        with suppress(CorruptError):  # a head is damaged or missing: parents decide then
            newer = _line_since(self._source, self._volume, last, newest)
        if newer is not None:
            return [version for version in self._versions if version in newer]
        if newest in self._line.kept:
            return []
        if _is_in_history(self._source, last, of=newest):
            older = {past.version for past in history(self._source, last)}
            named = self._line.kept | self._line.pruned | older
            return [version for version in self._versions if version == newest or version not in named]
        if self._is_behind(newest, last):
            if self._is_kept_elsewhere(newest, last):
                return []
            raise ConflictError(
                f"volume {self._name!r} of {self._target.url} has a later version, {last.hex()[:12]}, and does not keep "
                f"{newest.hex()[:12]}, which was not copied before it, or was pruned",
                hint="That volume is ahead: copy its versions the other way. Nothing is inserted before an existing version, so to "
                "have this one there as well, repeat this with another name for the copy: --as NAME, as name=. With --all-versions, "
                "all_versions=True, a new volume there gets all versions up to this one.",
                details={"version": last.hex(), "is_ahead": True},
            )
        raise ConflictError(
            f"volume {self._name!r} of {self._target.url} has version {last.hex()[:12]}, which is not an ancestor of "
            f"{self._versions[-1].hex()[:12]}",
            hint=f"Repeat this with another name for the copy ({Command('push', '…', '--as', 'NAME')}, push(name=NAME)), and merge that "
            f"into {self._name} in the target store ({Command('merge')}, Store().merge()). Nothing there is replaced.",
            details={"version": last.hex()},
        )

    def _is_behind(self, version: VersionId, last: VersionId) -> bool:
        """Whether `last` descends from the version, as far as one of the stores can tell."""
        for store, volume in ((self._target, self._name), (self._source, self._volume)):
            with suppress(CorruptError):  # a head is damaged or missing: parents decide then
                if _line_since(store, volume, version, last) is not None:
                    return True
            if _is_in_history(store, version, of=last):
                return True
        return False

    def _is_kept_elsewhere(self, version: VersionId, last: VersionId) -> bool:
        """Whether another volume of the target keeps the version, an ancestor of the last one: a
        volume that was merged into this one, or that this one was forked from. Damage in other
        volumes is ignored."""
        if not _is_in_history(self._target, version, of=last):
            return False
        heads: list[Head] = []
        for name in volume_names(self._target):
            with suppress(CorruptError):
                head = find_head(self._target, name)
                if head is not None and not head.is_void and not head.is_deleted:
                    heads.append(head)
        if any(head.version == version for head in heads):
            return True
        for head in heads:
            with suppress(CorruptError):
                if version in _line_of(self._target, head).kept:
                    return True
        return False

    # -- protection

    @contextmanager
    def _hold_pin(self, number: int) -> Iterator[Protection]:
        pin = Pin.create(self._target, volume=self._name, number=number, owner=self._owner)
        protection = self._protection = Protection(self._target, pin)
        try:
            protection.read_lists()
            yield protection
        finally:
            self._protection = None
            with suppress(CowfsError):  # otherwise it expires
                protection.remove()

    def _report_packs(self, done: int, total: int, done_bytes: int) -> None:
        self._progress(Progress("packs", done, total, done_bytes))
        now_s = clock.monotonic_s()
        if self._protection is not None and now_s - self._acknowledged_s > ACKNOWLEDGE_EVERY_S:
            self._acknowledged_s = now_s
            number = self._protection.pin.number
            self._protection.acknowledge(lambda: number, self._copies.list_relied)

    # -- packs, manifests, heads

    def _publish(self, protection: Protection, seen: Head | None, left: list[VersionId]) -> None:
        """seen: the head for which `left` was computed."""
        while True:
            begun_at = find_head(self._target, self._name)
            if begun_at != seen:
                seen, left = begun_at, self._begin(begun_at)
            lapses = protection.lapses
            self._require_wanted()
            late, _ = self._lately_condemned()
            collected = load_collected_records(self._target, scratch_objects.store_now_ns(self._target))
            self._copies.copy_purged(self._needed, set(self._wanted))
            self._copies.copy(self._needed, protection.condemned | late, collected)
            hit("push-before-manifests")
            for done, version in enumerate(self._wanted):
                self._progress(Progress("manifests", done, len(self._wanted)))
                self._put_manifest(version)
            hit("push-before-head")
            with protection.publishing() as read_lists:
                read_lists()
                self._require_wanted()
                is_kept = protection.lapses == lapses and self._copies.list_relied().isdisjoint(protection.condemned)
                if is_kept and self._append_heads(begun_at, left):
                    return
            protection.prove_alive(protection.pin.number, ())

    def _require_wanted(self) -> None:
        """ConflictError: a version is being collected at the target, left by an unfinished push or
        pruned there. It has one id and cannot be put under another."""
        if doomed := load_condemned_versions(self._target) & set(self._wanted):
            raise ConflictError(
                f"version {min(doomed).hex()[:12]} already exists at {self._target.url}, and is being collected there",
                hint="Push again an hour after the collection has ended.",
            )
        if doomed := self._lately_condemned()[1] & set(self._wanted):
            raise ConflictError(
                f"version {min(doomed).hex()[:12]} was collected at {self._target.url} less than an hour ago",
                hint="Push again in an hour: until then a late request of that collection could delete it.",
            )

    def _lately_condemned(self) -> tuple[set[PackId], set[VersionId]]:
        return lately_condemned(self._target, scratch_objects.store_now_ns(self._target))

    def _put_manifest(self, version: VersionId) -> None:
        """Puts the manifest unless a valid one exists, and reads it back."""
        key = keys.version(version)
        if self._target.size(key) is not None:
            try:
                open_version(self._target, version)
                return
            except CorruptError:
                self._mended.append(version)
        self._target.put(key, read_as(self._source, key, partial(self._check_manifest, version)))
        open_version(self._target, version)

    def _check_manifest(self, version: VersionId, data: bytes) -> bytes:
        """Checks a manifest's bytes: an object under its key at the target is permanent."""
        Manifest.decode(
            data, version, what=f"{self._source.url}/{keys.version(version)}", sealing=sealing_of(self._source)
        )
        return data

    def _append_heads(self, begun_at: Head | None, left: list[VersionId]) -> bool:
        """begun_at: the newest head before the copy began; objects are known to exist only if it
        still is. left: the versions that get a head. False: a collection's fence or another writer
        came between; or the volume was created only now, so that a collection had nowhere to put a
        fence."""
        if begun_at is None:
            with suppress(ConflictError):
                create_volume(self._target, self._name, owner=self._owner)
            return False
        if not left:
            return True
        dated = list(zip(left, self._times(left), strict=True))  # before the lease, since the source may be slow
        lease = leases.acquire(self._target, self._name, self._holder)
        try:
            head = settle_head(
                self._target, self._name, epoch=lease.epoch, intent=None, needs_fence=lease.needs_fence
            ).head
            lease.settle()
            own_fences = 1 if lease.needs_fence and head.epoch == lease.epoch else 0
            if head.number != begun_at.number + own_fences:
                return False
            prev = head.check
            for number, (version, created_ns) in enumerate(dated, head.number + 1):
                record = HeadRecord("commit", version, lease.epoch, created_ns, _write_id(), prev=prev)
                try:
                    prev = refs.append(self._target, refs.head(self._name), number, record).check
                except ConflictError:
                    return False
                self._heads.append(version)
            return True
        finally:
            with suppress(CowfsError):  # a lease that is not released expires
                lease.release()

    def _times(self, versions: list[VersionId]) -> list[int]:
        """When each became the source's last version; if it never did, or the head cannot be read,
        when it was made."""
        found: list[int] = []
        with suppress(CorruptError):  # a head is damaged or missing: the versions themselves are whole
            for step in _steps(self._source, self._volume):
                if len(found) == len(versions):
                    break
                if step.version == versions[-1 - len(found)]:
                    found.append(step.created_ns)
        missing = versions[: len(versions) - len(found)]
        return [open_version(self._source, version).created_ns for version in missing] + found[::-1]

    def _push_tags(self, kept: set[VersionId]) -> tuple[list[str], list[str]]:
        """Returns the names of the tags that were set, and of those on versions that no head there
        keeps."""
        there = {tag.name: tag.version for tag in tags.all_tags(self._target, self._name)}
        done, left_out = [], []
        for tag in tags.all_tags(self._source, self._volume):
            if tag.version not in self._versions or there.get(tag.name) == tag.version:
                continue
            if tag.version not in kept:
                left_out.append(tag.name)
                continue
            tags.set_tag(self._target, self._name, tag.name, tag.version, holder=self._holder, may_move=True)
            done.append(tag.name)
        return done, left_out


def line_up_to(store: ObjectStore, volume: str, version: VersionId) -> list[VersionId]:
    """The versions that were the volume's last ones, up to this one, oldest first, without pruned
    ones. A version that never was the last one is returned alone."""
    found = [step.version for step in _steps(store, volume) if not step.is_pruned]
    if version not in found:
        return [version]
    line = list(reversed(found[found.index(version) :]))
    return [each for at, each in enumerate(line) if at == 0 or line[at - 1] != each]


def _line_since(store: ObjectStore, volume: str, old: VersionId, new: VersionId) -> set[VersionId] | None:
    """The versions that were the volume's last ones after `old`, up to `new`, including collected
    ones, at which a history would end. None: `old` is not among those before it."""
    found: set[VersionId] = set()
    for step in _steps(store, volume):
        if found and step.version == old:
            return found
        if found or step.version == new:
            found.add(step.version)
    return None


@dataclass(frozen=True)
class _Line:
    """The versions that heads of a volume keep from being collected, and those that only pruned
    heads name."""

    kept: set[VersionId] = field(default_factory=set)
    pruned: set[VersionId] = field(default_factory=set)


def _line_of(store: ObjectStore, head: Head) -> _Line:
    steps = list(head_line.steps(store, head.volume, head.number))
    kept = {step.version for step in steps if not step.is_pruned}
    return _Line(kept, {step.version for step in steps} - kept)


def _is_in_history(store: ObjectStore, version: VersionId, *, of: VersionId) -> bool:
    """Also True if only the version's id is known there."""
    with suppress(NotFoundError):
        return any(past.version == version for past in history(store, of))
    return False


def _steps(store: ObjectStore, volume: str) -> Iterator[Step]:
    newest = refs.newest(store, refs.head(volume))
    return head_line.steps(store, volume, newest[0]) if newest is not None else iter(())


def _write_id() -> WriteId:
    return WriteId(clock.random_bytes(WriteId.length))
