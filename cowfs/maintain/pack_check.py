"""One pack read whole, and every byte of it checked: header, directory, footer, each blob's hash.
Nothing in a plain pack says which one it is; one blob that a version names there does. What seems
damaged is asked for again (`store.damaged`).

Memory: the pack, some 16 MiB for those that cowfs writes. Any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cowfs.errors import CorruptError, NotFoundError
from cowfs.format import codec, keys
from cowfs.format.pack import PackDirectory, PackEntry, PackKind, parse_pack
from cowfs.format.sealing import Sealing
from cowfs.helpers import Helpers
from cowfs.ids import PackId
from cowfs.store import ObjectStore
from cowfs.store.damaged import read_as
from cowfs.store.sealed import sealing_of
from cowfs.values import dataclass

THREADS = 4


@dataclass(frozen=True)
class PackState:
    """What was found. problem "": everything is right. directory None: it cannot be trusted, or the
    pack is gone. broken: offsets of listed blobs that are not what they are named by."""

    pack: PackId
    size: int
    problem: str = ""
    is_gone: bool = False
    kind: PackKind | None = None
    directory: PackDirectory | None = None
    broken: frozenset[int] = frozenset()

    def has_whole(self, blob: PackEntry) -> bool:
        """Whether this very blob was read from the pack and is right."""
        return self.directory is not None and blob.offset not in self.broken and self.directory.at(blob.offset) == blob


Heard = Callable[[PackState], None]
Expected = tuple[PackId, PackEntry | None]
"""A pack, and a blob that a version names there, if any does."""


def check_pack(store: ObjectStore, pack: PackId, named: PackEntry | None = None) -> PackState:
    """As `read_pack`, without the bytes."""
    return read_pack(store, pack, named)[0]


def read_pack(store: ObjectStore, pack: PackId, named: PackEntry | None = None) -> tuple[PackState, bytes]:
    """What was found, and the pack's bytes: none, unless everything is right. named: as of
    `check_bytes`. Errors of the store itself are raised: a pack that could not be fetched is not a
    damaged one."""
    state: PackState | None = None

    def checked(data: bytes) -> tuple[PackState, bytes]:
        nonlocal state
        state = check_bytes(data, pack, sealing_of(store), named)
        if state.problem:
            raise CorruptError(state.problem)
        return state, data

    try:
        return read_as(store, keys.pack(pack), checked)
    except NotFoundError:
        return PackState(pack, 0, "it is gone", is_gone=True), b""
    except CorruptError as error:
        return state or PackState(pack, 0, error.message), b""


def check_packs(store: ObjectStore, packs: Sequence[Expected], heard: Heard = lambda state: None) -> list[PackState]:
    """THREADS at a time, each in memory whole. Of packs that are right only that is told, so that
    the answer is small. heard: of each, by several threads."""

    def check(expected: Expected) -> PackState:
        pack, named = expected
        state = check_pack(store, pack, named)
        heard(state)
        return state if state.problem else PackState(pack, state.size)

    with Helpers(THREADS, name="cowfs-verify") as threads:
        return list(threads.map(check, packs))


def check_bytes(data: bytes, pack: PackId, sealing: Sealing, named: PackEntry | None = None) -> PackState:
    """named: a blob that a version names in this pack, by which it is known to be no other one."""
    blobs = sealing.pack(pack)
    try:
        kind, directory = parse_pack(data, what=f"pack {pack}", blobs=blobs)
    except CorruptError as error:
        return PackState(pack, len(data), error.message)
    broken = frozenset(entry.offset for entry in directory if not is_right(data, entry, pack, sealing))
    problem = f"{len(broken)} of its {len(directory)} blobs do not have the hash they are named by" if broken else ""
    state = PackState(pack, len(data), problem, kind=kind, directory=directory, broken=broken)
    if named is None or problem or state.has_whole(named):
        return state
    return replace(state, problem="it is another pack: what versions name there is not in it")


def is_right(data: bytes, entry: PackEntry, pack: PackId, sealing: Sealing) -> bool:
    stored = memoryview(data)[entry.offset : entry.offset + entry.stored_length]
    what = f"the blob at {entry.offset} of pack {pack}"
    try:
        plain = sealing.pack(pack).open(stored, entry.offset, entry.codec, entry.raw_length, what=what)
        codec.decompress(plain, entry.codec, entry.raw_length, entry.hash, what, name=sealing.name)
    except CorruptError:
        return False
    return True
