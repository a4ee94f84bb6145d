"""Random trees as dicts, and the indexes that hold them: what comparing and merging are held to."""

from __future__ import annotations

import copy
import stat
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from cowfs.index import ChangeSet, ExtentRow, Index, InodeRow, empty_index
from cowfs.index.cache import BlockCache
from cowfs.index.overlay import MemoryBlocks
from cowfs.version.differences import find_inode
from tests.index.bench import NOW_NS, Bench, change_set, extent, pack_id

ROOT = 1
NOWHERE = Path("/nowhere")
NAMES = [b"a", b"b", b"c", b"d", b"\xff"]
CHUNK_BYTES = 1000
LONG_VALUE = 9000  # goes on in an overflow page


@dataclass
class Node:
    kind: str
    mode: int = 0o644
    uid: int = 1000
    mtime_ns: int = NOW_NS
    target: bytes = b""
    chunks: tuple[int, ...] = ()
    xattrs: dict[bytes, bytes] = field(default_factory=dict)
    names: dict[bytes, int] = field(default_factory=dict)

    def state(self) -> Any:
        """All that a comparison without times sees, but for what is in a directory."""
        return self.kind, self.mode, self.uid, self.target, self.chunks, tuple(sorted(self.xattrs.items()))


class Tree:
    """Inodes by number; numbers are never used twice."""

    def __init__(self) -> None:
        self.nodes = {ROOT: Node("directory", 0o755)}
        self.next_ino = 2
        self.clock_ns = NOW_NS

    def copy(self) -> Tree:
        return copy.deepcopy(self)

    # -- looking

    def paths(self, ino: int = ROOT, path: bytes = b"") -> Iterator[tuple[bytes, int]]:
        yield path, ino
        for name, below in sorted(self.nodes[ino].names.items()):
            yield from self.paths(below, path + b"/" + name if path else name)

    def states(self) -> dict[bytes, Any]:
        return {path: self.nodes[ino].state() for path, ino in self.paths()}

    def files(self) -> set[frozenset[bytes]]:
        """The names of each file."""
        return names_together((path, ino) for path, ino in self.paths() if self.nodes[ino].kind != "directory")

    def directories(self) -> list[int]:
        return [ino for _, ino in self.paths() if self.nodes[ino].kind == "directory"]

    def links(self, ino: int) -> int:
        return sum(below == ino for node in self.nodes.values() for below in node.names.values())

    def below(self, ino: int) -> set[int]:
        return {each for _, each in self.paths(ino)}

    # -- changing

    def make(self, parent: int, name: bytes, node: Node) -> int:
        self.remove(parent, name)
        ino, self.next_ino = self.next_ino, self.next_ino + 1
        self.nodes[ino] = node
        node.mtime_ns = self._tick()
        self._name(parent, name, ino)
        return ino

    def link(self, parent: int, name: bytes, ino: int) -> None:
        if self.nodes[ino].kind != "directory" and self.nodes[parent].names.get(name) != ino:
            self._name(parent, name, ino)
            self._tidy()

    def rename(self, parent: int, name: bytes, to: int, new: bytes) -> None:
        ino = self.nodes[parent].names.get(name)
        if ino is None or to in self.below(ino) or self.nodes[to].names.get(new) == ino:
            return
        replaced = self.nodes[to].names.get(new)
        if replaced is not None and parent in self.below(replaced):
            return
        del self.nodes[parent].names[name]
        self._name(to, new, ino)
        self._tidy()

    def remove(self, parent: int, name: bytes) -> None:
        if self.nodes[parent].names.pop(name, None) is not None:
            self.nodes[parent].mtime_ns = self._tick()
            self._tidy()

    def _name(self, parent: int, name: bytes, ino: int) -> None:
        self.nodes[parent].names[name] = ino
        self.nodes[parent].mtime_ns = self._tick()

    def _tick(self) -> int:
        self.clock_ns += 1
        return self.clock_ns

    def _tidy(self) -> None:
        kept = self.below(ROOT)
        for ino in [ino for ino in self.nodes if ino not in kept]:
            del self.nodes[ino]

    # -- as an index

    def row(self, ino: int) -> InodeRow:
        node = self.nodes[ino]
        kinds = {"directory": stat.S_IFDIR, "file": stat.S_IFREG, "symlink": stat.S_IFLNK}
        is_directory = node.kind == "directory"
        below = [self.nodes[each].kind for each in node.names.values()]
        links = 2 + below.count("directory") if is_directory else self.links(ino)
        mapped = CHUNK_BYTES * len(node.chunks)
        size = len(node.target) if node.kind == "symlink" else mapped
        flags = 1 if node.xattrs else 0
        mode = kinds[node.kind] | node.mode
        return (ino, mode, links, node.uid, 1000, 0, size, mapped, 0, node.mtime_ns, node.mtime_ns, flags, node.target)

    def extents(self, ino: int) -> list[ExtentRow]:
        chunks = self.nodes[ino].chunks
        return [extent(place * CHUNK_BYTES, CHUNK_BYTES, chunk=chunk) for place, chunk in enumerate(chunks)]

    def changes_since(self, old: Tree) -> ChangeSet:
        entries = []
        for parent in self.nodes.keys() | old.nodes.keys():
            before = old.nodes[parent].names if parent in old.nodes else {}
            after = self.nodes[parent].names if parent in self.nodes else {}
            entries += [(parent, name, ino) for name, ino in after.items() if before.get(name) != ino]
            entries += [(parent, name, 0) for name in before if name not in after]
        old_rows = {ino: old.row(ino) for ino in old.nodes}
        contents = {ino: self.extents(ino) for ino, node in self.nodes.items() if node.kind == "file"}
        return change_set(
            next_ino=self.next_ino,
            inodes=[row for ino in self.nodes if old_rows.get(ino) != (row := self.row(ino))],
            removed=[ino for ino in old.nodes if ino not in self.nodes],
            entries=entries,
            contents={ino: rows for ino, rows in contents.items() if ino not in old.nodes or rows != old.extents(ino)},
            xattrs={
                ino: sorted(node.xattrs.items())
                for ino, node in self.nodes.items()
                if node.xattrs != (old.nodes[ino].xattrs if ino in old.nodes else {})
            },
            packs={1: pack_id(1)},
        )

    def index(self, bench: Bench, old: Tree | None = None, base: Index | None = None) -> Index:
        """This tree's index, made on the base's; the base stays open."""
        if old is None or base is None:
            return bench.commit(bench.empty(), self.changes_since(Tree()))[0]
        assert base.section is not None
        return bench.commit(bench.open(base.section), self.changes_since(old))[0]

    def in_memory(self, old: Tree | None = None, base: Index | None = None) -> Index:
        """The same, published nowhere."""
        if old is None or base is None:
            old, base = Tree(), empty_index(NOWHERE, uid=1000, gid=1000, now_ns=NOW_NS)
        return applied_in_memory(base, self.changes_since(old))


