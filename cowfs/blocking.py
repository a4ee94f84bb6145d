"""cowfs without async: the same names and arguments, without await. For scripts, threads and
notebooks."""

from cowfs.api.changes import Change
from cowfs.api.details import VolumeDetails
from cowfs.api.files import Entry, ROFiles, RWFiles
from cowfs.api.merge_report import MergedPath, MergeReport
from cowfs.api.overview import MountSummary, VolumeSummary, WorkingCopySummary
from cowfs.api.ro_volume import ROVolume
from cowfs.api.rw_volume import RWVolume
from cowfs.api.transfer_report import TransferReport
from cowfs.api.volume import Volume, volume
from cowfs.control import MountOptions
from cowfs.format.locator import Locator
from cowfs.format.manifest import Stats
from cowfs.version.commit import Progress
from cowfs.version.conflicts import Conflict

__all__ = [
    "Change",
    "Conflict",
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
    "volume",
]
