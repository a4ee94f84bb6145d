"""Uncommitted work of a volume in other places of this machine than the working copy in use.

There is one working copy, unless a user mounts with a `meta_dir` while other work is kept, or moves
the state directory. A commit of one working copy could then be mistaken for a commit of all work. A
mount warns about the other places and goes on, since a task that is retried with its own `meta_dir`
must not fail because of its first attempt. A commit without a mount is refused, since the user has
not seen the files that it would publish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cowfs.api import hints
from cowfs.api.upkeep import copied_stores
from cowfs.base import log
from cowfs.base.errors import InvalidStateError, UnavailableError
from cowfs.base.hints import Command
from cowfs.control.messages import Ready
from cowfs.machine.working_copy import WorkingCopy

if TYPE_CHECKING:
    from cowfs.api.stores import OpenStore
    from cowfs.base.ids import VersionId

_log = log.get("volume")


def elsewhere(used: WorkingCopy, store: OpenStore) -> list[WorkingCopy]:
    """The other working copies with work of the volume."""
    known = copied_stores.known(store, used.volume)
    return [copy for copy in known if copy.path != used.path and copy.is_kept]


def warn(used: WorkingCopy, store: OpenStore) -> None:
    """Warns about other places with work, and about places that are unreachable."""
    if used.is_out_of_reach:
        _log.warning(
            "work of volume %s was in %s, which is not there now, and will not be in the mount. If a disk is to be "
            "attached there, end the mount and attach it first",
            used.volume,
            used.path,
        )
    for other in elsewhere(used, store):
        _log.warning(
            "uncommitted work of volume %s also lies in %s%s. It is not in %s; once that is committed, it can only be "
            "forked (%s)",
            used.volume,
            other.path,
            ", which is not there now" if other.is_out_of_reach else "",
            used.path,
            hints.about(store.url, Command("fork", used.volume, "NAME")),
        )


def require_all(used: WorkingCopy, store: OpenStore) -> None:
    """Raises an error unless `used` has all uncommitted work of the volume on this machine."""
    others = elsewhere(used, store)
    missing = [copy for copy in others if copy.is_out_of_reach]
    volume = used.volume
    if missing:
        raise UnavailableError(
            f"uncommitted work of volume {volume!r} lies in {missing[0].path}, which is not there now",
            hint="Make that directory available again (is its disk mounted?) and repeat. "
            f"If it is gone for good: {discarding(missing[0])}, or discard(meta_dir=…), drops that work alone.",
            details={"working_copy": str(missing[0].path)},
        )
    if others and used.is_kept:
        other = others[0]
        raise InvalidStateError(
            f"uncommitted work of volume {volume!r} lies in two places: {used.path} and {other.path}",
            hint="Mount the one that is to be committed (meta_dir, --meta-dir, names the directory above `working`) "
            "and commit the mount. The other one can be forked then, or discarded.",
            details={"working_copies": [str(used.path), str(other.path)]},
        )


def warn_if_overtaken(volume: str, store_url: str, ready: Ready) -> None:
    """Warns if another writer has published a version since the work began: it can't be committed
    to the volume."""
    if ready.overtaken_by is not None:
        _log.warning("%s", overtaken(volume, store_url, ready.version, ready.overtaken_by))


def overtaken(volume: str, store_url: str, base: VersionId | None, newest: VersionId | None) -> str:
    """base: the version that the work is based on. newest: the volume's."""
    stands_on = f"version {base.hex()[:12]}" if base is not None else "the empty volume"
    return hints.about(
        store_url,
        f"{explain_overtaken(base, newest)}. What is here is uncommitted work of volume {volume} on {stands_on}; it cannot be "
        f"committed to {volume} any more. Save it under another name ({Command('fork', volume, 'NAME')}), or drop it "
        f"({Command('unmount', volume, '--discard')})",
    )


def explain_overtaken(base: VersionId | None, newest: VersionId | None) -> str:
    """Why work on `base` cannot be committed; after a take-over there need not be a newer
    version."""
    if newest is None or newest == base:
        return "another writer has taken the volume over"
    return f"another writer has made version {newest.hex()[:12]} meanwhile"


def to_discard(used: WorkingCopy, store: OpenStore) -> WorkingCopy:
    """The working copy to discard when the user names none. InvalidStateError when several have
    work: one of them must be named."""
    others = elsewhere(used, store)
    if not used.is_kept and len(others) == 1:
        return others[0]
    if not others:
        return used
    places = [*([used] if used.is_kept else []), *others]
    named = [f"{copy.path}{' (not there now)' if copy.is_out_of_reach else ''}" for copy in places]
    raise InvalidStateError(
        f"uncommitted work of volume {used.volume!r} lies in several places: {', '.join(named)}",
        hint="Name the one to drop: "
        + ", or ".join(str(discarding(copy)) for copy in places)
        + "; or discard(meta_dir=…).",
        details={"working_copies": [str(copy.path) for copy in places]},
    )


def discarding(copy: WorkingCopy) -> Command:
    """The command that drops the work of this place alone."""
    return Command("unmount", copy.volume, "--discard", "--meta-dir", copy.path.parent.parent)
