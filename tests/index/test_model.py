"""Random change sets over many versions against a model made of dicts: each version equals the
model at its time, for ever."""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cowfs.index import ChangeSet, ExtentRow, Index, InodeRow, Link
from cowfs.index.index import SHORT_VALUE_BYTES
from tests.index.bench import Bench, change_set, directory_row, extent, file_row, pack_id, symlink_row

ROOT = 1


@dataclass
class Model:
    """A file tree as dicts, and the operations a working copy knows; `changes_since` is what an
    engine would report."""

    inodes: dict[int, InodeRow] = field(default_factory=dict)
    names: dict[int, dict[bytes, int]] = field(default_factory=dict)
    extents: dict[int, list[ExtentRow]] = field(default_factory=dict)
    xattrs: dict[int, list[tuple[bytes, bytes]]] = field(default_factory=dict)
    links: dict[int, Link] = field(default_factory=dict)
    packs: int = 0
    next_ino: int = 2
    forgets_links: bool = False
    stored: set[int] = field(default_factory=set)  # files that have contents in the last version

    def add(self, parent: int, name: bytes, kind: str) -> None:
        ino, self.next_ino = self.next_ino, self.next_ino + 1
        if kind == "directory":
            self.inodes[ino] = directory_row(ino)
            self.names[ino] = {}
        else:
            self.inodes[ino] = symlink_row(ino, name) if kind == "symlink" else file_row(ino)
        self.names[parent][name] = ino

    def unlink(self, parent: int, name: bytes) -> None:
        ino = self.names[parent][name]
        if self.names.get(ino):
            return
        del self.names[parent][name]
        if not any(ino in listed.values() for listed in self.names.values()):
            for table in (self.inodes, self.names, self.extents, self.xattrs, self.links):
                table.pop(ino, None)

    def write(self, ino: int, extents: list[ExtentRow]) -> None:
        end = extents[-1][0] + extents[-1][1] if extents else 0
        mapped_bytes = sum(row[1] for row in extents)
        self.inodes[ino] = file_row(ino, end, mapped_bytes=mapped_bytes, mtime_ns=len(extents))
        self.extents[ino] = extents
        self.links.pop(ino, None)
        self.packs = max([self.packs, *(row[3] for row in extents)])

    def link(self, ino: int, link: Link) -> None:
        """Only files without contents are linked, neither here nor in the last version."""
        if not self.extents.get(ino) and ino not in self.stored:
            self.extents.pop(ino, None)
            self.inodes[ino] = file_row(ino, link.size)
            self.links[ino] = link

    def changes_since(self, old: Model) -> ChangeSet:
        entries = []
        for parent in self.names.keys() | old.names.keys():
            before, after = old.names.get(parent, {}), self.names.get(parent, {})
            entries += [(parent, name, ino) for name, ino in after.items() if before.get(name) != ino]
            entries += [(parent, name, 0) for name in before if name not in after]
        changes = change_set(
            next_ino=self.next_ino,
            inodes=[row for ino, row in self.inodes.items() if old.inodes.get(ino) != row],
            removed=[ino for ino in old.inodes if ino not in self.inodes],
            entries=entries,
            contents={i: rows for i, rows in self.extents.items() if old.extents.get(i) != rows},
            xattrs={i: rows for i, rows in self.xattrs.items() if old.xattrs.get(i) != rows},
            packs={number: pack_id(number) for number in range(old.packs + 1, self.packs + 1)},
        )
        links = [(ino, self.links[ino]) for ino in sorted(self.links) if old.links.get(ino) != self.links[ino]]
        return replace(changes, links=links, forgets_links=self.forgets_links)

    def check(self, index: Index) -> None:
        for parent, listed in self.names.items():
            assert index.directory(parent) == [(name, self.inodes[listed[name]]) for name in sorted(listed)]
        for ino in range(1, self.next_ino + 1):
            assert index.inode(ino) == self.inodes.get(ino)
            assert index.read_stored_content(ino) == (self.extents.get(ino, []), sorted(self.xattrs.get(ino, [])))
        contents = [(ino, self.extents.get(ino, []), sorted(self.xattrs.get(ino, []))) for ino in sorted(self.inodes)]
        assert index.read_stored_contents(1, self.next_ino) == [
            (ino, extents, xattrs)
            for ino, extents, xattrs in contents
            if (extents or xattrs) and all(len(value) <= SHORT_VALUE_BYTES for _, value in xattrs)
        ]
        assert dict(index.links()) == self.links
        assert index.may_have_links or not self.links
        files = [row for row in self.inodes.values() if row[1] & 0o170000 != 0o040000]
        size = sum(row[6] for row in files if row[1] & 0o170000 == 0o100000)
        assert index.totals() == (len(files), len(self.inodes) - len(files) - 1, size)
        assert index.next_ino == self.next_ino
        assert index.pack_ids() == {number: pack_id(number) for number in range(1, self.packs + 1)}


