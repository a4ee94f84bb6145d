"""What a volume takes at a size nobody has measured: objects, bytes, requests and memory, from the
formats' own numbers.

    python -m benchmarks.scale > docs/benchmarks/scale.md

The formulas have no measured speed in them, only what the formats fix (docs/format), the widths of
index rows below, and what code reads or keeps for each. tests/benchmarks/test_scale.py holds them
against real volumes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from cowfs.format.blocklist import SEGMENT_ENTRIES
from cowfs.format.canonical import MAX_BYTES
from cowfs.format.catalogue import MAX_ENTRIES
from cowfs.index.overlay import PAGE_BYTES
from cowfs.version.publish.known_chunks import BUDGET_BYTES

CHUNK_BYTES = 512 << 10  # native/chunking: AVERAGE_BYTES
PACK_BYTES = 16 << 20  # of data and of index
RUN_BYTES = 256 << 10
"""Of an index pack, fetched at once by who reads one page after the other."""
LISTED_AT_ONCE = 1000
DIRENT_BYTES = 14  # and the name
INODE_BYTES = 54
EXTENT_BYTES = 64
WIDER_BYTES = 8
"""Of a file whose inode and pack numbers have 5 bytes instead of 3."""
COMPRESSED = 0.4
"""Of an index page: hashes do not shrink, everything else does."""
SEGMENT_ENTRY_BYTES = 44
CATALOGUE_ENTRY_BYTES = 16
CATALOGUE_COMPRESSED = 0.73
MANIFEST_BYTES = 600
REFERENCE_BYTES = 230
"""Of a segment or a catalogue in a manifest."""
PACK_REFERENCE_BYTES = 65
CHANGED_PAGES = 5
"""By a small change: SQLite's first page, `meta`, and a leaf of each of the three tables."""
GC_BYTES = 100
"""Of memory for each live chunk: the most that a collection may take."""


@dataclass(frozen=True)
class Volume:
    """One version of so many files, each of so many bytes, no two alike."""

    files: int
    file_bytes: int
    name_bytes: int = 12

    @property
    def chunks(self) -> int:
        return self.files * ceil(self.file_bytes / CHUNK_BYTES)

    @property
    def index_bytes(self) -> int:
        wider = WIDER_BYTES if self.files > 1 << 24 else 0
        each = DIRENT_BYTES + self.name_bytes + INODE_BYTES + wider
        return self.files * each + self.chunks * EXTENT_BYTES

    @property
    def pages(self) -> int:
        return ceil(self.index_bytes / PAGE_BYTES)

    @property
    def stored_index_bytes(self) -> int:
        return int(self.pages * PAGE_BYTES * COMPRESSED)

    @property
    def segments(self) -> int:
        return ceil(self.pages / SEGMENT_ENTRIES)

    @property
    def catalogues(self) -> int:
        return ceil(self.chunks / MAX_ENTRIES)

    @property
    def stored_catalogue_bytes(self) -> int:
        return int(self.chunks * CATALOGUE_ENTRY_BYTES * CATALOGUE_COMPRESSED)

    @property
    def data_packs(self) -> int:
        return ceil(self.files * self.file_bytes / PACK_BYTES)

    @property
    def index_packs(self) -> int:
        return ceil(self.stored_index_bytes / PACK_BYTES)

    @property
    def manifest_bytes(self) -> int:
        named = self.segments + self.catalogues
        return MANIFEST_BYTES + named * REFERENCE_BYTES + self.index_packs * PACK_REFERENCE_BYTES

    @property
    def mount_bytes(self) -> int:
        """Of a read-only mount: manifest, one segment, a run of pages around the root."""
        return self.manifest_bytes + SEGMENT_ENTRIES * SEGMENT_ENTRY_BYTES + RUN_BYTES

    @property
    def change_bytes(self) -> int:
        """Sent by a commit of one small change, its content apart."""
        segments = min(CHANGED_PAGES, self.segments) * min(self.pages, SEGMENT_ENTRIES) * SEGMENT_ENTRY_BYTES
        return int(CHANGED_PAGES * PAGE_BYTES * COMPRESSED) + segments + self.manifest_bytes

    @property
    def known_chunks(self) -> int:
        """Against which a writer deduplicates: as many as fit its budget."""
        return min(self.chunks, BUDGET_BYTES // CATALOGUE_ENTRY_BYTES)

    @property
    def walk_requests(self) -> int:
        """To list everything, cold: the index once, in runs."""
        return ceil(self.stored_index_bytes / RUN_BYTES)

    @property
    def marking_requests(self) -> int:
        """Of a collection: leaves of extents and the segments that name them, and the lists of all
        objects."""
        leaves = self.chunks * EXTENT_BYTES * COMPRESSED / RUN_BYTES
        return ceil(leaves) + self.segments + ceil((self.data_packs + self.index_packs) / LISTED_AT_ONCE)

    @property
    def marking_memory(self) -> int:
        return self.chunks * GC_BYTES


VOLUMES = {
    "10 million files of 4 KiB": Volume(10_000_000, 4096),
    "1 billion files of 4 KiB": Volume(1_000_000_000, 4096),
    "10 TB in files of 1 GB": Volume(10_000, 10**9),
}


def most_files(file_bytes: int) -> int:
    """With which the manifest, which names every segment, still has the size that readers take."""
    least, most = 1, 1 << 50
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if Volume(middle, file_bytes).manifest_bytes <= MAX_BYTES else (least, middle - 1)
    return least


def _amount(number: float) -> str:
    for unit in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g} {unit}".strip()
        number /= 1000
    return f"{number:.3g} T"


