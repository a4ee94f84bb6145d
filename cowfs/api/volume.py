"""Volume: where everything begins. Makes, opens and finds volumes and versions; holds nothing
itself."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from cowfs.api import hints, names, overview, sources, stores
from cowfs.api.changes import Located
from cowfs.api.files import FilePath
from cowfs.api.options import shows_options
from cowfs.api.overview import VolumeSummary
from cowfs.api.ro_volume import ROVolume, versions
from cowfs.api.rw_volume import RWVolume
from cowfs.api.storage.storage import Storage
from cowfs.errors import InvalidInputError
from cowfs.format.locator import Locator
from cowfs.version.commit import ProgressListener
from cowfs.version.retention import KeepRules, Rules

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from cowfs.api.collect_report import GcReport
    from cowfs.api.counting import By
    from cowfs.api.details import VolumeDetails
    from cowfs.api.merge_report import MergeReport, Strategy
    from cowfs.api.pruning import PlannedVersion, PrunePlan
    from cowfs.api.restoring import RestoreReport
    from cowfs.api.tagging import Tag
    from cowfs.api.warming import WarmReport
    from cowfs.maintain.push_report import PushReport
    from cowfs.maintain.repair_plan import RepairPlan
    from cowfs.maintain.stored_report import StoredBytes
    from cowfs.maintain.verify_report import VerifyReport


@hints.of_their_stores
class Volume:
    """The entry to cowfs. store: a URL or directory, or a `cowfs.storage.Storage` with credentials;
    None: COWFS_STORE, the config file, else a directory of the user."""

    def __init__(self) -> None:
        raise TypeError("Volume is not made directly: use Volume.new, Volume.open or Volume.from_locator")

    @staticmethod
    def new(
        name: str | None = None,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        strict: bool = False,
        exist_ok: bool = False,
    ) -> RWVolume:
        """A volume that does not exist yet. Nothing is read or written until it is mounted (or
        resolved).

        Then the name is claimed; a taken one becomes NAME-<6 hex>, and `.name` tells; strict:
        ConflictError then; exist_ok: the volume of that name is opened, so that a task that is
        tried again goes on with it. Without a name one is made up.
        """
        place = stores.name(store)
        if exist_ok and (strict or name is None):
            raise InvalidInputError(
                "exist_ok means a name that may be taken", hint="Give a name, and either exist_ok or strict."
            )
        wanted = names.checked(name) if name is not None else names.generated()
        return RWVolume(place, wanted, "either" if exist_ok else "new", strict=strict)

    @staticmethod
    def open(name: str, *, store: str | os.PathLike[str] | Storage | None = None, create: bool = False) -> RWVolume:
        """A volume by name: mounting it goes on from its head, with the uncommitted work this
        machine has of it.

        Nothing is read until it is mounted or resolved; NotFoundError then, unless create makes
        what is missing.
        """
        place = stores.name(store)
        return RWVolume(place, names.checked(name), "either" if create else "existing")

    @staticmethod
    def version(source: str, *, store: str | os.PathLike[str] | Storage | None = None) -> ROVolume:
        """The version that `source` means, as on the command line: NAME (its last one), NAME@TAG,
        NAME@VERSION (8 digits or more), NAME@{3} (three versions before its last one),
        NAME@{2026-11-20T12:00} (its last one at that time, which is local unless it has an offset),
        or a locator; with :PATH behind it, that folder of it. NotFoundError, also for a volume
        without versions; its hint names near ones.
        """
        place, meant = stores.name(store), sources.place(source)
        found = sources.find(meant.source, place)
        return ROVolume(found.locator(), folder=meant.path, storage=found.store.storage).resolve()

    @staticmethod
    def import_(
        url: str | os.PathLike[str],
        name: str,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        link: bool = False,
        storage: Storage | None = None,
        delete: bool = False,
        exclude: Iterable[str] = (),
        message: str = "",
        progress: ProgressListener | None = None,
        executor: Executor | None = None,
    ) -> ROVolume:
        """Copies what is at `url` (a bucket or a prefix of it, a web directory, a directory of this
        machine, whatever fsspec lists) into the volume, which is made if it is missing, and returns
        its last version; `is_new` tells whether this made it.

        link: no byte is copied or read; files are the objects at `url`, in the state in which they
        were listed. Reading one that changed since fails (SourceChangedError, EIO in a mount); all
        others are as they were. They are read with the credentials of the environment, or, in the
        store's own bucket, with the store's.

        storage: credentials for `url`; None: those of the environment. delete: what is in the
        volume and not at `url` goes. exclude: as `files.upload`. Objects whose size, ETag and time
        are those of the last import are not read. An import that was killed is repeated: it moves
        only what is missing. The listing is in memory. executor: its workers read and store the
        objects, each with its own credentials (docs/guide/large-stores.md). InvalidInputError: keys
        that no file can have, all of them before anything is read; ConflictError: an object that is
        replaced all the time.
        """
        from cowfs.api import importing

        place = stores.name(store)
        return importing.import_from(
            url,
            name,
            store=place,
            link=link,
            storage=storage,
            delete=delete,
            exclude=exclude,
            message=message,
            progress=progress,
            executor=executor,
        ).version

    @staticmethod
    def absorb(
        name: str,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        message: str = "",
        progress: ProgressListener | None = None,
    ) -> ROVolume:
        """Reads what the volume's last version links, stores it, and publishes a version that needs
        nothing but the store; one without links is returned as it is. SourceChangedError: an object
        is not what was linked; nothing is published then."""
        from cowfs.api import importing

        return importing.absorb(name, store=stores.name(store), message=message, progress=progress).version

    @staticmethod
    def list(
        store: str | os.PathLike[str] | Storage | None = None, *, deleted: bool = False
    ) -> builtins.list[VolumeSummary]:
        """The volumes of a store, by name, with size, files, owner and head. deleted: those that
        were deleted and can be brought back, instead. One of which something cannot be read has a
        problem, and hides no other. NotFoundError: there is no cowfs store."""
        place = stores.name(store)
        return overview.volumes_of(place, deleted=deleted)

    @staticmethod
    def delete(name: str, *, store: str | os.PathLike[str] | Storage | None = None, force: bool = False) -> None:
        """Deletes a volume; `undelete` brings it back. Nobody finds it by its name any more, which
        stays taken; its forks, and locators of its versions, are as before.

        NotFoundError: no such volume. LeaseHeldError: somebody writes to it, and says where;
        InvalidStateError: it is mounted here, or has uncommitted work here. force: it is deleted
        all the same; its writer can publish nothing more, and its work is kept, as this machine's
        is.
        """
        from cowfs.api import deleting

        deleting.delete(names.checked(name), stores.name(store), force=force)

    @staticmethod
    def undelete(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> RWVolume:
        """Brings a deleted volume back, with all its versions, and opens it. One that was not
        deleted stays as it is. NotFoundError: there never was one."""
        from cowfs.api import deleting

        deleting.undelete(names.checked(name), stores.name(store))
        return Volume.open(name, store=store)

    @staticmethod
    def merge(
        into: str,
        branches: Sequence[Located],
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        strategy: Strategy = None,
        message: str = "",
        dry_run: bool = False,
    ) -> MergeReport:
        """Merges versions, mostly the last ones of forks, into the volume `into`: its next version
        has what each has changed since it came from the volume, or from a version that both came
        from. No content moves. All are recorded as parents. What it has already is left out; if
        that is all, there is no new version (`is_new`).

        strategy: what to do where two have changed the same: a dict from patterns of paths, as in
        .gitignore, to one of `ours` (as the volume has it, or the branch before), `theirs`,
        `newest` (by time of modification), `keep-both` (theirs as PATH~BRANCH), `union` (of files
        that were only appended to: ours, then what theirs has appended) and `fail`; one such word
        for all; or a function from a `Conflict` to one. Without it, and where a way does not fit
        the conflict, ConflictError is raised, whose `details["conflicts"]` has all of them, and
        nothing is published. dry_run: nothing is published in any case, and nothing is raised for
        conflicts.

        ConflictError: also while the volume is mounted here. InvalidStateError: it has uncommitted
        work here, or a branch has no version in common with it.
        """
        from cowfs.api import merging

        volume = Volume.open(into, store=store)
        return merging.merge(volume, versions(branches), strategy=strategy, message=message, dry_run=dry_run)

    @staticmethod
    def restore(
        name: str,
        version: Located,
        *,
        to: str | os.PathLike[str] | None = None,
        store: str | os.PathLike[str] | Storage | None = None,
        message: str = "",
        dry_run: bool = False,
    ) -> RestoreReport:
        """Brings back what a version has: the next version of the volume has at `to` what `version`
        has, and nothing else there. No content moves, and the versions in between stay. If nothing
        differs, there is no new version (`is_new`).

        version: of this volume or another one of the store, or a folder or file of it
        (`Volume.version("NAME@TAG:PATH")`). to: where it is put; None: where it was. dry_run:
        nothing is published.

        Of a volume that is mounted here nothing is published: its working copy has at `to` what the
        version has, uncommitted changes there are lost, the rest stays, and the next commit has it
        (`mount_path`). What differs is fetched. Programs that have a replaced or removed file open
        keep it as it is.

        NotFoundError: the version has not got that path, or the volume no directory for it.
        ConflictError: the volume is mounted here as a copy, into which nothing is restored, or a
        file is where a directory has to be. InvalidStateError: the volume is not mounted, and has
        uncommitted work here; or what is brought back is linked. InvalidInputError: a message,
        though nothing is published.
        """
        from cowfs.api import restoring

        volume = Volume.open(name, store=store)
        return restoring.restore(volume, versions([version])[0], to=to, message=message, dry_run=dry_run)

    @staticmethod
    def rollback(
        name: str,
        version: Located,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        message: str = "",
        dry_run: bool = False,
    ) -> RestoreReport:
        """As `restore` of all that the version has: the volume's next version is what `version`
        is."""
        from cowfs.api import restoring

        volume = Volume.open(name, store=store)
        return restoring.rollback(volume, versions([version])[0], message=message, dry_run=dry_run)

    @staticmethod
    def tags(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> builtins.list[Tag]:
        """The volume's tags, by name. `tag` of a version sets one. NotFoundError: no such
        volume."""
        from cowfs.api import tagging

        return tagging.list_tags(names.checked(name), stores.name(store))

    @staticmethod
    def untag(
        name: str,
        tag: str,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        expect: str | None = None,
    ) -> Tag:
        """Removes a tag, and returns what it was; its version stays as long as something else keeps
        it. expect: only if it is on the version with this id, else ConflictError. NotFoundError: no
        such volume or tag."""
        from cowfs.api import tagging

        return tagging.remove_tag(names.checked(name), tag, stores.name(store), expect=expect)

    @staticmethod
    @shows_options(KeepRules, of=Rules)
    def plan_prune(
        name: str,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        **rules: Unpack[KeepRules],
    ) -> PrunePlan:
        """Which versions of a volume these rules keep, and which would go; `prune` carries it out.

        last: so many of the last ones. within: those made at most so long before the last one
        ("30d", "12h", "6mo", or a timedelta). hourly to yearly: the last one of each of so many
        hours, days, weeks, months, years (of UTC) that have any. A version stays if one rule keeps
        it. Kept always: the last one, those with a tag, and those that a mount (a read-only one
        only if it is on this machine), uncommitted work or a fork stands on. No rule at all: those
        that the volume has saved (`set_retention`). InvalidInputError: it has none.
        """
        from cowfs.api import pruning

        return pruning.plan(names.checked(name), stores.name(store), pruning.given(rules))

    @staticmethod
    @shows_options(KeepRules, of=Rules)
    def set_retention(
        name: str,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        **rules: Unpack[KeepRules],
    ) -> None:
        """Saves rules, as `plan_prune` has them, in the volume's record, instead of those that were
        there; no rule at all removes them. Nothing is pruned: `plan_prune` without rules,
        `plan_maintain` and `cowfs maintain` go by them. NotFoundError: no such volume."""
        from cowfs.api import pruning

        pruning.save_rules(names.checked(name), stores.name(store), pruning.given(rules))

    @staticmethod
    def retention(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> dict[str, Any]:
        """The rules that the volume has saved, as `set_retention` takes them; empty: none.
        NotFoundError: no such volume."""
        from cowfs.api import pruning

        return pruning.rules(names.checked(name), stores.name(store))

    @staticmethod
    def set_quota(name: str, size: int | str | None, *, store: str | os.PathLike[str] | Storage | None = None) -> None:
        """The volume's regular files may have so many bytes together, holes counted: an int, or a
        text like "100GB" (powers of 1024); None: as many as there is room for.

        What would make the volume larger is refused then: in a mount and in `files` with EDQUOT, a
        version that is uploaded, imported, merged or restored with NoSpaceError. What there is
        stays, also beyond the quota. `df` shows it. Whoever has the volume open goes by the quota
        that was there before. NotFoundError: no such volume. Where the volume's record is damaged,
        this makes a new one, without the rules of pruning that it may have had, and without the
        volume's owner if no earlier record names it.
        """
        from cowfs.api import quotas

        quotas.set_quota(names.checked(name), stores.name(store), size)

    @staticmethod
    def quota(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> int | None:
        """In bytes, as `set_quota` has set it; None: none. NotFoundError: no such volume."""
        from cowfs.api import quotas

        return quotas.quota(names.checked(name), stores.name(store))

    @staticmethod
    def plan_maintain(*, store: str | os.PathLike[str] | Storage | None = None) -> builtins.list[PrunePlan]:
        """A plan for each volume of the store that has saved rules, by them; `prune` carries each
        out, and `gc` then gives back the room. Volumes without rules, and deleted ones, are left
        out."""
        from cowfs.api import pruning

        return pruning.plan_all(stores.name(store))

    @staticmethod
    def prune(
        plan: PrunePlan, *, store: str | os.PathLike[str] | Storage | None = None
    ) -> builtins.list[PlannedVersion]:
        """Prunes the versions that a plan lets go: the volume has them no more, for good, and what
        only they need may be collected. Returns those that were pruned: what was tagged, mounted or
        forked since the plan was made stays. store: needed if the plan's was given with
        credentials."""
        from cowfs.api import pruning

        return pruning.prune(plan, stores.name(store))

    @staticmethod
    def gc(
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        dry_run: bool = False,
        plan: GcReport | None = None,
        pruned: Sequence[PrunePlan] | None = None,
        executor: Executor | None = None,
    ) -> GcReport:
        """Deletes what nothing in the store needs: neither a head that is not pruned, nor a tag,
        nor a mount or kept work. Writers go on meanwhile; what they may still use stays, and what
        is younger than an hour. A deleted volume can be brought back for a week; then its versions
        go, too.

        dry_run: says what would go, to the byte; with pruned, after these plans (`plan_maintain`).
        plan: what such a call has returned; nothing that it does not name is deleted. `is_done` is
        False if a writer does not answer: nothing was deleted. The next call goes on, also after a
        killed one.

        InvalidStateError: this machine's clock is wrong by more than five minutes. LeaseHeldError:
        a process of this machine is at it. Any error before something is deleted: a head, a tag or
        a pin that cannot be read stops it. Cost: roots, and the index of every kept version, once.

        executor: reads the indexes of many versions (docs/guide/large-stores.md).
        """
        from cowfs.api import collecting

        return collecting.gc(stores.name(store), dry_run=dry_run, plan=plan, pruned=pruned, executor=executor)

    @staticmethod
    def verify(
        source: str | None = None,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        sample: float = 1.0,
        resume: bool = False,
        progress: ProgressListener | None = None,
        executor: Executor | None = None,
    ) -> VerifyReport:
        """Reads the packs of a version (as `version` takes it), or of the whole store, again,
        checks every byte, and says which packs are damaged and which paths of which versions that
        breaks; of a whole store also which heads, tags, leases and records of volumes are damaged,
        and which heads are missing. Nothing is written. Of linked files only the state of their
        objects is looked at.

        sample: that part of the packs, chosen by chance; that the others are there is seen from the
        list. resume: what an interrupted run on this machine has read is left out. A store that
        does not answer raises; damage does not. executor: reads the packs
        (docs/guide/large-stores.md).
        """
        from cowfs.api import verifying

        return verifying.verify(
            source, stores.name(store), sample=sample, resume=resume, progress=progress, executor=executor
        )

    @staticmethod
    def warm(
        source: str,
        path: FilePath = "/",
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        replay: str | os.PathLike[str] | None = None,
        progress: ProgressListener | None = None,
    ) -> WarmReport:
        """`ROVolume.warm` of a version as `version` takes it: of a bare name the volume's last one.
        It may be SOURCE:PATH."""
        from cowfs.api import warming

        return warming.warm_from(source, path, stores.name(store), cache_dir, cache_size, replay, progress)

    @staticmethod
    def plan_repair(
        store: str | os.PathLike[str] | Storage | None = None,
        *,
        sources: Sequence[str | os.PathLike[str] | Storage] = (),
        report: VerifyReport | None = None,
        progress: ProgressListener | None = None,
    ) -> RepairPlan:
        """Reads the whole store as `verify` does, and looks for what is lost: in this machine's
        cache, in copies of its volumes on this machine (mounts without FUSE), in `sources`, and in
        other packs of the store. Says what `repair` would do, and which paths stay broken. Nothing
        is written. sources: other stores that have some of the same versions, or local directories
        that have files of them (a download, a mount). report: of a `verify` of this store: only its
        damaged packs are read again. InvalidInputError: a source has another key.
        """
        from cowfs.api import repairing

        return repairing.plan(stores.name(store), sources, report=report, progress=progress)

    @staticmethod
    def repair(plan: RepairPlan, *, progress: ProgressListener | None = None) -> RepairPlan:
        """Does what a plan of this process says, and returns what was done: what was found of each
        damaged pack is put into a new one, and a record says so to readers. Addresses, versions and
        locators stay as they are; nothing is deleted. CorruptError: a source has changed since."""
        from cowfs.api import repairing

        return repairing.repair(plan, progress)

    @staticmethod
    def push(
        source: str,
        to: str | os.PathLike[str] | Storage,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        name: str | None = None,
        all_versions: bool = False,
        progress: ProgressListener | None = None,
        executor: Executor | None = None,
    ) -> PushReport:
        """Copies a version (as `version` takes it) to another store, which is made if there is
        none, and makes it the last one of the volume there: of the same name, or `name`. Its id
        stays the same, and its locator differs in the store alone. Only packs that the target has
        not travel, each checked before and after, so that a push that was interrupted is repeated,
        and so is one that keeps a mirror.

        all_versions: also the volume's earlier versions that are not pruned, and its tags. The
        target needs none of them to read the version. What its volume cannot get any more, since
        it has a later version, is in `left_out` and `left_out_tags`. ConflictError: the target's
        volume has a version that this one did not come from, or a later one, and not this one;
        nothing is replaced. LeaseHeldError: somebody writes to it. InvalidInputError: one of the
        stores is encrypted, and the other has not the same key. CorruptError: a pack is damaged.
        executor: copies the packs (docs/guide/large-stores.md).
        """
        from cowfs.api import pushing

        return pushing.push(
            source,
            stores.name(store),
            stores.name(to),
            name=name,
            all_versions=all_versions,
            progress=progress,
            executor=executor,
        )

    @staticmethod
    def pull(
        source: str,
        origin: str | os.PathLike[str] | Storage,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        name: str | None = None,
        all_versions: bool = False,
        progress: ProgressListener | None = None,
        executor: Executor | None = None,
    ) -> PushReport:
        """As `push`, of a version in the store `origin`, to `store`."""
        from cowfs.api import pushing

        return pushing.push(
            source,
            stores.name(origin),
            stores.name(store),
            name=name,
            all_versions=all_versions,
            progress=progress,
            executor=executor,
        )

    @staticmethod
    def stored_bytes(
        source: str | None = None,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        by: By | None = None,
        progress: ProgressListener | None = None,
    ) -> builtins.list[StoredBytes]:
        """How much of the store each version of `source` (a volume, or one version) needs, or each
        volume of the store, and what of that nothing else needs: the room that it takes alone.
        Bytes count as they are stored, once however often they are used.

        by: `version`, `volume`, `owner` or `store`; None: versions of a source, else volumes. Reads
        the whole index of every version that the store keeps.
        """
        from cowfs.api import counting

        return counting.counted(source, stores.name(store), by, progress).groups

    @staticmethod
    def get(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> VolumeDetails:
        """What is known of a volume, in its store and on this machine. NotFoundError: there is none
        of that name; the hint names near ones."""
        from cowfs.api import details

        return details.find(name, store)

    @staticmethod
    def from_locator(locator: str | Locator, *, store: Storage | None = None) -> ROVolume:
        """The version a locator names, verified to exist, and to be one of the volume that it
        names: one request. LOCATOR/path means that folder of it, which is looked for when it is
        mounted. store: the locator's, with credentials. NotFoundError, InvalidInputError,
        CorruptError."""
        return ROVolume.from_locator(locator, store=store)


def volume(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> RWVolume:
    """The volume of that name, made when it is missing; "/mydata" and "mydata" are the same."""
    return Volume.open(name, store=store, create=True)