names = st.one_of(
    st.sampled_from([b"a", b"b", b"\xff", b"A"]),
    st.binary(min_size=1, max_size=255).map(lambda name: name.replace(b"/", b"_").replace(b"\0", b"_")),
).filter(lambda name: name not in (b".", b".."))


@st.composite
def extent_lists(draw: st.DrawFn) -> list[ExtentRow]:
    rows: list[ExtentRow] = []
    at = 0
    for _ in range(draw(st.sampled_from([0, 1, 2, 3, 300]))):
        at += draw(st.integers(0, 2)) * 512
        length = draw(st.integers(1, 3)) * 1000
        rows.append(extent(at, length, chunk=draw(st.integers(0, 1 << 20)), pack=draw(st.integers(1, 4))))
        at += length
    return rows


def change_names(draw: st.DrawFn, model: Model) -> None:
    operation = draw(st.sampled_from(["add", "add", "fill", "unlink", "move", "link", "clear"]))
    parent = draw(st.sampled_from(sorted(model.names)))
    named = sorted((p, name) for p, listed in model.names.items() for name in listed)
    if operation == "add":
        name = draw(names)
        if name not in model.names[parent]:
            model.add(parent, name, draw(st.sampled_from(["file", "directory", "symlink"])))
    elif operation == "fill":
        start = model.next_ino
        for number in range(draw(st.sampled_from([5, 600]))):
            model.add(parent, b"fill-%d-%d" % (start, number), "file")
    elif operation == "clear":
        for name in list(model.names[parent]):
            model.unlink(parent, name)
    elif operation == "unlink" and named:
        model.unlink(*draw(st.sampled_from(named)))
    elif named:
        old_parent, name = draw(st.sampled_from(named))
        ino, new_name = model.names[old_parent][name], draw(names)
        if ino not in model.names and new_name not in model.names[parent]:
            model.names[parent][new_name] = ino
            if operation == "move":
                del model.names[old_parent][name]


def change_files(draw: st.DrawFn, model: Model) -> None:
    files = sorted(ino for ino, row in model.inodes.items() if row[1] & 0o170000 == 0o100000)
    operation = draw(st.sampled_from(["extents", "extents", "xattrs", "link"]))
    if files and operation == "extents":
        linked = sorted(model.links) if draw(st.booleans()) else []
        model.write(draw(st.sampled_from(linked or files)), draw(extent_lists()))
    elif files and operation == "link":
        origin, size = draw(st.sampled_from(["s3://a", "file:///b"])), draw(st.integers(1, 3))
        model.link(draw(st.sampled_from(files)), Link(origin, b"key", size, 0, "tag"))
    elif files:
        attributes = draw(st.dictionaries(names, st.sampled_from([b"", b"v", bytes(40_000)]), max_size=3))
        model.xattrs[draw(st.sampled_from(files))] = list(attributes.items())


@st.composite
def histories(draw: st.DrawFn) -> list[Model]:
    """The model at each version."""
    model = Model(inodes={ROOT: directory_row(ROOT)}, names={ROOT: {}})
    found = []
    for _ in range(draw(st.integers(1, 6))):
        for _ in range(draw(st.integers(0, 8))):
            draw(st.sampled_from([change_names, change_files]))(draw, model)
        model.forgets_links = draw(st.booleans())
        found.append(copy.deepcopy(model))
        model.stored = {ino for ino, rows in model.extents.items() if rows}
    return found


def play(history: list[Model]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory))
        index, before = bench.empty(), Model(inodes={}, names={ROOT: {}})
        published = []
        for model in history:
            index, done = bench.commit(index, model.changes_since(before))
            model.check(index)
            published.append(done.section)
            before = model
            live = sum(use.live_blocks for use in done.section.packs)
            assert live <= done.section.pages
        index.close()
        for model, section in zip(history, published, strict=True):
            with bench.open(section) as old:
                model.check(old)
        bench.store.close()


@settings(max_examples=20)
@given(histories())
def test_every_version_equals_the_model_at_its_time(history: list[Model]) -> None:
    play(history)


@pytest.mark.slow
@settings(max_examples=60)
@given(histories())
def test_every_version_equals_the_model_at_its_time_at_length(history: list[Model]) -> None:
    play(history)
