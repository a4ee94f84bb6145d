"""Publishes change sets as the next version of a volume: packs, index, catalogue, manifest, head.
The only module that creates such a head.

    Source.draft ─┬▶ chunks durable ──────┬▶ lists read ───────┬▶ intent ─▶ head ─▶ Source.published
         ▲        └▶ index packs durable ─┴▶ manifest durable ─┤             │
         └── a pack it relies on was condemned, a chunk was not readable, ◀──┴── a collection's fence
             the pin was dead

The `Source` supplies the changes: a session's layer, a merge, a restore, an import. This module
knows neither an engine nor a process; the caller passes functions that fsync on this machine
(`record_intent`, `record_published`, `drop_intent`).

Order (docs/architecture.md, "A commit"): everything is durable before it is named; the head comes
last. Crash points between the steps are named `commit-*` (`cowfs.base.failpoints`).

A version is bound to the head number it started from and creates exactly the next one. It is
drafted again when a collection has condemned a pack or version that it relies on (`protection`),
when a chunk could not be read meanwhile, and when a collection's fence took its number; any other
head at that number means that the line is lost.

After an error with an unknown outcome, the same head record is put again before anything else
happens (`resume`).

In the main thread of a user's process it must run by `cowfs.base.interruptible`: a signal's
exception in the middle of a step would leave the source, and the line, without an outcome. While a
version can still be left out, it ends with `interruptible.GivenUp`, and its source is abandoned.

One thread at a time, except for `base`, `acknowledge` and `hold`, which any thread may use at any
time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from cowfs.base import clock, interruptible
from cowfs.base.errors import ConflictError, CowfsError, LeaseLostError
from cowfs.base.failpoints import hit
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import PackId, StoreId, VersionId, WriteId
from cowfs.format import keys
from cowfs.format.catalogue import CataloguePack, encode_catalogue
from cowfs.format.heads import Intent
from cowfs.format.manifest import LINKS, Manifest, Stats, version_id
from cowfs.format.pack import PackKind
from cowfs.format.records import HeadRecord
from cowfs.index import ChangeSet, Published, Stream
from cowfs.index import publish as publish_index
from cowfs.native.chunks import FileRows
from cowfs.store.packs import PackUploader, load_purged, require_unpurged
from cowfs.store.refs import refs
from cowfs.store.refs.beside import beside
from cowfs.store.sealed import sealing_of
from cowfs.version.commit import Base, CommitRequest, Progress, ProgressListener
from cowfs.version.names import quotas
from cowfs.version.names.volumes import find_head
from cowfs.version.publish.contents import files_of
from cowfs.version.publish.heads import is_only_fenced
from cowfs.version.publish.recut import E
from cowfs.version.publish.still_there import StillThere
from cowfs.version.publish.stored_chunks import StoredChunks
from cowfs.version.publish.uploads import UploadLog
from cowfs.version.retention.keeping import being_deleted

if TYPE_CHECKING:
    from cowfs.index import ExtentRow, Index, IndexDelta
    from cowfs.native.chunks import SmallFiles
    from cowfs.store import ObjectStore
    from cowfs.store.packs import PackReader
    from cowfs.version.publish.cut_file import ReadInto
    from cowfs.version.publish.pack_numbers import PackNumbers
    from cowfs.version.publish.protection import Protection
    from cowfs.version.publish.recut import Read

DRAFTS = 5


@dataclass(frozen=True)
class Draft:
    """The changes. contents: all rows of each file with changed content, in the order of inode
    numbers.

    changes: everything else. Its `contents` and `packs` stay empty, since they follow from the
    rows, which name packs by the publisher's numbers (`Publisher.rows` makes such rows).

    parents: versions that it comes from besides the base. taken_from: versions whose stored content
    it takes over.
    """

    changes: ChangeSet
    contents: FileRows
    parents: tuple[VersionId, ...] = ()
    taken_from: tuple[VersionId, ...] = ()


class Source(Protocol):
    """Supplies the changes of one version, and learns their outcome.

    Either `record_published` or `abandon` is called, once, as soon as the outcome is known: by
    `Publisher.publish`, or by a later `resume` if the store did not answer. A source that inherits
    from this class keeps nothing, and need not learn it.
    """

    @property
    def layer(self) -> int:
        """The writer's number for this work, which the intent carries; 0: it needs none."""
        return 0

    def draft(self) -> Draft:
        """Called on the publisher's current base, and again while the draft cannot be relied on:
        then it must not take over stale rows, nor rows that were made before the chunks' `doubts`
        rose (`stored_chunks`).
        """
        ...

    def list_kept(self, ino: int) -> Collection[tuple[int, bytes, int]]:
        """(offset, chunk hash, number of its pack) of the file's content in the base version: as
        good as the base, even if its chunks are suspected."""
        return ()

    def record_published(self, index: Index) -> None:
        """The head is in the line, and was recorded. index: of the new version, for readers of the
        old one."""
        return

    def abandon(self) -> None:
        """There is no version of this work, and there will be none."""
        return


