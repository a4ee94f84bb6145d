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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from cowfs.base.ids import PackId, VersionId, WriteId
from cowfs.errors import ConflictError, LeaseLostError
from cowfs.format import keys
from cowfs.maintain.check import pack_check
from cowfs.maintain.collect import alarms, collecting, planning, roots
from cowfs.maintain.collect.blob_places import MovedRecords, Places
from cowfs.maintain.collect.collecting import Collection
from cowfs.maintain.collect.generations import Condemned, Generation, Generations
from cowfs.maintain.collect.planning import Listing, Survey
from cowfs.maintain.collect.repacking import Repacker
from cowfs.maintain.collect.roots import FoundPin, RootReader, Roots
from cowfs.maintain.copy import pushing
from cowfs.maintain.copy.pack_copies import PackCopies
from cowfs.maintain.repairs.repair import Repair
from cowfs.session.committer import Committer
from cowfs.store import ObjectStore
from cowfs.store.packs import PackReader, read_moved_records
from cowfs.store.packs.moved import MovedPacks
from cowfs.store.refs import refs
from cowfs.store.refs.leases import Lease
from cowfs.store.refs.pins import Pin
from cowfs.store.reliability import damaged
from cowfs.version.merge.merge_source import MergeSource
from cowfs.version.names import tags, volumes
from cowfs.version.names.volumes import find_head, read_head
from cowfs.version.publish import heads
from cowfs.version.publish.heads import Settled, settle_head
from cowfs.version.publish.protection import Protection
from cowfs.version.publish.publisher import Publisher
from cowfs.version.retention.keeping import Kept
from cowfs.writer import acquiring
from tests.simulation.test_simulation import fast_directory, simulate

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

    def step_over(self: Publisher, prepared: Any, write_id: Any) -> bool:
        while not put_version(self, prepared, write_id):
            self.chunks._proven_lapses = self._protection.lapses
        return True

    patch.setattr(Publisher, "_put_version", step_over)


def unsettled_head_acknowledges(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Protection, "is_bound", property(lambda self: False, lambda self, value: None), raising=False)
    patch.setattr(
        Committer,
        "acknowledge_collections",
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


def renewed_pins_leave_no_trace(patch: pytest.MonkeyPatch) -> None:
    """The first record goes, too: a list that comes in pages shows nothing of a pin that is renewed
    meanwhile."""
    append = Pin._append

    def append_alone(self: Pin, record: Any) -> None:
        append(self, record)
        if self._at - 1 == refs.FIRST:
            self._store.delete([keys.pin(self._id, refs.FIRST)])

    patch.setattr(Pin, "_append", append_alone)


def lists_not_compared_before_the_head(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publisher, "_may_be_published", lambda self, prepared: True)


def deleted_volume_fenced(patch: pytest.MonkeyPatch) -> None:
    """A writer that comes while the volume is deleted brings it back by its fence."""
    patch.setattr(heads, "read_head", find_head)


# -- of the collector


def writers_not_heeded(patch: pytest.MonkeyPatch) -> None:
    """They are not waited for, and what they have put since they acknowledged a collection is not
    spared. Either alone would do no harm."""
    patch.setattr(Collection, "_wait", lambda self, generation: [])
    patch.setattr(planning, "young_since_ns", lambda generations, pins, now_ns: now_ns - planning.HOUR_NS)


def roots_not_read_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Survey,
        "list_needed",
        lambda self, listed, **_: Condemned(frozenset(self.marker.live), frozenset(self.marker.versions)),
    )


def unpublished_manifests_not_marked(patch: pytest.MonkeyPatch) -> None:
    """A manifest that was put since the list was made, and has no head, keeps nothing at the last
    look."""

    def list_needed(self: Survey, listed: Condemned, **_: Any) -> Condemned:
        found = self.roots.read()
        roots.drop_gone(self.store, found)
        self.marker.mark(found.versions)
        return Condemned(frozenset({*self.marker.live, *found.packs}), frozenset(self.marker.versions))

    patch.setattr(Survey, "list_needed", list_needed)


def dead_pins_not_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Collection, "_fence", lambda self, volume: None)


def one_fence_for_all_lists(patch: pytest.MonkeyPatch) -> None:
    """A collector that has fenced a volume, for a list that it found, does not fence it for its
    own."""
    fence_once = Collection._fence_once

    def once(self: Collection, pin: FoundPin, generation: Generation) -> None:
        fence_once(self, pin, replace(generation, number=0))

    patch.setattr(Collection, "_fence_once", once)


