"""cowfs: a versioned copy-on-write file system on object storage.

    from cowfs import Volume                 async, under asyncio and trio; `from cowfs.blocking import Volume` blocks

Importing this is cheap: each name is loaded when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # checkers take the name for True; `typing` would take a moment, see cli.start

if TYPE_CHECKING:
    from cowfs import errors as errors
    from cowfs.api.asynchronous import ROFiles as ROFiles
    from cowfs.api.asynchronous import ROVolume as ROVolume
    from cowfs.api.asynchronous import RWFiles as RWFiles
    from cowfs.api.asynchronous import RWVolume as RWVolume
    from cowfs.api.asynchronous import Store as Store
    from cowfs.api.asynchronous import Volume as Volume
    from cowfs.api.asynchronous import volume as volume
    from cowfs.api.declared.asynchronous import Declared as Declared
    from cowfs.api.declared.declared_store import DeclaredStore as DeclaredStore
    from cowfs.api.declared.model import DeclaredVolume as DeclaredVolume
    from cowfs.api.files import Entry as Entry
    from cowfs.api.mounts.overview import VolumeSummary as VolumeSummary
    from cowfs.api.mounts.summaries import MountSummary as MountSummary
    from cowfs.api.mounts.summaries import WorkingCopySummary as WorkingCopySummary
    from cowfs.api.transfers.transfer_report import TransferReport as TransferReport
    from cowfs.api.transfers.warming import WarmReport as WarmReport
    from cowfs.api.upkeep.collect_report import GcReport as GcReport
    from cowfs.api.upkeep.pruning import PlannedVersion as PlannedVersion
    from cowfs.api.upkeep.pruning import PrunePlan as PrunePlan
    from cowfs.api.versions.changes import Change as Change
    from cowfs.api.versions.details import VolumeDetails as VolumeDetails
    from cowfs.api.versions.merge_report import MergedPath as MergedPath
    from cowfs.api.versions.merge_report import MergeReport as MergeReport
    from cowfs.api.versions.restoring import RestoreReport as RestoreReport
    from cowfs.api.versions.tagging import Tag as Tag
    from cowfs.control import MountOptions as MountOptions
    from cowfs.format.locator import Locator as Locator
    from cowfs.format.manifest import Stats as Stats
    from cowfs.maintain.check.verify_report import BrokenPath as BrokenPath
    from cowfs.maintain.check.verify_report import DamagedPack as DamagedPack
    from cowfs.maintain.check.verify_report import DamagedRecord as DamagedRecord
    from cowfs.maintain.check.verify_report import VerifyReport as VerifyReport
    from cowfs.maintain.copy.push_report import PushReport as PushReport
    from cowfs.maintain.repairs.repair_plan import PackRepair as PackRepair
    from cowfs.maintain.repairs.repair_plan import RepairPlan as RepairPlan
    from cowfs.maintain.stored_report import StoredBytes as StoredBytes
    from cowfs.version.commit import Progress as Progress
    from cowfs.version.merge.conflicts import Conflict as Conflict

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
    "Store",
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
    "BrokenPath": "cowfs.maintain.check.verify_report",
    "Change": "cowfs.api.versions.changes",
    "DamagedPack": "cowfs.maintain.check.verify_report",
    "DamagedRecord": "cowfs.maintain.check.verify_report",
    "StoredBytes": "cowfs.maintain.stored_report",
    "PushReport": "cowfs.maintain.copy.push_report",
    "PackRepair": "cowfs.maintain.repairs.repair_plan",
    "RepairPlan": "cowfs.maintain.repairs.repair_plan",
    "VerifyReport": "cowfs.maintain.check.verify_report",
    "Conflict": "cowfs.version.merge.conflicts",
    "MergeReport": "cowfs.api.versions.merge_report",
    "MergedPath": "cowfs.api.versions.merge_report",
    "Declared": "cowfs.api.declared.asynchronous",
    "DeclaredStore": "cowfs.api.declared.declared_store",
    "DeclaredVolume": "cowfs.api.declared.model",
    "Locator": "cowfs.format.locator",
    "MountOptions": "cowfs.control.options",
    "MountSummary": "cowfs.api.mounts.summaries",
    "VolumeDetails": "cowfs.api.versions.details",
    "VolumeSummary": "cowfs.api.mounts.overview",
    "WarmReport": "cowfs.api.transfers.warming",
    "WorkingCopySummary": "cowfs.api.mounts.summaries",
    "Progress": "cowfs.version.commit",
    "Stats": "cowfs.format.manifest",
    "Entry": "cowfs.api.files",
    "PlannedVersion": "cowfs.api.upkeep.pruning",
    "PrunePlan": "cowfs.api.upkeep.pruning",
    "RestoreReport": "cowfs.api.versions.restoring",
    "GcReport": "cowfs.api.upkeep.collect_report",
    "Tag": "cowfs.api.versions.tagging",
    "TransferReport": "cowfs.api.transfers.transfer_report",
    "ROFiles": "cowfs.api.asynchronous",
    "RWFiles": "cowfs.api.asynchronous",
    "ROVolume": "cowfs.api.asynchronous",
    "RWVolume": "cowfs.api.asynchronous",
    "Store": "cowfs.api.asynchronous",
    "Volume": "cowfs.api.asynchronous",
    "volume": "cowfs.api.asynchronous",
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "errors":
        return import_module("cowfs.errors")
    if name == "__version__":
        from importlib import metadata

        try:
            return metadata.version("cowfs-volumes")
        except metadata.PackageNotFoundError:  # a checkout that is not installed
            return "0+unknown"
    if name in HOMES:
        return getattr(import_module(HOMES[name]), name)
    raise AttributeError(f"module 'cowfs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
