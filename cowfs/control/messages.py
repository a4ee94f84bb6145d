"""The requests to a mount's daemon, and its answers: one type each, shared by both ends and by the
programs that show them.

    PING     Nothing         Pong
    STATUS   Nothing         MountStatus                     shown by `cowfs status`
    COMMIT   CommitRequest   Committed                       with progress, as often as there is news
    COMPARE  Comparison      Compared                        for `diff` of work that is in no version
    RESTORE  Restoration     Restored                        changes the working copy, and publishes nothing
    ADOPT    Adoption        Nothing                         for a scratch: its commits go to that volume from now on
    UNMOUNT  Ending          Left                            the process ends after the answer
    DETACH   Nothing         Nothing                         off its path at once, served until the last file is closed
    DISCARD  Ending          Nothing                         as UNMOUNT, and the working copy is deleted
    FEED     Offer           Wanted                          brings credentials, and waits until others are wanted (handover)
    BIND     Binding         Nothing                         the mount ends when that process is gone, unless others share it
    MEASURE  Nothing         Measured                        how much work is in no version
    ACKNOWLEDGE  Nothing     Nothing                         reads condemned lists now, not at the next heartbeat

The daemon sends `Ready` to the program that started it, on a pipe. A field that is added to a type
here must be filled in by the daemon (`daemon.requests`, `daemon.process`), or it does not start;
the code in between names no fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import VersionId
from cowfs.control.binding import Binding
from cowfs.control.handover import Offer, Wanted
from cowfs.control.server import Handler, Listener
from cowfs.control.typed import from_json, to_json
from cowfs.format.manifest import Manifest, version_id
from cowfs.version.commit import CommitRequest
from cowfs.version.named_changes import Change

_TOLD_BYTES = 64 << 10  # the longest manifest in an answer

A = TypeVar("A")
R = TypeVar("R")


@dataclass(frozen=True)
class Nothing:
    """No arguments, or an answer that only confirms."""


@dataclass(frozen=True)
class Pong:
    pid: int


@dataclass(frozen=True)
class LostFile:
    """A file of which the local disk has lost uncommitted bytes."""

    path: str
    bytes: int


@dataclass(frozen=True)
class Waiting:
    """The kernel's requests that wait for data to be loaded, and how many were failed because no
    thread worked on them."""

    requests: int
    oldest_s: float
    abandoned: int


@dataclass(frozen=True)
class WriterStatus:
    """The state of a writable mount. lease_lost, upload_error: messages, None without a problem.

    overtaken_by: the volume's version that another writer has made, and that the uncommitted work
    here is not based on."""

    is_dirty: bool
    is_committing: bool
    epoch: int
    lease_lost: str | None
    heartbeat_age_s: float
    uploaded_bytes: int
    upload_error: str | None
    resumed_records: int
    lost_files: tuple[LostFile, ...]
    overtaken_by: VersionId | None


@dataclass(frozen=True)
class MountStatus:
    """A daemon's report of its mount. version: the last one, None before the first. waiting: None
    if unknown. credentials_problem: why the credentials from a program are no longer valid without
    a replacement, or the store's message when it denied the last request; None without a problem.
    volume: of a scratch, the volume of its version, and once it has a writer, the volume that it
    writes to. unsupervised: why the mount ends with its daemon; None: it is supervised, and goes on
    in another one."""

    pid: int
    registration: str
    mount_path: str
    source: str
    store_url: str
    store_id: str
    volume: str
    read_only: bool
    is_scratch: bool
    version: VersionId | None
    head_number: int
    since_ns: int
    cache_dir: str
    working_copy: str | None
    transport: str
    unsupervised: str | None
    inodes_in_memory: int
    memory_bytes: int
    abandoned_loads: int
    waiting: Waiting | None
    credentials_problem: str | None
    writer: WriterStatus | None


@dataclass(frozen=True)
class Committed:
    """The last version after a commit, and the number of its head. is_new: whether this commit made
    it. manifest: its text if that is short and not sealed; otherwise the caller reads it from the
    store."""

    version: VersionId
    locator: str
    head_number: int
    is_new: bool
    manifest: str | None

    @staticmethod
    def make_text(manifest: Manifest, version: VersionId) -> str | None:
        data = manifest.encode()
        return data.decode() if len(data) <= _TOLD_BYTES and version_id(data) == version else None

    @property
    def known(self) -> Manifest | None:
        """The manifest, if the answer contains it."""
        return None if self.manifest is None else Manifest.decode(self.manifest.encode(), self.version)


@dataclass(frozen=True)
class Comparison:
    """version: None: the base of the uncommitted work. folder: of the version; path: below it, and
    of the volume; both relative to the root, without slashes at the ends. times, renames: as for
    `differences.compare`."""

    version: VersionId | None = None
    folder: str = ""
    path: str = ""
    times: bool = False
    renames: bool = True


@dataclass(frozen=True)
class Compared:
    """version: the one compared with, None before the first."""

    version: VersionId | None
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Restoration:
    """Restores `path` of the version to `to` in the volume; both relative to the root, without
    slashes at the ends. dry_run: only reports the changes."""

    version: VersionId
    path: str
    to: str
    dry_run: bool = False


@dataclass(frozen=True)
class RestoredPath:
    path: str
    kind: Literal["added", "removed", "changed"]


@dataclass(frozen=True)
class Restored:
    """version: the base of the volume's uncommitted work, None before the first. paths: of the
    volume; more: the number of further paths, for which a message has no room."""

    version: VersionId | None
    paths: tuple[RestoredPath, ...]
    more: int = 0


@dataclass(frozen=True)
class Adoption:
    """volume: one that was just forked from the scratch's version."""

    volume: str


