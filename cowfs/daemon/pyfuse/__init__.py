"""The pyfuse3 server: answers a mount's requests on trio (`fast_lane=False`). It is the second
implementation of the same operations, which the native lane is compared with: the suites pass with
either.

    server        the loop, on its own thread; implements `daemon.request_server.KernelServer`
    operations    FUSE operations as engine calls
    calls         which calls may wait, and for what

The only place that imports pyfuse3 and trio, which come with `pip install
'cowfs-volumes[pyfuse3]'`. Nothing is imported before `import_server`: the native lane serves mounts
without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cowfs.base.errors import MountFailedError

if TYPE_CHECKING:
    from cowfs.daemon.pyfuse.server import PyFuse


def import_server() -> type[PyFuse]:
    """MountFailedError, with installation advice, where pyfuse3 cannot be imported."""
    try:
        from cowfs.daemon.pyfuse.server import PyFuse
    except ImportError as error:
        raise MountFailedError(
            f"a mount without the fast lane needs pyfuse3, which cannot be used here: {error}",
            hint="pip install 'cowfs-volumes[pyfuse3]' (it is built against libfuse3-dev), or leave fast_lane on.",
        ) from error
    return PyFuse
