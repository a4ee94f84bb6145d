"""The mounts and the working copies of this machine, whichever process has made them.

    status()                           what is mounted, and which work is in no version
    find("data"), find("/mnt/data")    a mount, to commit or unmount it; or the volume, if it is not mounted

Calls block: an async program makes them in a thread. Importing this is cheap: each name is loaded
when it is first used. `prepare` comes before other imports of a program that mounts once and ends.
"""

TYPE_CHECKING = False

if TYPE_CHECKING:
    from cowfs.api.mounts.advice import Advice as Advice
    from cowfs.api.mounts.fuse import Restarted as Restarted
    from cowfs.api.mounts.fuse import list_supervised as list_supervised
    from cowfs.api.mounts.fuse import restart as restart
    from cowfs.api.mounts.mount_paths import check_path as check_path
    from cowfs.api.mounts.overview import Status as Status
    from cowfs.api.mounts.overview import mount_paths as mount_paths
    from cowfs.api.mounts.overview import status as status
    from cowfs.api.mounts.prepared import prepare as prepare
    from cowfs.api.mounts.summaries import DeadMount as DeadMount
    from cowfs.api.mounts.targets import DetachedMount as DetachedMount
    from cowfs.api.mounts.targets import Mounted as Mounted
    from cowfs.api.mounts.targets import Unmounted as Unmounted
    from cowfs.api.mounts.targets import detach_dead as detach_dead
    from cowfs.api.mounts.targets import discard_kept as discard_kept
    from cowfs.api.mounts.targets import find as find
    from cowfs.api.mounts.targets import get_daemon as get_daemon
    from cowfs.api.mounts.targets import keep_mounted as keep_mounted
    from cowfs.api.mounts.targets import out_of_mounts as out_of_mounts

HOMES = {
    "Advice": "advice",
    "DeadMount": "summaries",
    "DetachedMount": "targets",
    "Mounted": "targets",
    "Restarted": "fuse",
    "Status": "overview",
    "Unmounted": "targets",
    "check_path": "mount_paths",
    "detach_dead": "targets",
    "discard_kept": "targets",
    "find": "targets",
    "keep_mounted": "targets",
    "list_supervised": "fuse",
    "mount_paths": "overview",
    "out_of_mounts": "targets",
    "prepare": "prepared",
    "get_daemon": "targets",
    "restart": "fuse",
    "status": "overview",
}
"""The module in `cowfs.api.mounts` of each name."""

__all__ = [
    "Advice",
    "DeadMount",
    "DetachedMount",
    "Mounted",
    "Restarted",
    "Status",
    "Unmounted",
    "check_path",
    "detach_dead",
    "discard_kept",
    "find",
    "get_daemon",
    "keep_mounted",
    "list_supervised",
    "mount_paths",
    "out_of_mounts",
    "prepare",
    "restart",
    "status",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"cowfs.api.mounts.{HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