def applied_in_memory(base: Index, changes: ChangeSet) -> Index:
    with base.apply(changes) as delta:
        pages = dict(delta.pages())
        unchanged = [base.blocks.read(number) for number in range(min(base.blocks.count, delta.page_count))]
        blocks = [pages.get(number + 1) or unchanged[number] for number in range(delta.page_count)]
        return Index(MemoryBlocks("a tree", blocks), BlockCache(NOWHERE))


def read_back(index: Index) -> dict[bytes, Any]:
    """As `Tree.states`; everything that rows say about each other holds."""
    kinds = {stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "symlink"}
    root = index.inode(ROOT)
    assert root is not None
    found: dict[bytes, Any] = {}
    names: Counter[int] = Counter()
    rows = {ROOT: root}
    waiting = [(b"", root)]
    while waiting:
        path, row = waiting.pop()
        rows[row[0]] = row
        extents, xattrs = index.content(row[0])
        chunks = tuple(_chunk_of[bytes(each[2])] for each in extents)
        assert bool(row[11] & 1) == bool(xattrs)
        assert not stat.S_ISREG(row[1]) or row[6] == row[7] == sum(each[1] for each in extents), path
        found[path] = kinds[stat.S_IFMT(row[1])], stat.S_IMODE(row[1]), row[3], row[12], chunks, tuple(xattrs)
        if stat.S_ISDIR(row[1]):
            below = index.directory(row[0])
            assert row[2] == 2 + sum(stat.S_ISDIR(each[1]) for _, each in below), path
            for name, each in below:
                names[each[0]] += 1
                waiting.append((path + b"/" + name if path else name, each))
    for ino, row in rows.items():
        assert stat.S_ISDIR(row[1]) or row[2] == names[ino]
    every = [ino for ino in range(1, index.next_ino) if index.inode(ino) is not None]
    assert every == sorted(rows), "each inode has a name"
    directories = sum(stat.S_ISDIR(row[1]) for row in rows.values()) - 1
    assert index.totals()[:2] == (len(rows) - 1 - directories, directories)
    return found


