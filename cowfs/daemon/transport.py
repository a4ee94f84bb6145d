"""How requests of the fast lane travel: reads and writes of /dev/fuse, or FUSE over io_uring.

    device   works everywhere
    uring    more small requests a second, and half as many bytes (docs/decisions/0013-io-uring.md); the kernel must offer it
             (Linux 6.14, module parameter enable_uring), this process may use io_uring, and the mount's descriptor is its
             own (none passed in)
    auto     the device

The lane itself tests whether io_uring is permitted, and the kernel decides in the handshake
(native/lane/src/uring.rs).
"""

from __future__ import annotations

from typing import Literal

from cowfs.base.errors import InvalidInputError, MountFailedError
from cowfs.control import MountSpec
from cowfs.machine import kernel

Transport = Literal["device", "uring"]


def choose(spec: MountSpec) -> Transport:
    """The transport for the lane. Raises when io_uring is demanded but not available."""
    if spec.options.transport != "uring":
        return "device"
    if not spec.options.fast_lane or spec.options.fuse_fd is not None:
        raise InvalidInputError(
            "a mount without the fast lane, or with fuse_fd= (--fuse-fd), cannot use io_uring",
            hint="Leave transport at auto.",
        )
    if kernel.is_uring_enabled():
        return "uring"
    if kernel.is_uring_offered():
        raise MountFailedError(
            "FUSE over io_uring is switched off", hint=f"{kernel.SWITCH_URING_ON}; or leave transport at auto."
        )
    raise MountFailedError("this kernel has no FUSE over io_uring", hint=kernel.URING_NEEDS)


def not_permitted(error: OSError) -> MountFailedError:
    """The error for a demanded io_uring that this process may not use."""
    return MountFailedError(
        f"io_uring cannot be used here: {error.strerror}",
        hint="Permit it (sysctl kernel.io_uring_disabled=0, the container's seccomp profile), or leave transport at auto.",
    )


def check(spec: MountSpec, found: str) -> None:
    """Checks after the handshake that the mount has the demanded transport."""
    if spec.options.transport == "uring" and found != "uring":
        raise MountFailedError(
            "the kernel did not accept the mount's io_uring rings",
            hint="See dmesg for its reason; or leave transport at auto.",
        )
