"""Doctor's checks of task systems that load cowfs by an entry point, and only log if that fails."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata

from cowfs.api.doctor.check import OK, WARN, Check
from cowfs.base.errors import CowfsError

_GROUP = "flyte.plugins.types"


def all_of() -> tuple[Callable[[], Check], ...]:
    """None for systems that are not installed."""
    try:
        metadata.version("flyte")
    except metadata.PackageNotFoundError:
        return ()
    return (flyte,)


def flyte() -> Check:
    """Without the entry point Flyte pickles versions, and cannot pass on what tasks write."""
    name, again = "volumes in tasks of Flyte", "Install cowfs again (in a checkout: make build)."
    points = metadata.entry_points(group=_GROUP, name="cowfs")
    if not points:
        return Check(name, WARN, f"flyte {metadata.version('flyte')} does not find cowfs", again)
    try:
        for each in points:
            each.load()()
    except CowfsError as error:
        return Check(name, WARN, error.message, error.hint)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        return Check(name, WARN, f"cannot be loaded: {error}", again)
    return Check(name, OK, f"flyte {metadata.version('flyte')} finds cowfs")
