"""Ray: versions mounted for the workers of a node, and tasks as an executor for `cowfs.map`.

    RAY_RUNTIME_ENV_PLUGINS='[{"class": "cowfs.integrations.ray.MountVolumes"}]' ray start --head

    ray.init(runtime_env={"cowfs": ["photos:/data/photos"]})
    cowfs.map(roll_out, version, range(8), executor=Tasks(num_cpus=1))

The agent of each node mounts, before the first worker with this runtime environment starts there.
All workers of the node read the same mount. It stays for the next job and ends with the node's
agent, also after kill -9. With RAY_RUNTIME_ENV_COWFS_CACHE_SIZE_GB=0 it ends with its last worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import ray
from ray._private.runtime_env.plugin import RuntimeEnvPlugin

from cowfs.errors import CowfsError
from cowfs.integrations.node_mounts import NodeMounts

_NAME = "cowfs"
_SIZE_BYTES = 1
"""Of a mount, for Ray's cache: it is evicted as soon as it is unused if the cache has no room."""

_Plugin: Any = RuntimeEnvPlugin


class Tasks:
    """Runs the shards of `cowfs.map` as tasks of Ray. options: of `ray.remote`. A task whose worker
    dies is run again, three times unless `max_retries` says otherwise."""

    def __init__(self, **options: Any) -> None:
        self._options = {"max_retries": 3, **options}

    def submit(self, function: Callable[..., Any], /, *given: Any) -> Future[Any]:
        return ray.remote(**self._options)(function).remote(*given).future()  # type: ignore[no-any-return]


class MountVolumes(_Plugin):  # type: ignore[misc] # untyped where ray is not installed
    """The field `cowfs` of a runtime environment: a list of SOURCE[:PATH]. A name means its last
    version when a node mounts it; a locator means the same version on all nodes."""

    name = _NAME

    def __init__(self) -> None:
        self._mounts: dict[str, NodeMounts] = {}

    @staticmethod
    def validate(runtime_env_dict: dict[str, Any]) -> None:
        NodeMounts(*runtime_env_dict[_NAME])

    def get_uris(self, runtime_env: Any) -> list[str]:
        return list(runtime_env.get(_NAME) or ())

    async def create(self, uri: str | None, runtime_env: Any, context: Any, logger: Any) -> float:
        if uri is None:
            return 0
        mounts = NodeMounts(uri)
        await asyncio.to_thread(mounts.open)
        self._mounts[uri] = mounts
        return _SIZE_BYTES

    def delete_uri(self, uri: str, logger: Any) -> float:
        try:
            self._mounts.pop(uri).close()
        except CowfsError as error:
            logger.warning("%s stays mounted: %s", uri, error)
        return _SIZE_BYTES
