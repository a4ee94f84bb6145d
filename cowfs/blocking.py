"""cowfs without async: the same names and arguments, without await. For scripts, threads and notebooks."""

from cowfs.api.ro_volume import ROVolume
from cowfs.api.rw_volume import RWVolume
from cowfs.api.volume import Volume, volume
from cowfs.format.locator import Locator

__all__ = ["Locator", "ROVolume", "RWVolume", "Volume", "volume"]