def what_was_put_since_the_begin_stays(patch: pytest.MonkeyPatch) -> None:
    """Of a list that is published long after the collection has begun."""
    patch.setattr(Generations, "load_listed_ns", lambda self, number: self.load().found[number].begun_ns)


def heads_behind_a_pin_not_kept(patch: pytest.MonkeyPatch) -> None:
    """A writer is killed between its head and the next record of its pin."""
    patch.setattr(roots, "_put_since", lambda pin, line: set())


def pins_protect_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RootReader, "_add_pins", lambda self, found, lines: None)


def holds_protect_nothing(patch: pytest.MonkeyPatch) -> None:
    """Work that is kept where nothing is mounted counts for nothing."""
    add_pins = RootReader._add_pins

    def add(self: RootReader, found: Roots, lines: Any) -> None:
        add_pins(self, replace(found, pins=[pin for pin in found.pins if pin.record.kind != "hold"]), lines)

    patch.setattr(RootReader, "_add_pins", add)


def kept_uploads_not_named(patch: pytest.MonkeyPatch) -> None:
    """A hold keeps the version that the work stands on, and not what it has uploaded."""
    hold = Protection.hold
    patch.setattr(Protection, "hold", lambda self, number, uploaded: hold(self, number, ()))


def undeleted_volumes_collected(patch: pytest.MonkeyPatch) -> None:
    """The line of a volume that was deleted too long ago is not closed, and does not count when the
    roots are read again."""
    patch.setattr(Collection, "_close_line", lambda self, volume, number: None)
    read = RootReader.read
    patch.setattr(
        RootReader,
        "read",
        lambda self, *, now_ns=1 << 62, grace_s=0.0, **more: read(self, now_ns=now_ns, grace_s=grace_s, **more),
    )


def deleted_again_is_deleted_long_ago(patch: pytest.MonkeyPatch) -> None:
    """A volume is closed that was deleted too long ago when that was planned, was brought back, and
    has been deleted again."""
    close = Collection._close_line

    def whatever_its_head(self: Collection, volume: str, number: int) -> None:
        head = find_head(self._store, volume)
        close(self, volume, number if head is None else head.number)

    patch.setattr(Collection, "_close_line", whatever_its_head)


def tags_protect_nothing(patch: pytest.MonkeyPatch) -> None:
    newest = RootReader._newest_tag
    patch.setattr(
        RootReader,
        "_newest_tag",
        lambda self, volume, tag, number: replace(newest(self, volume, tag, number), version=None),
    )


def tags_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    """Whoever has set a tag does not look whether the version was pruned meanwhile."""
    require_kept = tags._require_kept

    def once(store: ObjectStore, volume: str, version: VersionId) -> None:
        if all(tag.version != version for tag in tags.all_tags(store, volume)):
            require_kept(store, volume, version)

    patch.setattr(tags, "_require_kept", once)


def late_tags_stop_collections(patch: pytest.MonkeyPatch) -> None:
    """A tag that was put when its version was gone already is a root that cannot be read."""
    patch.setattr(RootReader, "_is_late_tag", lambda self, found, version: False)


def pins_never_expire(patch: pytest.MonkeyPatch) -> None:
    """Whoever does not come back is waited for, and keeps what his pin names."""
    patch.setattr(FoundPin, "is_expired", lambda self, now_ns: False)


def manifests_never_deleted(patch: pytest.MonkeyPatch) -> None:
    """A collection deletes packs, and leaves the versions that needed them."""
    delete = Collection._delete

    def packs_alone(self: Collection, objects: dict[str, int], *arguments: Any) -> None:
        delete(self, {key: size for key, size in objects.items() if key.startswith(keys.PACKS)}, *arguments)

    patch.setattr(Collection, "_delete", packs_alone)


# -- of repacking


def whatever_moved_goes(patch: pytest.MonkeyPatch) -> None:
    """An old pack goes although a version has begun to use a blob there that was not copied."""
    follow = Places._follow

    def followed(self: Places, pack: PackId) -> None:
        follow(self, pack)
        self.superseded.add(pack)

    patch.setattr(Places, "_follow", followed)


def new_records_forget(patch: pytest.MonkeyPatch) -> None:
    """A pack that moves again: what a writer may be about to name is not in the new record."""
    patch.setattr(Repacker, "_keep_rows", lambda self, before: {})


def only_the_newest_record_counts(patch: pytest.MonkeyPatch) -> None:
    """It was put by a collector that slept until its new pack was gone: the blob lies where an
    earlier one says."""
    backwards = MovedRecords.backwards
    patch.setattr(MovedPacks, "records", lambda self, pack: islice(read_moved_records(self._store, pack), 1))
    patch.setattr(MovedRecords, "backwards", lambda self, pack, number: islice(backwards(self, pack, number), 1))


