"""cowfs without async: the same names and arguments, without await. For scripts, threads and
notebooks.

Importing this is cheap: each name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING

from cowfs import HOMES

if TYPE_CHECKING:
    from cowfs.api.changes import Change as Change
    from cowfs.api.collect_report import GcReport as GcReport
    from cowfs.api.declared.model import Declared as Declared
    from cowfs.api.declared.model import DeclaredVolume as DeclaredVolume
    from cowfs.api.declared.store import DeclaredStore as DeclaredStore
    from cowfs.api.details import VolumeDetails as VolumeDetails
    from cowfs.api.files import Entry as Entry
    from cowfs.api.files import ROFiles as ROFiles
    from cowfs.api.files import RWFiles as RWFiles
    from cowfs.api.merge_report import MergedPath as MergedPath
    from cowfs.api.merge_report import MergeReport as MergeReport
    from cowfs.api.overview import MountSummary as MountSummary
    from cowfs.api.overview import VolumeSummary as VolumeSummary
    from cowfs.api.overview import WorkingCopySummary as WorkingCopySummary
    from cowfs.api.pruning import PlannedVersion as PlannedVersion
    from cowfs.api.pruning import PrunePlan as PrunePlan
    from cowfs.api.restoring import RestoreReport as RestoreReport
    from cowfs.api.ro_volume import ROVolume as ROVolume
    from cowfs.api.rw_volume import RWVolume as RWVolume
    from cowfs.api.tagging import Tag as Tag
    from cowfs.api.transfer_report import TransferReport as TransferReport
    from cowfs.api.volume import Volume as Volume
    from cowfs.api.volume import volume as volume
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
    "volume",
]

_BLOCKING = {
    "Declared": "cowfs.api.declared.model",
    "ROFiles": "cowfs.api.files",
    "ROVolume": "cowfs.api.ro_volume",
    "RWFiles": "cowfs.api.files",
    "RWVolume": "cowfs.api.rw_volume",
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
