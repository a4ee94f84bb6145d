"""The pyfuse3 server: answers a mount's requests on trio (`fast_lane=False`).

    server        the loop, on a thread of its own; what `daemon.server.KernelServer` asks for
    operations    FUSE operations as engine calls
    calls         what may wait, and on what

The only place that imports pyfuse3 and trio, which come with `pip install 'cowfs[pyfuse3]'`.
Nothing is imported before `imported`: the native lane serves mounts without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cowfs.errors import MountFailedError

if TYPE_CHECKING:
    from cowfs.daemon.pyfuse.server import PyFuse


def imported() -> type[PyFuse]:
    """MountFailedError, with what to install, where pyfuse3 cannot be imported."""
    try:
        from cowfs.daemon.pyfuse.server import PyFuse
    except ImportError as error:
        raise MountFailedError(
            f"a mount without the fast lane needs pyfuse3, which cannot be used here: {error}",
            hint="pip install 'cowfs[pyfuse3]' (it is built against libfuse3-dev), or leave fast_lane on.",
        ) from error
    return PyFuse
