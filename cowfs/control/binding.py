"""A mount's binding to a process: the daemon ends the mount when that process is gone.

The starter sends it in the mount's specification. Processes that share an existing mount send it as
a request of their own (`messages.BIND`), and take it back when their use ends before they do.
"""

from __future__ import annotations

from typing import Literal

from cowfs.base.fast_dataclass import dataclass
from cowfs.machine.processes import ProcessIdentity
from cowfs.version.commit import CommitRequest

OnError = Literal["keep", "commit", "discard"]


@dataclass(frozen=True)
class Binding:
    """process: a user of the mount. on_error: what becomes of uncommitted work when the process is
    gone and no other process shares the mount. None: the process is no longer bound.

    "keep"      it stays in the working copy
    "commit"    it is published with `commit`; if that fails, it stays
    "discard"   it is dropped
    """

    process: ProcessIdentity
    on_error: OnError | None
    commit: CommitRequest = CommitRequest()
