"""How other processes talk to a mount daemon: the specification it starts from and the socket it answers on.

`MountSpec` starts one, `Client` asks it, `Server` answers; `protocol` has the lines. No trio, FUSE, store or engine here.
"""

from cowfs.control.client import Client, wait_gone
from cowfs.control.server import Handler, Server
from cowfs.control.spec import MountSpec, SessionSpec

__all__ = ["Client", "Handler", "MountSpec", "Server", "SessionSpec", "wait_gone"]
