"""Versions of a volume copied to another store, under the same ids: everything that is hashed
travels byte for byte.

    pin at the target ─▶ condemned lists ─▶ packs (`pack_copies`) ─▶ manifests ─▶ lists again ─▶ lease ─▶ heads ─▶ tags
                                ▲                                                    │
                                └── something that is relied on was condemned, the pin was dead, a collection's fence

A head at the target is appended for each version, so that each is protected there; it has the time
of the head at the source, so that NAME@{TIME} and rules for pruning mean the same there. The
target's last version must be the same as the source's, or one that the pushed versions came from:
nothing at the target is ever replaced, but for a manifest that is found damaged there: it gets the
bytes that its id names. Nothing is put below the target's last version either. A version that lies
further back is there if a head keeps it; that a parent or a pruned head names it is not enough.
What was copied before a break is found by the next run, which copies the rest.

The target's collections are heeded as any writer does it (`version.protection`): a pin before the
first look, lists read before the head, everything proven again behind a fence. Not thread-safe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import partial
from pathlib import Path

from cowfs import clock
from cowfs.errors import ConflictError, CorruptError, CowfsError, NotFoundError
from cowfs.failpoints import hit
from cowfs.format import keys
from cowfs.format.manifest import Manifest
from cowfs.format.record import Holder
from cowfs.format.records import HeadRecord
from cowfs.ids import PackId, VersionId, WriteId
from cowfs.maintain.pack_copies import InParts, PackCopies
from cowfs.store import ObjectStore, leases, refs, scratch
from cowfs.store.damaged import read_as
from cowfs.store.pins import Pin, collected_records, condemned_versions, lately_condemned
from cowfs.store.sealed import sealing_of
from cowfs.values import dataclass
from cowfs.version import head_line, quotas, tags
from cowfs.version.commit import Progress, ProgressListener
from cowfs.version.head_line import Step
from cowfs.version.heads import settle_head
from cowfs.version.history import history, open_version
from cowfs.version.protection import Protection
from cowfs.version.volumes import Head, create_volume, find_head, require_usable, volume_names

ACKNOWLEDGE_EVERY_S = 60.0


@dataclass(frozen=True)
class Pushed:
    """What a push has done. heads: versions that the target's volume has besides now; versions:
    whose packs were looked for; packs: that these need; put_packs: that the target had not; tags:
    that were set there. mended: versions whose manifests were damaged there, and were put again.
    left_out: earlier versions that the target's volume does not get, since it has a later one;
    left_out_tags: those on them. pruned: versions that were pruned there."""

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
        """in_parts: as of `PackCopies`."""
        self._source = source
        self._target = target
        self._volume = volume
        self._name = name
        self._versions = versions
        self._holder = holder
        self._owner = owner
        self._progress = progress
        self._copies = PackCopies(source, target, cache_dir, self._heard, in_parts=in_parts)
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
        with self._pinned(head.number if head is not None else 0) as protection:
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
        """As `_left`. From then on all that the target is to have is wanted, and what they need is
        needed; what is missing of versions that heads keep there comes back."""
        self._line = _line_of(self._target, head) if head is not None else _Line()
        left = self._left(head)
        wanted = {*left, *self._line.kept, self._versions[-1]}
        if not wanted.intersection(self._versions) <= set(self._wanted):
            self._wanted = [version for version in self._versions if version in wanted]
            self._progress(Progress("versions", 0, len(self._versions)))
            self._needed = self._copies.needed([open_version(self._source, version) for version in self._wanted])
        return left

    def _check_quota(self, head: Head, newest: VersionId) -> None:
        before = self._opened(head.version).stats.bytes if head.version is not None else 0
        quota_bytes = quotas.read(self._target, self._name)
        quotas.check(self._name, quota_bytes, before, open_version(self._source, newest).stats.bytes)

    def _opened(self, version: VersionId) -> Manifest:
        """A version of the target; of one that is damaged there the source knows the same."""
        try:
            return open_version(self._target, version)
        except CorruptError:
            with suppress(NotFoundError):
                return open_version(self._source, version)
            raise

    # -- what the target lacks

    def _left(self, head: Head | None) -> list[VersionId]:
        """Versions behind the target's last one. ConflictError: the target went another way, or
        further, and does not keep the newest of them."""
        last = head.version if head is not None else None
        if head is None or last is None:
            return list(self._versions)
        if last in self._versions:
            at = len(self._versions) - 1 - list(reversed(self._versions)).index(last)
            return list(self._versions[at + 1 :])
        newest = self._versions[-1]
        newer = None
        with suppress(CorruptError):  # a head is damaged or missing: then their parents say it
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
                f"{newest.hex()[:12]}: that was not copied before it, or was pruned",
                hint="That volume is ahead: what it has is copied the other way. Nothing is put below a version that is there, so to "
                "have this one there, too, repeat this with another name for the copy: --as NAME, as name=. With --all-versions, "
                "all_versions=True, a new volume there gets all versions up to this one.",
                details={"version": last.hex(), "is_ahead": True},
            )
        raise ConflictError(
            f"volume {self._name!r} of {self._target.url} has version {last.hex()[:12]}, which "
            f"{self._versions[-1].hex()[:12]} did not come from",
            hint="Repeat this with another name for the copy (`cowfs push … --as NAME`, push(name=NAME)), and merge that "
            f"into {self._name} where it was copied to (`cowfs merge`, Volume.merge()). Nothing there is replaced.",
            details={"version": last.hex()},
        )

    def _is_behind(self, version: VersionId, last: VersionId) -> bool:
        """Whether `last` came from it, as far as one of the stores can tell."""
        for store, volume in ((self._target, self._name), (self._source, self._volume)):
            with suppress(CorruptError):  # a head is damaged or missing: then parents say it
                if _line_since(store, volume, version, last) is not None:
                    return True
            if _is_in_history(store, version, of=last):
                return True
        return False

    def _is_kept_elsewhere(self, version: VersionId, last: VersionId) -> bool:
        """Whether another volume of the target keeps what the last version came from: one that was
        merged into this one, or that this one was forked from. Damage of another volume is none of
        this one's business."""
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
    def _pinned(self, number: int) -> Iterator[Protection]:
        pin = Pin.create(self._target, volume=self._name, number=number, owner=self._owner)
        protection = self._protection = Protection(self._target, pin)
        try:
            protection.read_lists()
            yield protection
        finally:
            self._protection = None
            with suppress(CowfsError):  # it expires
                protection.pin.remove()

    def _heard(self, done: int, total: int, done_bytes: int) -> None:
        self._progress(Progress("packs", done, total, done_bytes))
        now_s = clock.monotonic_s()
        if self._protection is not None and now_s - self._acknowledged_s > ACKNOWLEDGE_EVERY_S:
            self._acknowledged_s = now_s
            self._protection.acknowledge(self._protection.pin.number, self._copies.relied)

    # -- packs, manifests, heads

    def _publish(self, protection: Protection, seen: Head | None, left: list[VersionId]) -> None:
        """seen: the head of which `left` was found."""
        while True:
            begun_at = find_head(self._target, self._name)
            if begun_at != seen:
                seen, left = begun_at, self._begin(begun_at)
            lapses = protection.lapses
            self._require_wanted()
            late, _ = self._lately_condemned()
            collected = collected_records(self._target, scratch.store_now_ns(self._target))
            self._copies.copy(self._needed, protection.condemned | late, collected)
            hit("push-before-manifests")
            for done, version in enumerate(self._wanted):
                self._progress(Progress("manifests", done, len(self._wanted)))
                self._put_manifest(version)
            hit("push-before-head")
            with protection.publishing() as read_lists:
                read_lists()
                self._require_wanted()
                is_kept = protection.lapses == lapses and self._copies.relied().isdisjoint(protection.condemned)
                if is_kept and self._append_heads(begun_at, left):
                    return
            protection.prove_alive(protection.pin.number, ())

    def _require_wanted(self) -> None:
        """A version that is being collected at the target, left by a push that went no further or
        pruned there, has one id and can be put nowhere else."""
        if doomed := condemned_versions(self._target) & set(self._wanted):
            raise ConflictError(
                f"version {min(doomed).hex()[:12]} lies at {self._target.url} already, and is being collected there",
                hint="Push again an hour after the collection has ended.",
            )
        if doomed := self._lately_condemned()[1] & set(self._wanted):
            raise ConflictError(
                f"version {min(doomed).hex()[:12]} was collected at {self._target.url} less than an hour ago",
                hint="Push again in an hour: until then a late request of that collection could delete it.",
            )

    def _lately_condemned(self) -> tuple[set[PackId], set[VersionId]]:
        return lately_condemned(self._target, scratch.store_now_ns(self._target))

    def _put_manifest(self, version: VersionId) -> None:
        """What is there in the end has this id."""
        key = keys.version(version)
        if self._target.size(key) is not None:
            try:
                open_version(self._target, version)
                return
            except CorruptError:
                self._mended.append(version)
        self._target.put(key, read_as(self._source, key, partial(self._checked, version)))
        open_version(self._target, version)

    def _checked(self, version: VersionId, data: bytes) -> bytes:
        """A manifest's bytes: what is put under its key at the target stays there."""
        Manifest.decode(
            data, version, what=f"{self._source.url}/{keys.version(version)}", sealing=sealing_of(self._source)
        )
        return data

    def _append_heads(self, begun_at: Head | None, left: list[VersionId]) -> bool:
        """begun_at: the newest head before anything was looked for; only behind it is everything
        known to be there. left: the versions that get a head. False: a collection's fence, or
        somebody else, came between; or the volume was only made now, so that a collection had
        nowhere to put a fence."""
        if begun_at is None:
            with suppress(ConflictError):
                create_volume(self._target, self._name, owner=self._owner)
            return False
        if not left:
            return True
        dated = list(zip(left, self._times(left), strict=True))  # the source may take long: no lease waits for it
        lease = leases.acquire(self._target, self._name, self._holder)
        try:
            head = settle_head(
                self._target, self._name, epoch=lease.epoch, intent=None, needs_fence=lease.needs_fence
            ).head
            lease.settled()
            own_fences = 1 if lease.needs_fence and head.epoch == lease.epoch else 0
            if head.number != begun_at.number + own_fences:
                return False
            for number, (version, created_ns) in enumerate(dated, head.number + 1):
                record = HeadRecord("commit", version, lease.epoch, created_ns, _write_id())
                try:
                    refs.append(self._target, refs.head(self._name), number, record)
                except ConflictError:
                    return False
                self._heads.append(version)
            return True
        finally:
            with suppress(CowfsError):  # a lease that is not given back expires
                lease.release()

    def _times(self, versions: list[VersionId]) -> list[int]:
        """When each became the source's last version; of one that never was, or of which that
        cannot be read, when it was made."""
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
        """The names of those that were set, and of those on versions that no head there keeps."""
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
    """The versions that were the volume's last ones, up to this one, oldest first: those that are
    not pruned. One that never was the volume's last version stands alone."""
    found = [step.version for step in _steps(store, volume) if not step.is_pruned]
    if version not in found:
        return [version]
    line = list(reversed(found[found.index(version) :]))
    return [each for at, each in enumerate(line) if at == 0 or line[at - 1] != each]


def _line_since(store: ObjectStore, volume: str, old: VersionId, new: VersionId) -> set[VersionId] | None:
    """The versions that were the volume's last ones after `old`, up to `new`, also those that are
    collected by now, at which a history would end. None: `old` is not among those before it."""
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
    ones name."""

    kept: set[VersionId] = field(default_factory=set)
    pruned: set[VersionId] = field(default_factory=set)


def _line_of(store: ObjectStore, head: Head) -> _Line:
    steps = list(head_line.steps(store, head.volume, head.number))
    kept = {step.version for step in steps if not step.is_pruned}
    return _Line(kept, {step.version for step in steps} - kept)


def _is_in_history(store: ObjectStore, version: VersionId, *, of: VersionId) -> bool:
    """Also if only its name is known there."""
    with suppress(NotFoundError):
        return any(past.version == version for past in history(store, of))
    return False


def _steps(store: ObjectStore, volume: str) -> Iterator[Step]:
    newest = refs.newest(store, refs.head(volume))
    return head_line.steps(store, volume, newest[0]) if newest is not None else iter(())


def _write_id() -> WriteId:
    return WriteId(clock.random_bytes(WriteId.length))
