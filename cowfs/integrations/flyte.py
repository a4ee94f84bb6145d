"""cowfs for Flyte (flyte >= 2.11): volumes as arguments and results of tasks.

    register      teaches flyte the classes of volumes; flyte calls it by the entry point `flyte.plugins.types`
    image         an image with cowfs and fusermount3
    pod           a pod template whose primary container may mount
    environment   the variables that pods need

`flyte_volumes` converts the values, `flyte_commands` adds `flyte cowfs`. Importing this imports
flyte only in its functions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from cowfs.blocking import MountOptions, Store
from cowfs.errors import InvalidInputError, InvalidStateError
from cowfs.integrations.kubernetes import FUSE_RESOURCE, allow_fuse

if TYPE_CHECKING:
    import flyte

Fuse = Literal["device", "privileged"]
FIRST_VERSION = (2, 11)
"""Earlier ones take a volume for a directory, whose format is also a blob."""
_WHEEL_PLACE = "/opt/cowfs"
_GRACE = re.compile(r"(\d+)\s*(s|m|min|h)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600}


def register() -> None:
    """Makes volumes and versions, async and blocking, types of Flyte, also as fields of
    dataclasses. A second call changes nothing. InvalidStateError: this flyte is too old."""
    import flyte
    from flyte.types import TypeEngine

    found = re.match(r"(\d+)\.(\d+)", flyte.__version__)
    if found is not None and (0, 99) < (int(found[1]), int(found[2])) < FIRST_VERSION:
        raise InvalidStateError(
            f"flyte {flyte.__version__} is too old for volumes in tasks", hint="pip install 'cowfs-volumes[flyte]'"
        )
    from cowfs.integrations import flyte_volumes, mashumaro

    mashumaro.register(flyte_volumes.write_field)
    for kind in flyte_volumes.READ_AS:
        if kind not in TypeEngine.get_available_transformers():
            TypeEngine.register(flyte_volumes.VolumeTransformer(kind))


def image(image: flyte.Image, *, cowfs: str | Path = "cowfs-volumes") -> flyte.Image:
    """The image with cowfs, and with fusermount3, which mounts need unless the task runs as root.

    cowfs: as pip takes it ("cowfs-volumes==0.1.0"), or the path of a wheel, which is copied in.
    InvalidInputError: there is no such wheel.
    """
    with_fuse = image.with_apt_packages("fuse3")
    if isinstance(cowfs, str) and not cowfs.endswith(".whl"):
        return with_fuse.with_pip_packages(cowfs)
    wheel = Path(cowfs)
    if not wheel.is_file():
        raise InvalidInputError(f"there is no wheel {wheel}", hint="In a checkout, make dist builds one in dist/.")
    copied = with_fuse.with_source_file(wheel, f"{_WHEEL_PLACE}/")
    return copied.with_commands([f"uv pip install {_WHEEL_PLACE}/{wheel.name}"])


def pod(
    template: flyte.PodTemplate | None = None,
    *,
    fuse: Fuse = "device",
    grace: int | str | timedelta = "5min",
    resource: str | None = None,
) -> flyte.PodTemplate:
    """A copy of the template whose primary container may mount; None: of an empty one.

    fuse: "device" needs a FUSE device plugin in the cluster; "privileged" needs none. resource: the
    name under which the plugin offers /dev/fuse. grace: the time between SIGTERM and SIGKILL, which
    a volume needs to be committed after an abort, in seconds or as "90s", "5min", "1h".
    InvalidInputError: the template forbids what is needed.
    """
    import flyte

    if fuse not in get_args(Fuse):
        raise InvalidInputError(f"fuse is {fuse!r}", hint=f"Use one of {', '.join(get_args(Fuse))}.")
    allowed = allow_fuse(
        flyte.PodTemplate() if template is None else template,
        resource=FUSE_RESOURCE if resource is None else resource,
        privileged=fuse == "privileged",
    )
    return allowed.with_termination_grace_period(_seconds(grace))


def _seconds(grace: int | str | timedelta) -> int:
    seconds = int(grace.total_seconds()) if isinstance(grace, timedelta) else grace
    if isinstance(seconds, int) and seconds >= 0:
        return seconds
    found = _GRACE.fullmatch(grace.strip()) if isinstance(grace, str) else None
    if found is None:
        raise InvalidInputError(f"grace is {grace!r}", hint='Give seconds, or a text such as "90s", "5min", "1h".')
    return int(found[1]) * _SECONDS[found[2]]


def environment(
    *, store: str | None = None, trusted_endpoints: Sequence[str] = (), cache_size: int | str | None = None
) -> dict[str, str]:
    """Variables for `TaskEnvironment(env_vars=…)`. A pod knows no store, and sends credentials to
    no server that only a locator names: give it the store, or the servers of the stores whose
    versions its tasks read.

    store: a URL, or a name that this machine knows; new volumes are made there. trusted_endpoints:
    servers such as "https://minio.example.org". cache_size: most bytes that each cache may hold,
    as for `mount`. Credentials are not included; pods get them as Flyte's secrets.
    """
    if isinstance(trusted_endpoints, str):
        raise InvalidInputError(f"trusted_endpoints is {trusted_endpoints!r}", hint="Give a list of servers.")
    found = {}
    if store is not None:
        found["COWFS_STORE"] = Store(store).url
    if trusted_endpoints:
        found["COWFS_TRUSTED_ENDPOINTS"] = ",".join(trusted_endpoints)
    if cache_size is not None:
        found["COWFS_CACHE_SIZE"] = f"{MountOptions(cache_size=cache_size).cache_size_bytes}B"
    return found
