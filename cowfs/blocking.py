"""cowfs without async: the same names and arguments, without await. For scripts, threads and
notebooks.

Importing this is cheap: each name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING

from cowfs import HOMES

if TYPE_CHECKING:
    from cowfs.api.declared.declared import Declared as Declared
    from cowfs.api.declared.declared_store import DeclaredStore as DeclaredStore
    from cowfs.api.declared.model import DeclaredVolume as DeclaredVolume
    from cowfs.api.files import Entry as Entry
    from cowfs.api.files import ROFiles as ROFiles
    from cowfs.api.files import RWFiles as RWFiles
    from cowfs.api.mounts.overview import VolumeSummary as VolumeSummary
    from cowfs.api.mounts.summaries import MountSummary as MountSummary
    from cowfs.api.mounts.summaries import WorkingCopySummary as WorkingCopySummary
    from cowfs.api.ro_volume import ROVolume as ROVolume
    from cowfs.api.rw_volume import RWVolume as RWVolume
    from cowfs.api.store import Store as Store
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
    from cowfs.api.volume import Volume as Volume
    from cowfs.api.volume import volume as volume
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
    "volume",
]

_BLOCKING = {
    "Declared": "cowfs.api.declared.declared",
    "ROFiles": "cowfs.api.files",
    "ROVolume": "cowfs.api.ro_volume",
    "RWFiles": "cowfs.api.files",
    "RWVolume": "cowfs.api.rw_volume",
    "Store": "cowfs.api.store",
    "Volume": "cowfs.api.volume",
    "volume": "cowfs.api.volume",
}
"""The modules of the names that are others here than in `cowfs`."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_BLOCKING.get(name) or HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