def files_of_index(index: Index, paths: Iterable[bytes]) -> set[frozenset[bytes]]:
    """As `Tree.files`."""
    rows = [(path, find_inode(index, path)) for path in paths]
    return names_together((path, row[0]) for path, row in rows if row is not None and not stat.S_ISDIR(row[1]))


def names_together(names: Iterable[tuple[bytes, Hashable]]) -> set[frozenset[bytes]]:
    found = defaultdict(set)
    for path, file in names:
        found[file].add(path)
    return {frozenset(paths) for paths in found.values()}


_chunk_of = {extent(0, 1, chunk=chunk)[2]: chunk for chunk in range(100)}


STEPS = ("file", "file", "directory", "symlink", "remove", "rename", "rename", "link", "copy", "alter")


@st.composite
def changed(draw: st.DrawFn, tree: Tree, most: int = 12, steps: Sequence[str] = STEPS) -> Tree:
    """The tree after some steps as programs make them."""
    new = tree.copy()
    for _ in range(draw(st.integers(0, most))):
        _step(draw, new, draw(st.sampled_from(steps)))
    return new


def _step(draw: st.DrawFn, tree: Tree, step: str, parent: int = 0, name: bytes = b"") -> None:
    """parent, name: where, if not just anywhere."""
    parent = parent or draw(st.sampled_from(tree.directories()))
    name = name or draw(st.sampled_from(NAMES))
    if step == "remove":
        tree.remove(parent, name)
    elif step == "rename":
        tree.rename(parent, name, draw(st.sampled_from(tree.directories())), draw(st.sampled_from(NAMES)))
    elif step == "link":
        files = [ino for ino, node in tree.nodes.items() if node.kind != "directory"]
        if files:
            tree.link(parent, name, draw(st.sampled_from(files)))
    elif step == "copy":
        files = [ino for ino, node in tree.nodes.items() if node.kind == "file"]
        if files:
            one = tree.nodes[draw(st.sampled_from(files))]
            mtime_ns = one.mtime_ns
            tree.nodes[tree.make(parent, name, copy.deepcopy(one))].mtime_ns = mtime_ns  # as `cp -a`
    elif step in ("move", "replace"):
        _step_there(draw, tree, step)
    elif step == "alter":
        _alter(draw, tree, draw(st.sampled_from(sorted(tree.nodes))))
    elif step == "directory":
        tree.make(parent, name, Node("directory", 0o755))
    elif step == "symlink":
        tree.make(parent, name, Node("symlink", 0o777, target=draw(st.sampled_from([b"x", b"y"]))))
    else:
        tree.make(parent, name, Node("file", chunks=draw(_chunks)))


def _step_there(draw: st.DrawFn, tree: Tree, step: str) -> None:
    """With a name that there is."""
    there = [(parent, name) for parent in tree.directories() for name in tree.nodes[parent].names]
    if not there:
        return
    parent, name = draw(st.sampled_from(there))
    if step == "move":
        tree.rename(parent, name, draw(st.sampled_from(tree.directories())), draw(st.sampled_from(NAMES)))
    else:
        _step(draw, tree, draw(st.sampled_from(["directory", "file", "symlink"])), parent, name)


def _alter(draw: st.DrawFn, tree: Tree, ino: int) -> None:
    node = tree.nodes[ino]
    what = draw(st.sampled_from(["content", "content", "mode", "uid", "xattrs", "touch"]))
    if what == "content" and node.kind == "file":
        node.chunks = draw(_chunks)
        node.mtime_ns = tree._tick()
    elif what == "mode" and node.kind != "symlink":
        node.mode = draw(st.sampled_from([0o600, 0o755, 0o700]))
    elif what == "uid":
        node.uid = draw(st.sampled_from([0, 1000, 1001]))
    elif what == "xattrs":
        name, length = draw(st.sampled_from([b"user.a", b"user.b"])), draw(st.sampled_from([0, 3, LONG_VALUE]))
        if length:
            node.xattrs[name] = draw(st.sampled_from([b"x", b"y"])) * length
        else:
            node.xattrs.pop(name, None)
    elif what == "touch":
        node.mtime_ns = tree._tick()


_chunks = st.lists(st.integers(1, 6), max_size=3).map(tuple)


trees = changed(Tree())