@dataclass(frozen=True)
class Ending:
    """force: also while programs use the mount; they get errors."""

    force: bool = False


@dataclass(frozen=True)
class Left:
    """The state after an unmount: the last version, None before the first, and its head's number;
    whether uncommitted work is kept."""

    version: VersionId | None
    head_number: int
    is_dirty: bool


@dataclass(frozen=True)
class Ready:
    """A mount that is being served: its path, process and version, and what was recovered from an
    interrupted one. overtaken_by: as in `WriterStatus`."""

    pid: int
    registration: str
    socket: str
    mount_path: str
    version: VersionId | None
    head_number: int
    resumed_records: int
    cut_bytes: int
    dropped_extents: int
    lost_files: tuple[str, ...]
    overtaken_by: VersionId | None


@dataclass(frozen=True)
class Work:
    """Uncommitted work: how many files have contents that are in no version, and bytes of them that
    are not in the store; 0 if only names or attributes changed. version, since_ns: what it is based
    on, and when that was committed; None before the first version."""

    files: int
    bytes: int
    version: VersionId | None
    since_ns: int | None


@dataclass(frozen=True)
class Measured:
    """work: None if there is none."""

    work: Work | None


@dataclass(frozen=True)
class Operation(Generic[A, R]):
    """A name in the protocol, with the types of its arguments and its answer."""

    name: str
    arguments: type[A]
    answer: type[R]

    def make_handler(self, handle: Callable[[A, Listener], R]) -> tuple[str, Handler]:
        """The handler for a server: it calls `handle` with validated arguments."""

        def handle_json(arguments: dict[str, Any], listener: Listener) -> Any:
            return to_json(handle(from_json(self.arguments, arguments, f"the request {self.name}"), listener))

        return self.name, handle_json


PING = Operation("ping", Nothing, Pong)
STATUS = Operation("status", Nothing, MountStatus)
COMMIT = Operation("commit", CommitRequest, Committed)
COMPARE = Operation("compare", Comparison, Compared)
RESTORE = Operation("restore", Restoration, Restored)
ADOPT = Operation("adopt", Adoption, Nothing)
UNMOUNT = Operation("unmount", Ending, Left)
DETACH = Operation("detach", Nothing, Nothing)
DISCARD = Operation("discard", Ending, Nothing)
FEED = Operation("feed", Offer, Wanted)
BIND = Operation("bind", Binding, Nothing)
MEASURE = Operation("measure", Nothing, Measured)
ACKNOWLEDGE = Operation("acknowledge", Nothing, Nothing)