@dataclass
class _Prepared:
    """Everything of a version that is durable in the store, except manifest and head.

    is_placed: its head was put, so that it is, or may be, in the line."""

    source: Source
    contents: FileRows
    taken_from: tuple[VersionId, ...]
    packs: Mapping[int, PackId]  # numbers that the base does not have
    catalogues: Sequence[bytes]  # of the new chunks
    index: Index  # opened already: after the head no step may fail for want of the store
    index_packs: frozenset[PackId]  # uploaded for this version
    manifest: Manifest
    data: bytes  # of the manifest
    version: VersionId
    lapses: int  # of the pin, before any look-up
    is_placed: bool = False


class _NewChunks:
    """Catalogues of the chunks that a version adds, encoded during the first iteration; raw_bytes
    is complete after it."""

    def __init__(self, chunks: StoredChunks, contents: FileRows) -> None:
        self.catalogues: list[bytes] = []
        self.raw_bytes = 0
        self._chunks = chunks
        self._new = chunks.name(contents)

    def __iter__(self) -> Iterator[bytes]:
        for entries, packs, raw_bytes in self._new:
            receipts = map(self._chunks.receipt, packs)
            table = [CataloguePack(each.pack, each.directory_offset, each.directory_length) for each in receipts]
            self.catalogues.append(encode_catalogue(table, entries))
            self.raw_bytes += raw_bytes
            yield self.catalogues[-1]


