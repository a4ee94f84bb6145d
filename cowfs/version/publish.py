"""Turns change sets into the next version of a volume: packs, index, catalogue, manifest, head. The
only way to a head.

    Source.draft ─┬▶ chunks durable ──────┬▶ lists read ───────┬▶ intent ─▶ head ─▶ Source.published
         ▲        └▶ index packs durable ─┴▶ manifest durable ─┤             │
         └── a pack it relies on was condemned, a chunk was not readable, ◀──┴── a collection's fence
             the pin was dead

Who made the changes is the `Source`'s business: a session's layer, a merge, a restore, an import.
Known here are neither an engine nor a process; what has to be fsynced on this machine is handed in
(`record_intent`, `record_published`, `drop_intent`).

Order (docs/architecture.md, "A commit"): nothing is named before it is durable; the head comes
last. Crash points between the steps are named `commit-*` (`cowfs.failpoints`).

A version is bound to the head number it started from and creates exactly the next one. It is
drafted again when a collection has condemned what it relies on (`protection`), when a chunk it
relies on could not be read meanwhile, and when a collection's fence took its number; anything else
at that number means that the line is lost.

After an error of which the outcome is unknown, the same head record is put again before anything
else happens (`resume`).

In the main thread of a user's process only apart (`cowfs.apart`): an exception that a signal raises
in the middle of a step would leave the source, and the line, without an outcome. Where a version
can still be left out it ends with `apart.GivenUp`, and its source is abandoned.

One thread at a time, but for `base`, `acknowledge` and `hold`, which any thread may use at any
time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from cowfs import apart, clock
from cowfs.errors import ConflictError, CowfsError, InvalidStateError, LeaseLostError, NotFoundError
from cowfs.failpoints import hit
from cowfs.format import keys
from cowfs.format.catalogue import CataloguePack, encode_catalogue
from cowfs.format.heads import Intent
from cowfs.format.manifest import LINKS, Manifest, Stats, version_id
from cowfs.format.pack import PackKind
from cowfs.format.records import HeadRecord
from cowfs.helpers import Helpers
from cowfs.ids import PackId, StoreId, VersionId, WriteId
from cowfs.index import ChangeSet, Published, Stream
from cowfs.index import publish as publish_index
from cowfs.native.chunks import FileRows
from cowfs.store import refs
from cowfs.store.beside import beside
from cowfs.store.initialize import current_id
from cowfs.store.packs import PackUploader
from cowfs.store.sealed import sealing_of
from cowfs.values import dataclass
from cowfs.version import quotas
from cowfs.version.commit import Base, CommitRequest, Progress, ProgressListener
from cowfs.version.contents import files_of
from cowfs.version.heads import is_only_fenced
from cowfs.version.keeping import being_deleted
from cowfs.version.recut import E
from cowfs.version.stored_chunks import StoredChunks
from cowfs.version.uploads import UploadLog
from cowfs.version.volumes import find_head

if TYPE_CHECKING:
    from cowfs.index import ExtentRow, Index, IndexDelta
    from cowfs.native.chunks import SmallFiles
    from cowfs.store import ObjectStore
    from cowfs.store.packs import PackReader
    from cowfs.version.cut_file import ReadInto
    from cowfs.version.pack_numbers import PackNumbers
    from cowfs.version.protection import Protection
    from cowfs.version.recut import Read

DRAFTS = 5
_LOOKS = 16
PROVEN_S = 60.0
"""How long what was stored or seen is taken to be there, where asking costs a request."""


@dataclass(frozen=True)
class Draft:
    """What is to change. contents: all rows of each file whose content changes, in the order of
    inode numbers.

    changes: all the rest. Its `contents` and `packs` are left empty, since they follow from the
    rows, which name packs by the publisher's numbers (`Publisher.rows` makes such rows).

    parents: versions that it comes from besides the base. taken_from: whose content it takes over
    as it is stored.
    """

    changes: ChangeSet
    contents: FileRows
    parents: tuple[VersionId, ...] = ()
    taken_from: tuple[VersionId, ...] = ()


class Source(Protocol):
    """Where the changes of one version come from, and who learns what became of them.

    Of `published` and `abandoned` one is called, once, as soon as the outcome is known: by
    `Publisher.publish`, or by a later `resume` if the store did not tell. A source that inherits
    from this keeps nothing, and need not learn it.
    """

    @property
    def layer(self) -> int:
        """The writer's number for this work, which the intent carries; 0: it needs none."""
        return 0

    def draft(self) -> Draft:
        """Made on the publisher's base of the moment. Called again while what was drafted cannot be
        relied on: then it must not take over rows that are stale, nor any that were made before the
        chunks' `doubts` rose (`stored_chunks`).
        """
        ...

    def kept(self, ino: int) -> Collection[tuple[int, bytes, int]]:
        """(offset, chunk hash, number of its pack) of what the file has from the base version: as
        good as the base, whatever is suspected of it."""
        return ()

    def published(self, index: Index) -> None:
        """The head is in the line, and was recorded. index: the new version's, for whoever reads
        the one before."""
        return

    def abandoned(self) -> None:
        """There is no version of this, and there will be none."""
        return


