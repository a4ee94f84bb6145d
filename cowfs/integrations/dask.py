"""A plugin for the workers of Dask, which mounts versions before the first task:

    client.register_plugin(MountVolumes("photos:/data/photos"))

The workers of a node share the mounts. Each mounts them when it starts, also after it was
restarted, and the last one that ends unmounts them. A worker that is killed does not keep a mount.
"""

from __future__ import annotations

from typing import Any

from distributed import WorkerPlugin

from cowfs import TaskVolume
from cowfs.integrations.node_mounts import NodeMounts


class MountVolumes(WorkerPlugin):
    """volumes: SOURCE[:PATH], or a TaskVolume, with mode ro. A name means its last version when a
    worker starts; a locator means the same version on all workers, at any time."""

    name = "cowfs"

    def __init__(self, *volumes: str | TaskVolume) -> None:
        NodeMounts(*volumes)  # tells what is wrong with them now
        self._volumes = volumes
        self._mounts: NodeMounts | None = None

    def setup(self, worker: Any) -> None:
        self._mounts = NodeMounts(*self._volumes)
        self._mounts.open()

    def teardown(self, worker: Any) -> None:
        if self._mounts is not None:
            self._mounts.close()
