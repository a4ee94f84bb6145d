"""Work that can't be published in its own line, since another writer took it over, goes on in a new
one."""

from __future__ import annotations

from cowfs.api import names, stores
from cowfs.api.ro_volume import ROVolume
from cowfs.api.rw_volume import RWVolume
from cowfs.machine.working_copy import WorkingCopy
from cowfs.version import volumes


def fork(store: stores.OpenStore, working_copy: WorkingCopy, name: str | None, *, strict: bool) -> RWVolume:
    """A volume made of the version that the work was made on, with the working copy moved to it.
    The working copy is not mounted."""
    state = WorkingCopy(working_copy.path).state
    if state.base_version is not None:
        base = volumes.locator(store.objects, state.volume, state.base_version)
        rescued = ROVolume(base).fork(name, strict=strict)
    else:
        rescued = RWVolume(
            store.url, names.checked(name) if name is not None else names.generated(), "new", strict=strict
        )
        rescued.resolve(accept_unsafe_store=True)
    head = volumes.read_head(store.objects, rescued.name)
    working_copy.move_to(working_copy.beside(rescued.name), head.number)
    return rescued
