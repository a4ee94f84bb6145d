"""What may be asked of a mount's daemon, and what it answers: one type each, for both ends and for
whoever shows it.

    PING     Nothing         Pong
    STATUS   Nothing         MountStatus                     what `cowfs status` shows
    COMMIT   CommitRequest   Committed                       with progress, as often as there is news
    COMPARE  Comparison      Compared                        what `diff` shows of work that is in no version
    RESTORE  Restoration     Restored                        changes the working copy, and publishes nothing
    ADOPT    Adoption        Nothing                         of a scratch: its commits go to that volume from now on
    UNMOUNT  Ending          Left                            the process ends after the answer
    DETACH   Nothing         Nothing                         off its path at once, served until the last file is closed
    DISCARD  Ending          Nothing                         as UNMOUNT, and the working copy is deleted
    FEED     Offer           Wanted                          brings credentials, and waits until others are wanted (handover)

`Ready` is what a daemon tells the program that started it, on a pipe. A field that is added to a
type here is filled in by the daemon (`daemon.requests`, `daemon.process`), or it does not start;
nothing in between names fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar

from cowfs.control.handover import Offer, Wanted
from cowfs.control.server import Handler, Listener
from cowfs.control.typed import from_json, to_json
from cowfs.format.manifest import Manifest, version_id
from cowfs.ids import VersionId
from cowfs.values import dataclass
from cowfs.version.commit import CommitRequest
from cowfs.version.named_changes import Change

_TOLD_BYTES = 64 << 10  # of a manifest in an answer

A = TypeVar("A")
R = TypeVar("R")


@dataclass(frozen=True)
class Nothing:
    """No arguments; nothing to answer but that it is done."""


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
    """The kernel's requests that wait for something to be loaded, and how many were given up
    because nobody was at them."""

    requests: int
    oldest_s: float
    abandoned: int


@dataclass(frozen=True)
class WriterStatus:
    """Of a writable mount. lease_lost, upload_error: messages, None while all is well.

    overtaken_by: the volume's version, made by somebody else, that uncommitted work here was not
    made on."""

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
    """What a daemon says about its mount. version: the last one, None before the first. waiting:
    None where it is not known. credentials_problem: why the ones that a program gave are of no use
    any more and there are no others, or what the store said when it refused the last request, None
    while all is well. volume: of a scratch where its version is from, and once it has a writer the
    one that this writes to."""

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
    inodes_in_memory: int
    memory_bytes: int
    abandoned_loads: int
    waiting: Waiting | None
    credentials_problem: str | None
    writer: WriterStatus | None


@dataclass(frozen=True)
class Committed:
    """The last version after a commit, and the number of its head. is_new: whether this commit has
    made it. manifest: its text, where that is short and not sealed; else the store is asked for
    it."""

    version: VersionId
    locator: str
    head_number: int
    is_new: bool
    manifest: str | None

    @staticmethod
    def told(manifest: Manifest, version: VersionId) -> str | None:
        data = manifest.encode()
        return data.decode() if len(data) <= _TOLD_BYTES and version_id(data) == version else None

    @property
    def known(self) -> Manifest | None:
        """The manifest, if it was told."""
        return None if self.manifest is None else Manifest.decode(self.manifest.encode(), self.version)


@dataclass(frozen=True)
class Comparison:
    """version: None: the one that the work stands on. folder: of the version, path: below it, and
    of the volume; from the root, without slashes at the ends. times, renames: as
    `differences.compare` has them."""

    version: VersionId | None = None
    folder: str = ""
    path: str = ""
    times: bool = False
    renames: bool = True


@dataclass(frozen=True)
class Compared:
    """version: that was compared with, None before the first."""

    version: VersionId | None
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Restoration:
    """What the version has at `path` is put at `to` in the volume; both from the root, without
    slashes at their ends. dry_run: it is only told what that does."""

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
    """version: the one that the volume's uncommitted work stands on, None before the first. paths:
    of the volume; more: how many others there are, which a message has no room for."""

    version: VersionId | None
    paths: tuple[RestoredPath, ...]
    more: int = 0


@dataclass(frozen=True)
class Adoption:
    """volume: one that was just forked from the version that the scratch stands on."""

    volume: str


@dataclass(frozen=True)
class Ending:
    """force: also while programs use the mount; they get errors."""

    force: bool = False


@dataclass(frozen=True)
class Left:
    """What an unmount leaves behind: the last version, None before the first, and its head's
    number; whether work that is in no version is kept."""

    version: VersionId | None
    head_number: int
    is_dirty: bool


@dataclass(frozen=True)
class Ready:
    """A mount that is served: where, by whom, on what version; and what an interrupted one left
    behind. overtaken_by: as of `WriterStatus`."""

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
class Operation(Generic[A, R]):
    """A name on the wire, what goes with it, and what comes back."""

    name: str
    arguments: type[A]
    answer: type[R]

    def answered_by(self, handle: Callable[[A, Listener], R]) -> tuple[str, Handler]:
        """For a server: `handle` is called with arguments that are what they should be."""

        def answered(arguments: dict[str, Any], listener: Listener) -> Any:
            return to_json(handle(from_json(self.arguments, arguments, f"the request {self.name}"), listener))

        return self.name, answered


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
