"""Public objects, and starting the daemons that serve mounts.

This package and the public function `cowfs.volume(name)` share a name: importing any module of the package binds
`cowfs.volume` to it. So the package itself can be called, and `from cowfs import volume` is right in any order.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cowfs.volume.rw_volume import RWVolume


class _Callable(ModuleType):
    def __call__(self, name: str, *, store: str | None = None) -> RWVolume:
        """The volume of that name, made when it is missing; "/mydata" and "mydata" are the same."""
        from cowfs.volume.volume import volume

        return volume(name, store=store)


sys.modules[__name__].__class__ = _Callable
