"""cowfs: a versioned copy-on-write file system on object storage.

    from cowfs import Volume                 async, under asyncio and trio; `from cowfs.blocking import Volume` blocks

Importing this is cheap: each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cowfs import errors as errors
    from cowfs.api.asynchronous import ROFiles as ROFiles
    from cowfs.api.asynchronous import ROVolume as ROVolume
    from cowfs.api.asynchronous import RWFiles as RWFiles
    from cowfs.api.asynchronous import RWVolume as RWVolume
    from cowfs.api.asynchronous import Volume as Volume
    from cowfs.api.asynchronous import volume as volume
    from cowfs.api.changes import Change as Change
    from cowfs.api.declared.model import Declared as Declared
    from cowfs.api.declared.model import DeclaredVolume as DeclaredVolume
    from cowfs.api.declared.store import DeclaredStore as DeclaredStore
    from cowfs.api.details import VolumeDetails as VolumeDetails
    from cowfs.api.files import Entry as Entry
    from cowfs.api.merge_report import MergedPath as MergedPath
    from cowfs.api.merge_report import MergeReport as MergeReport
    from cowfs.api.overview import MountSummary as MountSummary
    from cowfs.api.overview import VolumeSummary as VolumeSummary
    from cowfs.api.overview import WorkingCopySummary as WorkingCopySummary
    from cowfs.api.transfer_report import TransferReport as TransferReport
    from cowfs.control import MountOptions as MountOptions
    from cowfs.format.locator import Locator as Locator
    from cowfs.format.manifest import Stats as Stats
    from cowfs.version.commit import Progress as Progress
    from cowfs.version.conflicts import Conflict as Conflict

    __version__: str

__all__ = [
    "Change",
    "Conflict",
    "Declared",
    "DeclaredStore",
    "DeclaredVolume",
    "Entry",
    "Locator",
    "MergeReport",
    "MergedPath",
    "MountOptions",
    "MountSummary",
    "Progress",
    "ROFiles",
    "ROVolume",
    "RWFiles",
    "RWVolume",
    "Stats",
    "TransferReport",
    "Volume",
    "VolumeDetails",
    "VolumeSummary",
    "WorkingCopySummary",
    "__version__",
    "errors",
    "volume",
]

_HOMES = {
    "Change": "cowfs.api.changes",
    "Conflict": "cowfs.version.conflicts",
    "MergeReport": "cowfs.api.merge_report",
    "MergedPath": "cowfs.api.merge_report",
    "Declared": "cowfs.api.declared.model",
    "DeclaredStore": "cowfs.api.declared.store",
    "DeclaredVolume": "cowfs.api.declared.model",
    "Locator": "cowfs.format.locator",
    "MountOptions": "cowfs.control.options",
    "MountSummary": "cowfs.api.overview",
    "VolumeDetails": "cowfs.api.details",
    "VolumeSummary": "cowfs.api.overview",
    "WorkingCopySummary": "cowfs.api.overview",
    "Progress": "cowfs.version.commit",
    "Stats": "cowfs.format.manifest",
    "Entry": "cowfs.api.files",
    "TransferReport": "cowfs.api.transfer_report",
    "ROFiles": "cowfs.api.asynchronous",
    "RWFiles": "cowfs.api.asynchronous",
    "ROVolume": "cowfs.api.asynchronous",
    "RWVolume": "cowfs.api.asynchronous",
    "Volume": "cowfs.api.asynchronous",
    "volume": "cowfs.api.asynchronous",
}


def __getattr__(name: str) -> object:
    if name == "errors":
        return importlib.import_module("cowfs.errors")
    if name == "__version__":
        from importlib import metadata

        try:
            return metadata.version("cowfs")
        except metadata.PackageNotFoundError:  # a checkout that is not installed
            return "0+unknown"
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'cowfs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
