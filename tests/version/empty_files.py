"""Versions of many files without contents, published without a mount."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from cowfs.index import ChangeSet
from cowfs.native.chunks import FileRows
from cowfs.store import open_store
from cowfs.version.commit import CommitRequest
from cowfs.version.publish.publisher import Draft, Source
from tests.index.bench import directory_row, file_row
from tests.version.working_volume import WorkingVolume


def publish_empty_files(store_url: str, name: str, directories: int, files: int, place: Path) -> None:
    """Volume `name`: empty files, whose rows are as large as those of others, spread evenly over
    directories d0000, d0001, …"""
    first, per_directory = 2 + directories, files // directories
    inodes = [
        *(directory_row(2 + at) for at in range(directories)),
        *(file_row(first + at, 0) for at in range(files)),
    ]
    names = [(1, b"d%04d" % at, 2 + at) for at in range(directories)]
    names += [(2 + at // per_directory, b"file-%07d" % at, first + at) for at in range(files)]

    class Many(Source):
        def draft(self) -> Draft:
            return Draft(ChangeSet(first + files, inodes=inodes, entries=names), FileRows())

    with closing(open_store(store_url, create=True)) as store, WorkingVolume(store, name, place) as volume:
        volume.publisher.publish(Many(), CommitRequest(message="many"))
