"""Opens a version to copy from it: index and packs, no engine and no chunk cache."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import VersionId
from cowfs.control import SessionSpec
from cowfs.index import Index
from cowfs.store import AMBIENT, Access, load_record
from cowfs.store.packs import PackReader
from cowfs.store.reliability.patience import patience_of
from cowfs.transfer.linked import LinkedBytes
from cowfs.transfer.version_tree import VersionTree
from cowfs.writer.acquiring import check_cache_dir, open_base, open_base_index, open_session_store


@dataclass(frozen=True)
class Opened:
    """tree: the files of the version, or of a folder of it, read through the other three."""

    index: Index
    packs: PackReader
    linked: LinkedBytes
    tree: VersionTree


@contextmanager
def reading(spec: SessionSpec, *, access: Access = AMBIENT) -> Iterator[VersionTree]:
    """The files of a read-only spec's version, or folder of it, for the length of a block."""
    with ExitStack() as stack:
        yield open_tree(spec, stack, access).tree


def open_tree(spec: SessionSpec, stack: ExitStack, access: Access) -> Opened:
    """Opens a version for as long as the stack lasts."""
    assert spec.version is not None
    check_cache_dir(spec.options.cache_path)  # of index blocks
    store = open_session_store(spec, stack, access).read_only()
    load_record(store)
    packs = PackReader(store)
    base = open_base(store, 0, VersionId.from_hex(spec.version))
    index = open_base_index(spec, stack, store, packs, base)
    if (patience := patience_of(store)) is not None:
        patience.limit_s = spec.options.store_timeout_s
    linked = LinkedBytes(store.url, access, spec.options.store_timeout_s)
    folder = spec.folder.encode(errors="surrogateescape")
    return Opened(index, packs, linked, stack.enter_context(closing(VersionTree(index, packs, folder, linked))))
