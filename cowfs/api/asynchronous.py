"""The async twins of the public classes: the same names and arguments, awaited; under asyncio and
trio alike.

`twins.twin` makes them. Every call runs in a worker thread, so that the event loop goes on. A
cancelled call still runs to its end there, and its caller waits for it: nothing is left half done.
"""

from cowfs.api import files, ro_volume, rw_volume
from cowfs.api import store as store_module
from cowfs.api import volume as volume_module
from cowfs.api.twins.notebooks import register_printers
from cowfs.api.twins.twin import is_own, make, make_function
from cowfs.api.versions import head_changes, version_log

__all__ = ["ROFiles", "ROVolume", "RWFiles", "RWVolume", "Store", "VersionLog", "Volume", "VolumeChanges", "volume"]

ROFiles = make(files.ROFiles, __name__)
RWFiles = make(files.RWFiles, __name__)
ROVolume = make(ro_volume.ROVolume, __name__)
RWVolume = make(rw_volume.RWVolume, __name__)
Store = make(store_module.Store, __name__)
VersionLog = make(version_log.VersionLog, __name__)
VolumeChanges = make(head_changes.VolumeChanges, __name__)
Volume = make(volume_module.Volume, __name__)
volume = make_function(volume_module.volume, __name__)

register_printers(is_own)
