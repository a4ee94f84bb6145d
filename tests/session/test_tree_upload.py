"""Uploads beside a garbage collection that takes their writer for dead."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from cowfs.base.ids import VersionId
from cowfs.store import ObjectStore
from cowfs.transfer.local_files import LocalFiles
from cowfs.transfer.upload.tree_upload import TreeUpload
from cowfs.transfer.upload.upload_plan import UploadPlan
from cowfs.version.commit import CommitRequest
from tests.store.test_pins import declare_dead
from tests.version.conftest import impatient, store
from tests.version.test_protection import condemn, delete, fence, packs, tree
from tests.version.test_publish import line

__all__ = ["impatient", "store"]

pytestmark = pytest.mark.usefixtures("impatient")


def test_what_a_collection_has_taken_is_stored_again(store: ObjectStore, tmp_path: Path) -> None:
    """Right before the head, once of a first version and once of the one after it: large files and
    small ones, of which some had not changed."""
    root = tmp_path / "tree"
    (root / "sub").mkdir(parents=True)
    large, more = (random.Random(seed).randbytes(6_000_000) for seed in range(2))
    with line(store, tmp_path / "home") as mine, LocalFiles(os.fsencode(root)) as source:

        def published(name: str, data: bytes) -> VersionId | None:
            (root / name).write_bytes(data)
            (root / "small").write_text(name)
            kept = packs(store)

            def collect() -> None:
                gone = packs(store) - kept
                condemn(store, 1 + len(kept), gone)
                declare_dead(store, mine.protection.pin)
                fence(store, "v")
                delete(store, gone)

            mine.meanwhile.append(collect)
            upload = TreeUpload(mine.publisher, source, UploadPlan(b"", b"", (1, 1)), wants_version=True)
            base = mine.publisher.publish(upload, CommitRequest())
            assert upload.done.files == len([path for path in root.rglob("*") if path.is_file()]), "counted once"
            return base.version_id

        published("large", large)
        last = published("sub/more", more)
    assert tree(store, last, tmp_path / "r") == {
        b"large": large,
        b"small": b"sub/more",
        b"sub": None,
        b"sub/more": more,
    }
