"""Work that can't be published in its own line, since another writer took it over, goes on in a new
one."""

from __future__ import annotations

from cowfs.api import names, stores
from cowfs.api.claiming import claimed
from cowfs.api.provenance import author
from cowfs.format.locator import Locator
from cowfs.machine.working_copy import WorkingCopy
from cowfs.version import volumes
from cowfs.version.volumes import Head


def fork(
    store: stores.OpenStore, working_copy: WorkingCopy, name: str | None, *, strict: bool
) -> tuple[Head, Locator | None]:
    """Makes a volume of the version that the work was made on, and moves the working copy to it;
    its head, and that version, if there is one. The working copy is not mounted."""
    state = WorkingCopy(working_copy.path).state
    base = volumes.locator(store.objects, state.volume, state.base_version) if state.base_version is not None else None

    def create(new_name: str) -> Head:
        if base is None:
            return volumes.create_volume(store.objects, new_name, owner=author())
        return volumes.fork_volume(store.objects, new_name, base, owner=author())

    head = claimed(names.checked(name) if name is not None else names.generated(), create, strict=strict)
    working_copy.move_to(working_copy.beside(head.volume), head.number)
    return head, base