def page() -> str:
    rows: list[tuple[str, Callable[[Volume], str]]] = [
        ("data packs (objects)", lambda v: _amount(v.data_packs)),
        ("index packs (objects)", lambda v: _amount(v.index_packs)),
        ("index, stored", lambda v: f"{_amount(v.stored_index_bytes)}B"),
        ("index a file, stored", lambda v: f"{_amount(v.stored_index_bytes / v.files)}B"),
        ("catalogues, stored", lambda v: f"{_amount(v.stored_catalogue_bytes)}B"),
        ("manifest", lambda v: f"{_amount(v.manifest_bytes)}B"),
        ("mount of a version, fetched", lambda v: f"{_amount(v.mount_bytes)}B"),
        ("commit of one change, sent", lambda v: f"{_amount(v.change_bytes)}B"),
        ("chunks a writer knows", lambda v: f"{100 * v.known_chunks / v.chunks:.3g} %"),
        ("walk of everything, requests", lambda v: _amount(v.walk_requests)),
        ("collection: requests to mark", lambda v: _amount(v.marking_requests)),
        ("collection: memory", lambda v: f"{_amount(v.marking_memory)}B"),
    ]
    head = ["| | " + " | ".join(VOLUMES) + " |", "|---|" + "---|" * len(VOLUMES)]
    table = [f"| {title} | " + " | ".join(value(volume) for volume in VOLUMES.values()) + " |" for title, value in rows]
    return TEXT.format(table="\n".join(head + table), most=_amount(most_files(4096)))


TEXT = """# Scale, on paper

Nobody has measured these sizes: the table is computed (`benchmarks/scale.py`) from what the formats
fix and what an index row takes. A test compares the formulas with real volumes. One version, no two
files alike; units are powers of ten.

{table}

What breaks first, with small files:

1. **A collection's memory.** It may keep 100 bytes for each live chunk; a billion files do not fit
   an ordinary machine.
2. **Deduplication.** A writer knows 8 million chunks (128 MiB of catalogues); what is beyond is
   stored again. Nothing is lost but space.
3. **The manifest.** Each version names every segment of its index, so with a billion files a commit
   of one byte sends megabytes. Readers refuse a manifest of more than 64 MiB, which is {most} files
   of 4 KiB.

Large files are far from all of this: of 10 TB the only loss is that a writer knows less than half of
the chunks.
"""

if __name__ == "__main__":
    print(page(), end="")
