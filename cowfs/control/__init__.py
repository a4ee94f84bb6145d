"""How other processes talk to a mount daemon: the specification it starts from and the socket it
answers on.

`MountSpec` starts one, tuned by `MountOptions`; `Client` asks it, `Server` answers: `messages` says
what, `protocol` has the lines; `live_mount` is what other processes do with one. No trio, FUSE,
store or engine here.
"""

from cowfs.control.client import Client
from cowfs.control.options import MountOptions
from cowfs.control.server import Handler, Listener, Server, StoreWait
from cowfs.control.spec import MountSpec, SessionSpec

__all__ = [
    "Client",
    "Handler",
    "Listener",
    "MountOptions",
    "MountSpec",
    "Server",
    "SessionSpec",
    "StoreWait",
]
