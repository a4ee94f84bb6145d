"""A tree of files becomes a volume's next version, without engine and journal: what uploads and
commits of copies have in common."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from cowfs.api.transfer_report import Target
from cowfs.control import MountOptions, SessionSpec
from cowfs.version.commit import Base, CommitRequest, ProgressListener

if TYPE_CHECKING:
    from cowfs.session.publishing import Line
    from cowfs.session.upload_plan import Uploaded, UploadPlan
    from cowfs.session.upload_reading import SourceTree


def writing(target: Target, options: MountOptions | None = None) -> SessionSpec:
    """What a process without a mount works on."""
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
    """What was done, the version that the volume stands on now, and whether this has made it:
    nothing is published if nothing differs, unless the request says more than the last version."""
    from cowfs.session.tree_upload import TreeUpload
    from cowfs.session.upload_plan import NothingToUpload

    before = line.publisher.base
    is_due = before.manifest is None or (bool(request.given) and request.says_more_than(before.manifest))
    tree = TreeUpload(line.publisher, source, plan, wants_version=is_due, hurry=line.hurry, progress=progress)
    try:
        base = line.publisher.publish(tree, request, progress or (lambda _: None))
    except NothingToUpload:
        base = before
    return tree.done, base, base.version_id != before.version_id


def require_committed(target: Target, spec: SessionSpec, fate: str = "") -> None:
    """InvalidStateError when uncommitted work is here; fate: as of `has_uncommitted`. A journal
    may also have records that change nothing: only opening it tells."""
    if not target.working_copy.has_records:
        return
    from cowfs.session.opening import opened
    from cowfs.session.publishing import has_uncommitted

    discard = threading.Event()
    with opened(spec, discard=discard, access=target.store.access) as session:
        if session.engine.is_dirty():
            raise has_uncommitted(target.name, fate)
        discard.set()