@dataclass
class _Prepared:
    """Everything of a version that is durable in the store, short of manifest and head.

    is_placed: its head was put, so that it is, or may be, in the line."""

    source: Source
    contents: FileRows
    taken_from: tuple[VersionId, ...]
    packs: Mapping[int, PackId]  # numbers that the base has not got
    catalogues: Sequence[bytes]  # of the new chunks
    index: Index  # opened already: behind the head nothing may fail that needs the store
    index_packs: frozenset[PackId]  # which it has uploaded
    manifest: Manifest
    data: bytes  # of the manifest
    version: VersionId
    lapses: int  # of the pin, before anything was looked up
    is_placed: bool = False


class _NewChunks:
    """Catalogues of the chunks that a version adds, encoded when they are first gone through; they
    and raw_bytes are whole afterwards."""

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
    """A volume's line, for its one writer. index: of the base; the publisher closes it once there
    is a newer one.

    record_intent must be on stable storage when it returns: a restart tells by it whether the head
    it finds is its own. drop_intent: it is not in the line, and never will be. quota_bytes: of the
    volume, where nobody has seen to it before, as an engine does. keeps_work: what is published
    lies in a working copy, not where it can be taken from again.
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
    ) -> None:
        self._store = store
        self._store_id = store_id
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
        self._new_uploader = partial(PackUploader, store, max_uploads=max_uploads)
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
        self._unsettled: tuple[_Prepared, Intent, HeadRecord] | None = None
        self._proven_s = clock.monotonic_s()

    @property
    def base(self) -> Base:
        """The last published state."""
        return self._base

    @property
    def index(self) -> Index:
        """The base's."""
        return self._index

    @property
    def is_unsettled(self) -> bool:
        """Whether a head was put of which nobody knows if it is in the line."""
        return self._unsettled is not None

    def publish(self, source: Source, request: CommitRequest, progress: ProgressListener = lambda _: None) -> Base:
        """Makes the next version of what `source` drafts; returns the new base. progress hears of
        "index" for each try.

        LeaseLostError when another writer has head n+1. ConflictError when collections kept
        condemning what was drafted. NotFoundError when one is deleting a version whose content was
        taken over.
        """
        prepared: _Prepared | None = None
        try:
            self.resume()
            self._protection.read_lists()
            for _ in range(DRAFTS):
                self.chunks.prove(self._base.head_number)
                prepared = self._prepare(source, request, progress)
                with self._protection.publishing() as read_lists:
                    if self._may_be_published(prepared):
                        look = partial(beside, read_lists, partial(self._is_all_there, prepared))
                        _, (_, is_there) = beside(partial(self._put_manifest, prepared), look)
                        if is_there and self._may_be_published(prepared) and self._put_version(prepared):
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
                source.abandoned()
            raise

    def resume(self) -> None:
        """Puts a head of which the outcome is not known again with the same bytes.
        UnavailableError: it still is not. InvalidStateError: the one before it is not there."""
        if self._unsettled is None:
            return
        prepared, intent, record = self._unsettled
        self._require_base()
        try:
            self._put_head(prepared, intent, record)
        except ConflictError as error:
            prepared.index.close()
            prepared.source.abandoned()
            self._move_behind_fences(error)

    def acknowledge(self) -> None:
        """Renews the pin, and acknowledges what collections have condemned, so that they need not
        wait for the next version.

        One list request when nothing is new. Writes nothing while a head's outcome is unknown.
        """
        self._protection.acknowledge(self._base.head_number, self.chunks.uploaded_packs)

    def hold(self) -> None:
        """Work that is not published stays: what it stands on, and what it has uploaded, is kept
        for it."""
        self._protection.hold(self._base.head_number, self.chunks.uploaded_packs())

    def close(self) -> None:
        """Ends the threads. The index stays open."""
        self.chunks.close()

    def storing(self) -> AbstractContextManager[None]:
        """Around `rows` that are made before there is a version to publish. Memory is kept for more
        of them, until `chunks.rest` or the next version."""
        return self.chunks.storing(self._base.head_number)

    def rows(self, ino: int, extents: Sequence[E], read: Read[E]) -> list[ExtentRow]:
        """Stores what the file is made of, and gives all its rows, to be drafted. Within `storing`,
        or `Source.draft`."""
        apart.require_wanted()
        return self.chunks.rows(extents, read, self._earlier(ino))

    def put_small(self, files: SmallFiles, rows: FileRows) -> None:
        """As `rows`, of many small files, whose rows are added to `rows`."""
        apart.require_wanted()
        old = [ino for ino in files.read_inodes() if ino < self._index.next_ino]
        self.chunks.put_small(files, rows, self._index.stored_extents(old) if old else ())

    def file_rows(
        self,
        ino: int,
        ranges: Iterable[tuple[int, int]],
        read_into: ReadInto,
        *,
        goes_on: bool = False,
        is_first: bool = True,
    ) -> list[ExtentRow]:
        """As `rows`, of a large file that keeps no chunk: with new bytes in `ranges`, (offset,
        length) in order, and holes elsewhere; goes_on: as `cut_file` has it. is_first: of the
        file's parts: what it had before is looked up once."""
        apart.require_wanted()
        earlier = self._earlier(ino) if is_first else ()
        return self.chunks.file_rows(ranges, read_into, earlier, goes_on=goes_on)

    def pack_number(self, pack: PackId) -> int:
        """By which rows that are drafted name a pack that is in the store."""
        return self._numbers.number(pack)

    def _earlier(self, ino: int) -> Iterable[ExtentRow]:
        """The rows of the file as it was."""
        return self._index.stored_content(ino)[0] if ino < self._index.next_ino else ()

    # -- up to the manifest

    def _prepare(self, source: Source, request: CommitRequest, progress: ProgressListener) -> _Prepared:
        """A draft, its chunks, index blocks and catalogue, durable when it returns, and the
        manifest that names them. The last chunks and the index are on their way at the same
        time."""
        with ExitStack() as undo:
            with self.chunks.stored():
                draft = source.draft()
                hit("commit-before-packs")
                progress(Progress("index"))
                self.chunks.send()
                contents = draft.contents
                packs = self.chunks.new_packs(contents)
                rows = Stream(lambda: ((ino, rows) for ino, _, rows in files_of(contents)))
                with self._index.apply(replace(draft.changes, contents=rows, packs=packs)) as delta:
                    quotas.check(self._volume, self._quota_bytes, self._index.totals().bytes, delta.totals.bytes)
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
        is whole, wherever its packs have moved, so no pack of its need be asked for."""
        for version in versions:
            if version in self._protection.condemned_versions:
                raise being_deleted(self._store, version)

    def _may_be_published(self, prepared: _Prepared) -> bool:
        self.require_kept(prepared.taken_from)
        if prepared.lapses != self._protection.lapses or prepared.index_packs & self._protection.condemned:
            return False
        if not (suspects := self.chunks.suspects):
            return True
        files = files_of(prepared.contents)
        return not any(
            self.chunks.is_stale(rows, suspects, partial(prepared.source.kept, ino)) for ino, _, rows in files
        )

    # -- the head

    def _is_all_there(self, prepared: _Prepared) -> bool:
        """Whether the store has what the version takes from it besides what the base has: stored by
        this writer, or found there. If not, it has to be prepared again. InvalidStateError: it
        lacks the head that the next one is put behind. NotFoundError: or a version whose content
        was taken over. What such a version has lost is taken over as it is, and not looked for."""
        is_near = self._store.url.startswith("file:")  # a disk may be changed, and asking costs nothing
        now_s = clock.monotonic_s()
        doubted_s = now_s if is_near else now_s - PROVEN_S  # what was stored before that is looked for
        if not is_near and self._proven_s > doubted_s:
            return True
        self._require_base()
        for version in prepared.taken_from:
            if self._store.size(keys.version(version)) is None:
                raise NotFoundError(
                    f"{self._store.url} has no version {version} any more; nothing was published",
                    hint="It was collected, or the store was put back to an earlier state. `cowfs log` and history() list versions.",
                )
        named = set(prepared.packs.values())
        if prepared.taken_from:
            named &= self.chunks.uploaded_packs()
        doubted = [pack for pack in named if not self.chunks.was_stored_since(pack, doubted_s)]
        if doubted:
            with Helpers(min(_LOOKS, len(doubted)), name="cowfs-look") as threads:
                if not all(threads.map(self._is_there, doubted)):
                    self.chunks.taken_for_dead()
                    return False
        self._proven_s = now_s
        return True

    def _is_there(self, pack: PackId) -> bool:
        return self._store.size(keys.pack(pack)) is not None or self._packs.has_moved(pack)

    def _require_base(self) -> None:
        """The store may be another one by now, or an earlier state of it was brought back: what
        this line stands on is not there, and a version of it could not be read."""
        number = self._base.head_number
        if number < refs.FIRST:
            return
        try:
            is_there = self._base.version_id is not None or current_id(self._store) == self._store_id
            if is_there:
                is_there = refs.read(self._store, refs.head(self._volume), number).version == self._base.version_id
        except NotFoundError:
            is_there = False
        if not is_there:
            raise InvalidStateError(
                f"{self._store.url} has not the version that this work stands on, as head {number} of volume "
                f"{self._volume!r}: it is another store now, or was put back to an earlier state; nothing was published",
                hint="The work is kept. Make the store that was there available again, and commit; or copy what you need out of "
                "the mount (`cowfs upload PATH NAME`, files.upload())."
                if self._keeps_work
                else "Make the store that was there available again, and do it again.",
            )

    def _put_manifest(self, prepared: _Prepared) -> None:
        self._store.put(keys.version(prepared.version), prepared.data)
        hit("commit-after-manifest")

    def _put_version(self, prepared: _Prepared) -> bool:
        """The head, and that it is meant. False: a collection's fence came first, so that
        everything must be prepared again behind it."""
        apart.require_wanted()  # the last moment: an intent is followed through
        number = self._base.head_number + 1
        intent = Intent(number, WriteId(clock.random_bytes(WriteId.length)), prepared.version, prepared.source.layer)
        record = HeadRecord(
            kind="commit",
            version=prepared.version,
            epoch=self._epoch,
            created_ns=prepared.manifest.created_ns,
            write_id=intent.write_id,
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
        """Creates the head and moves the base to it. UnavailableError: unknown, `resume` tries
        again."""
        self._unsettled = prepared, intent, record
        prepared.is_placed = True
        self._protection.is_bound = True
        try:
            refs.append(self._store, refs.head(self._volume), intent.number, record)
        except ConflictError:
            prepared.is_placed = False
            self._settled()
            with suppress(CowfsError):  # a full disk: the next opening finds it out again
                self._drop_intent()
            raise
        hit("commit-after-head")
        self._record_published(intent)
        self._settled()
        hit("commit-after-published")
        before, self._index = self._index, prepared.index
        self._base = Base(intent.number, prepared.version, prepared.manifest)
        self._proven_s = clock.monotonic_s()
        self._numbers.rebase(self._index, prepared.packs)
        self.chunks.published(prepared.catalogues, prepared.manifest.index)
        prepared.catalogues = ()
        prepared.source.published(self._index)  # which takes the most memory: last
        before.close()

    def _what_now(self, *, is_deleted: bool = False) -> str:
        """For whoever has lost the line."""
        back = f"the volume back (`cowfs undelete {self._volume}`, Volume.undelete())"
        if self._keeps_work:
            fork = "Nothing is lost: the work is kept in the working copy. Fork it under another name"
            return f"{fork}, or bring {back} and mount it again." if is_deleted else f"{fork}."
        return (
            f"Bring {back}, and do it again." if is_deleted else "Do it again, once nobody else writes to the volume."
        )

    def _settled(self) -> None:
        self._unsettled = None
        self._protection.is_bound = False

    def _move_behind_fences(self, error: ConflictError) -> None:
        """Our number was taken. Only a collection's fences leave the line to us: the next try
        starts from the last of them."""
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
        # A collection's fence has the epoch of the head before it: of an earlier writer, if this
        # one has put none.
        is_ours = head.version == self._base.version_id and head.epoch <= self._epoch
        if not is_ours or not is_only_fenced(self._store, self._volume, self._base.head_number, head):
            raise LeaseLostError(
                f"another writer went on with volume {self._volume!r}; this commit was not published",
                hint=self._what_now(),
                details={"volume": self._volume, "epoch": head.epoch, "version": str(head.version or "")},
            ) from error
        self._base = replace(self._base, head_number=head.number)
        self.chunks.taken_for_dead()