def moved_records_not_read_again(patch: pytest.MonkeyPatch) -> None:
    """The second look takes new packs of others, which it lists for dead, for unneeded still."""
    patch.setattr(
        Survey,
        "_places_now",
        lambda self, beside: Places(
            [self.marker.live, beside], self.listing.packs, self.listing.find_moved_numbers(), self._records
        ),
    )


# -- of repairs


def repaired_packs_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    """Whoever repairs sleeps until a collection has his new pack on its list, which nothing names
    yet."""
    patch.setattr(Repair, "_stays", lambda self, pack: True)


# -- of copies between stores


def late_deletes_not_heeded(patch: pytest.MonkeyPatch) -> None:
    """What a collection has deleted is put again under the same ids as soon as the collection has
    ended."""
    patch.setattr(pushing, "lately_condemned", lambda store, now_ns: (set(), set()))


def objects_put_since_deleted(patch: pytest.MonkeyPatch) -> None:
    """A collection that is gone on with deletes moved records that were put after its list."""
    objects_of = Listing.objects_of

    def whenever_put(self: Listing, doomed: Condemned, *, put_before_ns: int | None = None) -> dict[str, int]:
        return objects_of(self, doomed)

    patch.setattr(Listing, "objects_of", whenever_put)


def pushes_rely_on_the_condemned(patch: pytest.MonkeyPatch) -> None:
    """A push takes what it finds for there, whatever lists say of it."""
    patch.setattr(Protection, "condemned", property(lambda self: frozenset()))
    patch.setattr(pushing, "load_condemned_versions", lambda store: set())


def half_repaired_packs_travel(patch: pytest.MonkeyPatch) -> None:
    """A push takes what the source's moved record lists for all there is, in the midst of a repair
    (7000037)."""
    patch.setattr(PackCopies, "_require_named", lambda self, moved: None)


def mirrors_follow_parents_alone(patch: pytest.MonkeyPatch) -> None:
    """Whether the target's last version is one that the pushed one came from is asked of parents
    alone, of which a collection may have taken some."""
    patch.setattr(pushing, "_line_since", lambda store, volume, old, new: None)


def drafted_again_behind_a_fence(patch: pytest.MonkeyPatch) -> None:
    """A merge or a restore is prepared again behind a collection's fence, from what it has read
    before."""
    doubts = property(lambda self: self._publisher.chunks.doubts, lambda self, value: None)
    patch.setattr(MergeSource, "_doubts", doubts, raising=False)


def lists_read_before_the_head_alone(patch: pytest.MonkeyPatch) -> None:
    """A merge takes content over from a version that a collection is deleting: the list was there
    before the pin, and has served before the head."""
    patch.setattr(Protection, "read_lists", lambda self: None)


def condemned_versions_merged(patch: pytest.MonkeyPatch) -> None:
    """Only packs are compared with the lists, by the names that versions have for them."""
    patch.setattr(Publisher, "require_kept", lambda self, versions: None)


def lists_count_behind_a_fence(patch: pytest.MonkeyPatch) -> None:
    """A writer that slept between its look at the lists and its look at the head, which a
    collection's fence came before, does not read them again."""
    patch.setattr(Protection, "forget_lists", lambda self: None)


def forks_not_pinned(patch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def keeping(store: ObjectStore, volume: str, version: VersionId, *, owner: str = "") -> Iterator[Kept]:
        yield Kept(store, WriteId(bytes(16)))

    patch.setattr(volumes, "keeping", keeping)


def repairs_trust_the_record_before(patch: pytest.MonkeyPatch) -> None:
    """A repair leaves what a moved record names where it is, also if a collection is about to take
    it."""
    patch.setattr(Repair, "_is_told", lambda self, pack: pack in self._damage.moved)


def damage_counts_at_once(patch: pytest.MonkeyPatch) -> None:
    """An answer that was damaged on its way is taken for a damaged object."""
    patch.setattr(damaged, "ASKS", 1)


def damaged_packs_are_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pack_check, "read_as", lambda store, key, decode: decode(store.get(key)))