class Publisher:
    """A volume's line, for its only writer. index: of the base; the publisher closes it once there
    is a newer one.

    record_intent must be on stable storage when it returns: after a restart it tells whether an
    existing head is its own. drop_intent: the head is not in the line, and never will be.
    quota_bytes: of the volume, unless it was checked before, as by an engine. keeps_work: the
    published work lies in a working copy, not in a place that it can be taken from again. compress:
    contents of files.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        store_id: StoreId,
        volume: str,
        epoch: int,
        base: Base,
        index: Index,
        packs: PackReader,
        numbers: PackNumbers,
        protection: Protection,
        record_intent: Callable[[Intent], None],
        record_published: Callable[[Intent], None],
        drop_intent: Callable[[], None],
        max_uploads: int = 50,
        uploads: UploadLog | None = None,
        quota_bytes: int = quotas.NONE,
        keeps_work: bool = True,
        compress: bool = True,
    ) -> None:
        self._store = store
        self._volume = volume
        self._epoch = epoch
        self._base = base
        self._index = index
        self._packs = packs
        self._numbers = numbers
        self._protection = protection
        self._record_intent = record_intent
        self._record_published = record_published
        self._drop_intent = drop_intent
        self._quota_bytes = quota_bytes
        self._keeps_work = keeps_work
        self._new_uploader = partial(PackUploader, store, max_uploads=max_uploads, compress=compress)
        self.chunks = StoredChunks(
            store,
            volume=volume,
            section=index.section,
            packs=packs,
            numbers=numbers,
            protection=protection,
            new_uploader=self._new_uploader,
            uploads=uploads or UploadLog(None),
        )
        self._there = StillThere(
            store, store_id=store_id, volume=volume, packs=packs, chunks=self.chunks, keeps_work=keeps_work
        )
        self._unpurged_for: frozenset[PackId] | None = None  # what was condemned when purges were looked at
        self._unsettled: tuple[_Prepared, Intent, HeadRecord] | None = None

    @property
    def base(self) -> Base:
        """The last published state."""
        return self._base

    @property
    def index(self) -> Index:
        """The index of the base."""
        return self._index

    @property
    def is_unsettled(self) -> bool:
        """Whether a head was put whose outcome is unknown."""
        return self._unsettled is not None

    def publish(self, source: Source, request: CommitRequest, progress: ProgressListener = lambda _: None) -> Base:
        """Makes the next version from the draft of `source`; returns the new base. progress gets
        "index" for each try.

        LeaseLostError: another writer has head n+1. ConflictError: collections kept condemning the
        draft's packs. NotFoundError: a collection is deleting a version whose content was taken
        over. PurgedError: the base was purged as a whole.
        """
        prepared: _Prepared | None = None
        wanted = request.write_id
        write_id = WriteId.from_hex(wanted) if wanted else WriteId(clock.random_bytes(WriteId.length))
        try:
            self.resume()
            self._protection.read_lists()
            for _ in range(DRAFTS):
                self.chunks.prove(self._base.head_number)
                with interruptible.meanwhile(self._require_unpurged):
                    prepared = self._prepare(source, request, progress)
                with self._protection.publishing() as read_lists:
                    if self._may_be_published(prepared):
                        there = partial(self._there.has, self._base, prepared.taken_from, prepared.packs.values())
                        look = partial(beside, read_lists, there)
                        _, (_, is_there) = beside(partial(self._put_manifest, prepared), look)
                        if is_there and self._may_be_published(prepared) and self._put_version(prepared, write_id):
                            self._unpurged_for = self._protection.condemned
                            return self._base
                prepared.index.close()
                prepared = None
            raise ConflictError(
                "garbage collections kept condemning packs this commit needs", hint="Commit again; nothing is lost."
            )
        except BaseException:
            if prepared is None or not prepared.is_placed:
                if prepared is not None:
                    prepared.index.close()
                source.abandon()
            raise

    def resume(self) -> None:
        """Puts a head with an unknown outcome again, with the same bytes. UnavailableError: the
        outcome is still unknown. InvalidStateError: the head before it is missing."""
        if self._unsettled is None:
            return
        prepared, intent, record = self._unsettled
        self._there.require_base(self._base)
        try:
            self._put_head(prepared, intent, record)
        except ConflictError as error:
            prepared.index.close()
            prepared.source.abandon()
            self._move_behind_fences(error)

    def acknowledge(self) -> None:
        """Renews the pin, and acknowledges the lists of collections, so that they need not wait for
        the next version.

        One list request if nothing is new. Writes nothing while a head's outcome is unknown.
        """
        self._protection.acknowledge(lambda: self._base.head_number, self.chunks.list_uploaded_packs)

    def hold(self) -> None:
        """Keeps the base and the uploaded packs protected for work that stays unpublished."""
        self._protection.hold(self._base.head_number, self.chunks.list_uploaded_packs())

    def close(self) -> None:
        """Ends the threads. The index stays open."""
        self.chunks.close()

    def storing(self) -> AbstractContextManager[None]:
        """Around `rows` that are made before there is a version to publish. Memory stays reserved
        for more of them, until `chunks.rest` or the next version."""
        return self.chunks.storing(self._base.head_number)

    def rows(self, ino: int, extents: Sequence[E], read: Read[E]) -> list[ExtentRow]:
        """Stores the content of the file, and returns all its rows, to be drafted. Call it within
        `storing` or `Source.draft`."""
        interruptible.require_wanted()
        return self.chunks.rows(extents, read, self._earlier(ino))

    def put_small(self, files: SmallFiles, rows: FileRows) -> None:
        """As `rows`, for many small files, whose rows are added to `rows`."""
        interruptible.require_wanted()
        old = [ino for ino in files.read_inodes() if ino < self._index.next_ino]
        self.chunks.put_small(files, rows, self._index.read_stored_extents(old) if old else ())

    def file_rows(
        self,
        ino: int,
        ranges: Iterable[tuple[int, int]],
        read_into: ReadInto,
        *,
        goes_on: bool = False,
        is_first: bool = True,
    ) -> list[ExtentRow]:
        """As `rows`, for a large file without kept chunks: with new bytes in `ranges`, (offset,
        length) in order, and holes elsewhere; goes_on: as for `cut_file`. is_first: this is the
        first part of the file: its earlier content is looked up once."""
        interruptible.require_wanted()
        earlier = self._earlier(ino) if is_first else ()
        return self.chunks.file_rows(ranges, read_into, earlier, goes_on=goes_on)

    def pack_number(self, pack: PackId) -> int:
        """The number by which drafted rows name a pack in the store."""
        return self._numbers.number(pack)

    def _earlier(self, ino: int) -> Iterable[ExtentRow]:
        """The rows of the file in the base."""
        return self._index.read_stored_content(ino)[0] if ino < self._index.next_ino else ()

    # -- up to the manifest

    def _prepare(self, source: Source, request: CommitRequest, progress: ProgressListener) -> _Prepared:
        """Makes the draft, its chunks, index blocks and catalogue, durable on return, and the
        manifest that names them. The last chunks and the index are uploaded at the same time."""
        with ExitStack() as undo:
            with self.chunks.make_durable():
                draft = source.draft()
                hit("commit-before-packs")
                progress(Progress("index"))
                self.chunks.send()
                contents = draft.contents
                packs = self.chunks.new_packs(contents)
                rows = Stream(lambda: ((ino, rows) for ino, _, rows in files_of(contents)))
                with self._index.apply(replace(draft.changes, contents=rows, packs=packs)) as delta:
                    quotas.check(self._volume, self._quota_bytes, self._index.counted_bytes, delta.counted_bytes)
                    new = _NewChunks(self.chunks, contents)
                    published = self._put_index(delta, new)
                    hit("commit-after-index")
                    index = delta.as_index(published.section)
                    undo.callback(index.close)
            hit("commit-after-packs")
            manifest = self._manifest(delta, published, new.raw_bytes, request, draft.parents)
            data = bytes(sealing_of(self._store).seal_object(keys.VERSIONS, manifest.encode()))
            undo.pop_all()
        return _Prepared(
            source,
            contents,
            draft.taken_from,
            packs,
            new.catalogues,
            index,
            frozenset(receipt.pack for receipt in published.receipts),
            manifest,
            data,
            version_id(data),
            self.chunks.proven_lapses,
        )

    def _put_index(self, delta: IndexDelta, new: _NewChunks) -> Published:
        uploader = self._new_uploader(PackKind.INDEX)
        try:
            return publish_index(
                delta,
                uploader=uploader,
                reader=self._packs,
                base_section=self._index.section,
                catalogues=new,
            )
        finally:
            uploader.close()

    def _manifest(
        self,
        delta: IndexDelta,
        published: Published,
        added_bytes: int,
        request: CommitRequest,
        parents: tuple[VersionId, ...],
    ) -> Manifest:
        return Manifest(
            volume=self._volume,
            parents=((self._base.version_id,) if self._base.version_id else ()) + parents,
            index=published.section,
            stats=Stats(
                files=delta.totals.files,
                directories=delta.totals.directories,
                bytes=delta.totals.bytes,
                added_bytes=added_bytes,
                stored_bytes_added=self.chunks.uploaded_bytes
                + sum(receipt.size_bytes for receipt in published.receipts),
                linked_bytes=delta.linked_bytes,
            ),
            requires=(LINKS,) if delta.format > 1 else (),
            created_ns=clock.now_ns(),
            message=request.message,
            author=request.author,
            labels=dict(request.labels),
            produced_by=dict(request.produced_by),
        )

    def require_kept(self, versions: Iterable[VersionId]) -> None:
        """NotFoundError: a collection is deleting one of them. A version that is not being deleted
        is complete, even if its packs have moved, so its packs need not be checked."""
        for version in versions:
            if version in self._protection.condemned_versions:
                raise being_deleted(self._store, version)

    def _require_unpurged(self) -> None:
        """PurgedError: the base was purged as a whole. It may have been opened before, or from this
        machine's cache. A purge condemns packs, so without new ones nothing is asked."""
        condemned = self._protection.condemned
        if self._base.version_id is not None and condemned != self._unpurged_for:
            require_unpurged(load_purged(self._store), self._base.version_id, self._store.url)
            self._unpurged_for = condemned

    def _may_be_published(self, prepared: _Prepared) -> bool:
        self.require_kept(prepared.taken_from)
        self._require_unpurged()
        if prepared.lapses != self._protection.lapses or prepared.index_packs & self._protection.condemned:
            return False
        if not (suspects := self.chunks.suspects):
            return True
        files = files_of(prepared.contents)
        return not any(
            self.chunks.is_stale(rows, suspects, partial(prepared.source.list_kept, ino)) for ino, _, rows in files
        )

    # -- the head

    def _put_manifest(self, prepared: _Prepared) -> None:
        self._store.put(keys.version(prepared.version), prepared.data)
        hit("commit-after-manifest")

    def _put_version(self, prepared: _Prepared, write_id: WriteId) -> bool:
        """Puts the head, after its intent. False: a collection's fence came first, so that
        everything must be prepared again behind it."""
        interruptible.require_wanted()  # the last chance: after the intent the head is put in any case
        number = self._base.head_number + 1
        intent = Intent(number, write_id, prepared.version, prepared.source.layer)
        record = HeadRecord(
            kind="commit",
            version=prepared.version,
            epoch=self._epoch,
            created_ns=prepared.manifest.created_ns,
            write_id=intent.write_id,
            prev=self._base.head_check,
        )
        self._record_intent(intent)
        hit("commit-before-head")
        try:
            self._put_head(prepared, intent, record)
        except ConflictError as error:
            self._move_behind_fences(error)
            return False
        return True

    def _put_head(self, prepared: _Prepared, intent: Intent, record: HeadRecord) -> None:
        """Creates the head and moves the base to it. UnavailableError: the outcome is unknown, and
        `resume` tries again."""
        self._unsettled = prepared, intent, record
        prepared.is_placed = True
        self._protection.is_bound = True
        try:
            check = refs.append(self._store, refs.head(self._volume), intent.number, record).check
        except ConflictError:
            prepared.is_placed = False
            self._mark_settled()
            with suppress(CowfsError):  # a full disk: the next opening finds the head again
                self._drop_intent()
            raise
        hit("commit-after-head")
        self._record_published(intent)
        self._mark_settled()
        hit("commit-after-published")
        before, self._index = self._index, prepared.index
        self._base = Base(intent.number, prepared.version, prepared.manifest, check)
        self._there.was_seen()
        self._numbers.rebase(self._index, prepared.packs)
        self.chunks.record_published(prepared.catalogues, prepared.manifest.index)
        prepared.catalogues = ()
        prepared.source.record_published(self._index)  # needs the most memory: last
        before.close()

    def _what_now(self, *, is_deleted: bool = False) -> str:
        """The hint for a writer that has lost the line."""
        back = f"the volume back ({Command('undelete', self._volume)}, Store().undelete())"
        if self._keeps_work:
            fork = "Nothing is lost: the work is kept in the working copy. Fork it under another name"
            return f"{fork}, or bring {back} and mount it again." if is_deleted else f"{fork}."
        return (
            f"Bring {back}, and do it again."
            if is_deleted
            else "Do it again, once no other process writes to the volume."
        )

    def _mark_settled(self) -> None:
        self._unsettled = None
        self._protection.is_bound = False

    def _move_behind_fences(self, error: ConflictError) -> None:
        """Handles a number that was taken. Only after fences of collections does the line stay
        ours: the next try starts from the last of them."""
        head = find_head(self._store, self._volume)
        if head is not None and head.is_void:
            raise LeaseLostError(
                f"volume {self._volume!r} is gone for good; this commit was not published",
                hint=self._what_now() if self._keeps_work else "Do it again, under another name.",
                details={"volume": self._volume},
            ) from error
        if head is None or head.is_deleted:
            raise LeaseLostError(
                f"volume {self._volume!r} was deleted; this commit was not published",
                hint=self._what_now(is_deleted=True),
                details={"volume": self._volume},
            ) from error
        # A collection's fence has the epoch of the head before it: that of an earlier writer, if
        # this one has put no head.
        is_ours = head.version == self._base.version_id and head.epoch <= self._epoch
        if not is_ours or not is_only_fenced(self._store, self._volume, self._base.head_number, head):
            raise LeaseLostError(
                f"another writer went on with volume {self._volume!r}; this commit was not published",
                hint=self._what_now(),
                details={"volume": self._volume, "epoch": head.epoch, "version": str(head.version or "")},
            ) from error
        self._base = replace(self._base, head_number=head.number, head_check=head.check)
        self.chunks.forget_proofs()
