"""Verifies one version or a whole store. `maintain.check.verify` does the work."""

from __future__ import annotations

from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

from cowfs.api import sources, stores
from cowfs.api.stores import OpenStore
from cowfs.api.upkeep.parts import Workers
from cowfs.base import config
from cowfs.base.errors import InvalidInputError
from cowfs.base.hints import Command
from cowfs.format.locator import is_locator
from cowfs.version.commit import ProgressListener
from cowfs.version.names import source_names

if TYPE_CHECKING:
    from cowfs.maintain.check.verify import Scope
    from cowfs.maintain.check.verify_report import VerifyReport


def verify(
    source: str | None,
    named: stores.Named,
    *,
    sample: float = 1.0,
    resume: bool = False,
    progress: ProgressListener | None = None,
    executor: Executor | None = None,
) -> VerifyReport:
    """`Store.verify`."""
    from cowfs.maintain.check.verify import Verifier
    from cowfs.maintain.check.verify_log import VerifyLog

    if not 0 < sample <= 1:
        raise InvalidInputError(
            f"a sample is a part of the whole, not {sample!r}", hint="Give more than 0 and at most 1 (100%)."
        )
    store, scope = _scope(source, named, sample)
    verifier = Verifier(
        store.objects,
        store.record,
        cache_dir=config.cache_dir(),
        access=store.access,
        progress=progress,
        in_parts=partial(Workers(executor).check, store) if executor is not None else None,
    )
    what = "store" if scope.is_store else scope.versions[0].id.hex()
    log = VerifyLog(config.state_dir(), store.record.store_id, what, resume=resume)
    is_over = False
    try:
        report = verifier.run(scope, log)
        is_over = True
        return report
    finally:
        log.close(is_over=is_over)


def _scope(source: str | None, named: stores.Named, sample: float) -> tuple[OpenStore, Scope]:
    from cowfs.maintain.check.verify import Scope
    from cowfs.maintain.kept_versions import one_version

    is_place = source is not None and (
        "://" in source or "/" in source_names.split_place(source)[0] or source.startswith("~")
    )
    if source is not None and is_place and not is_locator(source):
        raise InvalidInputError(
            f"{source} is no volume, but may be a store",
            hint=f"Name it so: {Command('verify', '--store', source)}, Store({source!r}).verify().",
        )
    if source is None:
        store = stores.open_store(named)
        return store, Scope.of_store(store.objects, share=sample)
    if sources.place(source).path:
        raise InvalidInputError(f"{source} is one folder", hint="Give the whole version.")
    found = sources.find(source, named)
    version = found.locator().version
    return found.store, Scope([one_version(found.store.objects, found.volume, version)], share=sample)