DEFECTS: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    superseded_writer_goes_on,
    takeover_without_a_fence,
    deduplication_onto_lost_chunks,
    fence_stepped_over,
    unsettled_head_acknowledges,
    pin_resurrected,
    renewed_pins_leave_no_trace,
    lists_not_compared_before_the_head,
    deleted_volume_fenced,
    writers_not_heeded,
    roots_not_read_again,
    unpublished_manifests_not_marked,
    dead_pins_not_fenced,
    one_fence_for_all_lists,
    what_was_put_since_the_begin_stays,
    heads_behind_a_pin_not_kept,
    pins_protect_nothing,
    holds_protect_nothing,
    kept_uploads_not_named,
    undeleted_volumes_collected,
    deleted_again_is_deleted_long_ago,
    drafted_again_behind_a_fence,
    lists_read_before_the_head_alone,
    condemned_versions_merged,
    lists_count_behind_a_fence,
    forks_not_pinned,
    whatever_moved_goes,
    new_records_forget,
    only_the_newest_record_counts,
    moved_records_not_read_again,
    repaired_packs_not_looked_at_again,
    repairs_trust_the_record_before,
    tags_protect_nothing,
    tags_not_looked_at_again,
    late_tags_stop_collections,
    pins_never_expire,
    manifests_never_deleted,
    late_deletes_not_heeded,
    objects_put_since_deleted,
    pushes_rely_on_the_condemned,
    half_repaired_packs_travel,
    mirrors_follow_parents_alone,
    damage_counts_at_once,
    damaged_packs_are_believed,
)


# -- of what cannot be seen; with prefixes that vanish


def _without_alarms(patch: pytest.MonkeyPatch, *words: str) -> None:
    """Alarms that have one of these words are not raised."""

    def some(found: Iterable[str]) -> list[str]:
        return [alarm for alarm in found if not any(word in alarm for word in words)]

    own, of_roots, fewer = Survey._alarms, alarms.of_roots, alarms.fewer
    patch.setattr(Survey, "_alarms", lambda self, *given, **named: iter(some(own(self, *given, **named))))
    patch.setattr(alarms, "of_roots", lambda *given: some(of_roots(*given)))
    patch.setattr(alarms, "fewer", lambda *given: iter(some(fewer(*given))))


def stores_without_heads_collected(patch: pytest.MonkeyPatch) -> None:
    """As it was: nothing is compared with anything."""
    patch.setattr(Survey, "_alarms", lambda self, *given, **named: iter(()))
    patch.setattr(Survey, "_require_shown", lambda self, found, accepted: None)
    patch.setattr(RootReader, "are_pins_shown", property(lambda self: True, lambda self, value: None), raising=False)


def missing_heads_are_no_heads(patch: pytest.MonkeyPatch) -> None:
    _without_alarms(patch, "no head at all")


def missing_volumes_are_no_volumes(patch: pytest.MonkeyPatch) -> None:
    _without_alarms(patch, ", which collection", "as its newest; collection")


def plans_not_compared_with_themselves(patch: pytest.MonkeyPatch) -> None:
    _without_alarms(patch, "this collection")


def missing_collections_are_none(patch: pytest.MonkeyPatch) -> None:
    _without_alarms(patch, "shows no collection")


def missing_pins_are_none(patch: pytest.MonkeyPatch) -> None:
    _without_alarms(patch, keys.PINS_SHOWN)
    patch.setattr(RootReader, "are_pins_shown", property(lambda self: True, lambda self, value: None), raising=False)


def versions_are_gone_at_once(patch: pytest.MonkeyPatch) -> None:
    for module in (roots, collecting):
        patch.setattr(module, "is_gone", lambda store, version, doubts: store.size(keys.version(version)) is None)


def missing_packs_are_no_sign(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Places, "lost", lambda self: set())


VANISHING = (
    stores_without_heads_collected,
    missing_heads_are_no_heads,
    missing_volumes_are_no_volumes,
    plans_not_compared_with_themselves,
    missing_collections_are_none,
    missing_pins_are_none,
    versions_are_gone_at_once,
    missing_packs_are_no_sign,
)


def seeds_until_found(defect: Callable[[pytest.MonkeyPatch], None], limit: int) -> tuple[int, str] | None:
    """(how many, what was said), None: not found."""
    for seed in range(limit):
        with tempfile.TemporaryDirectory(dir=fast_directory()) as home, pytest.MonkeyPatch.context() as patch:
            defect(patch)
            try:
                simulate(seed, Path(home), patch, TURNS, vanishes=defect in VANISHING)
            except AssertionError as error:
                return seed + 1, str(error).partition("\n")[0]
    return None


def main() -> None:
    logging.disable(logging.CRITICAL)
    limit = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    for defect in (*DEFECTS, *VANISHING):
        if sys.argv[2:] and defect.__name__ not in sys.argv[2:]:
            continue
        found = seeds_until_found(defect, limit)
        print(defect.__name__, "not found" if found is None else f"found by seed {found[0]}: {found[1]}", flush=True)


if __name__ == "__main__":
    main()
