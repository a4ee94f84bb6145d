"""Publishes a tree of files as a volume's next version, without engine and journal. Uploads and
commits of copies share this code."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from cowfs.api.transfers.transfer_report import Target
from cowfs.control import MountOptions, SessionSpec
from cowfs.version.commit import Base, CommitRequest, ProgressListener

if TYPE_CHECKING:
    from cowfs.transfer.upload.upload_plan import Uploaded, UploadPlan
    from cowfs.transfer.upload.upload_reading import SourceTree
    from cowfs.writer.publishing import Line


def writing(target: Target, options: MountOptions | None = None) -> SessionSpec:
    """The objects that a process without a mount works on."""
    return SessionSpec(
        store_url=target.store.url,
        volume=target.name,
        mode="rw",
        options=replace(options or MountOptions(), resident=False).resolved(),
        working_copy=str(target.working_copy.path),
    )


def publish_tree(
    line: Line, source: SourceTree, plan: UploadPlan, request: CommitRequest, progress: ProgressListener | None
) -> tuple[Uploaded, Base, bool]:
    """Publishes the tree. Returns the report, the volume's last version, and whether this call made
    it. If nothing differs, nothing is published, unless the request adds to the last version."""
    from cowfs.transfer.upload.tree_upload import TreeUpload
    from cowfs.transfer.upload.upload_plan import NothingToUpload

    before = line.publisher.base
    is_due = before.manifest is None or (bool(request.given) and request.says_more_than(before.manifest))
    tree = TreeUpload(line.publisher, source, plan, wants_version=is_due, hurry=line.hurry, progress=progress)
    try:
        base = line.publisher.publish(tree, request, progress or (lambda _: None))
    except NothingToUpload:
        base = before
    return tree.done, base, base.version_id != before.version_id


def require_committed(target: Target, spec: SessionSpec, fate: str = "") -> None:
    """InvalidStateError: there is uncommitted work here; fate: as for `has_uncommitted`. A journal
    may also have records that change nothing; this shows only when it is opened."""
    if not target.working_copy.has_records:
        return
    from cowfs.session.opening import enter_session
    from cowfs.writer.publishing import has_uncommitted

    discard = threading.Event()
    with enter_session(spec, discard=discard, access=target.store.access) as session:
        if session.engine.is_dirty():
            raise has_uncommitted(target.name, fate)
        discard.set()
