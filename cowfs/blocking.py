"""cowfs without async: the same names and arguments, without await. For scripts, threads and
notebooks.

What is declared is loaded when it is first used: it needs pydantic, which volumes do not.
"""

import importlib
from typing import TYPE_CHECKING

from cowfs.api.changes import Change
from cowfs.api.collect_report import GcReport
from cowfs.api.details import VolumeDetails
from cowfs.api.files import Entry, ROFiles, RWFiles
from cowfs.api.merge_report import MergedPath, MergeReport
from cowfs.api.overview import MountSummary, VolumeSummary, WorkingCopySummary
from cowfs.api.pruning import PlannedVersion, PrunePlan
from cowfs.api.restoring import RestoreReport
from cowfs.api.ro_volume import ROVolume
from cowfs.api.rw_volume import RWVolume
from cowfs.api.tagging import Tag
from cowfs.api.transfer_report import TransferReport
from cowfs.api.volume import Volume, volume
from cowfs.api.warming import WarmReport
from cowfs.control import MountOptions
from cowfs.format.locator import Locator
from cowfs.format.manifest import Stats
from cowfs.maintain.push_report import PushReport
from cowfs.maintain.repair_plan import PackRepair, RepairPlan
from cowfs.maintain.stored_report import StoredBytes
from cowfs.maintain.verify_report import BrokenPath, DamagedPack, DamagedRecord, VerifyReport
from cowfs.version.commit import Progress
from cowfs.version.conflicts import Conflict

if TYPE_CHECKING:
    from cowfs.api.declared.model import Declared, DeclaredVolume
    from cowfs.api.declared.store import DeclaredStore

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

_DECLARED = {
    "Declared": "cowfs.api.declared.model",
    "DeclaredStore": "cowfs.api.declared.store",
    "DeclaredVolume": "cowfs.api.declared.model",
}


def __getattr__(name: str) -> object:
    if name not in _DECLARED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_DECLARED[name]), name)
    globals()[name] = found
    return found
