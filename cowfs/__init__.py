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
    from cowfs.api.collect_report import GcReport as GcReport
    from cowfs.api.declared.asynchronous import Declared as Declared
    from cowfs.api.declared.model import DeclaredVolume as DeclaredVolume
    from cowfs.api.declared.store import DeclaredStore as DeclaredStore
    from cowfs.api.details import VolumeDetails as VolumeDetails
    from cowfs.api.files import Entry as Entry
    from cowfs.api.merge_report import MergedPath as MergedPath
    from cowfs.api.merge_report import MergeReport as MergeReport
    from cowfs.api.overview import MountSummary as MountSummary
    from cowfs.api.overview import VolumeSummary as VolumeSummary
    from cowfs.api.overview import WorkingCopySummary as WorkingCopySummary
    from cowfs.api.pruning import PlannedVersion as PlannedVersion
    from cowfs.api.pruning import PrunePlan as PrunePlan
    from cowfs.api.restoring import RestoreReport as RestoreReport
    from cowfs.api.tagging import Tag as Tag
    from cowfs.api.transfer_report import TransferReport as TransferReport
    from cowfs.api.warming import WarmReport as WarmReport
    from cowfs.control import MountOptions as MountOptions
    from cowfs.format.locator import Locator as Locator
    from cowfs.format.manifest import Stats as Stats
    from cowfs.maintain.push_report import PushReport as PushReport
    from cowfs.maintain.repair_plan import PackRepair as PackRepair
    from cowfs.maintain.repair_plan import RepairPlan as RepairPlan
    from cowfs.maintain.stored_report import StoredBytes as StoredBytes
    from cowfs.maintain.verify_report import BrokenPath as BrokenPath
    from cowfs.maintain.verify_report import DamagedPack as DamagedPack
    from cowfs.maintain.verify_report import DamagedRecord as DamagedRecord
    from cowfs.maintain.verify_report import VerifyReport as VerifyReport
    from cowfs.version.commit import Progress as Progress
    from cowfs.version.conflicts import Conflict as Conflict

    __version__: str

__all__ = [
    "BrokenPath",
    "Change",
    "Conflict",
    "DamagedPack",
    "DamagedRecord",
    "Declared",
    "DeclaredStore",
    "DeclaredVolume",
    "Entry",
    "GcReport",
    "Locator",
    "MergeReport",
    "MergedPath",
    "MountOptions",
    "MountSummary",
    "PackRepair",
    "PlannedVersion",
    "Progress",
    "PrunePlan",
    "PushReport",
    "ROFiles",
    "ROVolume",
    "RWFiles",
    "RWVolume",
    "RepairPlan",
    "RestoreReport",
    "Stats",
    "StoredBytes",
    "Tag",
    "TransferReport",
    "VerifyReport",
    "Volume",
    "VolumeDetails",
    "VolumeSummary",
    "WarmReport",
    "WorkingCopySummary",
    "__version__",
    "errors",
    "volume",
]

HOMES = {
    "BrokenPath": "cowfs.maintain.verify_report",
    "Change": "cowfs.api.changes",
    "DamagedPack": "cowfs.maintain.verify_report",
    "DamagedRecord": "cowfs.maintain.verify_report",
    "StoredBytes": "cowfs.maintain.stored_report",
    "PushReport": "cowfs.maintain.push_report",
    "PackRepair": "cowfs.maintain.repair_plan",
    "RepairPlan": "cowfs.maintain.repair_plan",
    "VerifyReport": "cowfs.maintain.verify_report",
    "Conflict": "cowfs.version.conflicts",
    "MergeReport": "cowfs.api.merge_report",
    "MergedPath": "cowfs.api.merge_report",
    "Declared": "cowfs.api.declared.asynchronous",
    "DeclaredStore": "cowfs.api.declared.store",
    "DeclaredVolume": "cowfs.api.declared.model",
    "Locator": "cowfs.format.locator",
    "MountOptions": "cowfs.control.options",
    "MountSummary": "cowfs.api.overview",
    "VolumeDetails": "cowfs.api.details",
    "VolumeSummary": "cowfs.api.overview",
    "WarmReport": "cowfs.api.warming",
    "WorkingCopySummary": "cowfs.api.overview",
    "Progress": "cowfs.version.commit",
    "Stats": "cowfs.format.manifest",
    "Entry": "cowfs.api.files",
    "PlannedVersion": "cowfs.api.pruning",
    "PrunePlan": "cowfs.api.pruning",
    "RestoreReport": "cowfs.api.restoring",
    "GcReport": "cowfs.api.collect_report",
    "Tag": "cowfs.api.tagging",
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
    if name in HOMES:
        return getattr(importlib.import_module(HOMES[name]), name)
    raise AttributeError(f"module 'cowfs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
