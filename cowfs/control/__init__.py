"""How other processes talk to a mount daemon: the specification that starts it and the socket on
which it answers.

`MountSpec` starts a daemon, tuned by `MountOptions`; `Client` asks it, and `Server` answers.
`messages` defines the requests and answers, `protocol` the lines; `live_mount` has the operations
that other processes use. No trio, FUSE, store or engine here.
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
