"""Copies versions to another store (push) or from it (pull). `maintain.copy.pushing` does the work;
this module handles the two stores and creates the target.

Ids stay equal only if both stores name and seal data in the same way: neither is encrypted, or both
have the same key. A target that is created for an encrypted source gets a copy of its keys record,
so that the secrets of one open the other.
"""

from __future__ import annotations

import os
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

from cowfs import store as stores_layer
from cowfs.api import hints, names, sources, stores
from cowfs.api.mounts import work
from cowfs.api.provenance import author
from cowfs.api.storage.resolving import access
from cowfs.api.stores import OpenStore
from cowfs.api.upkeep import copied_stores
from cowfs.api.upkeep.parts import Workers
from cowfs.base import config, log
from cowfs.base.errors import ConflictError, InvalidInputError, InvalidStateError, NotFoundError
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.format import keys
from cowfs.store.credentials import unlocking
from cowfs.store.refs import refs
from cowfs.store.refs.holder import current_holder
from cowfs.store.sealed import sealing_of
from cowfs.version.commit import ProgressListener
from cowfs.version.names import volumes

if TYPE_CHECKING:
    from cowfs.format.key_slots import Secret
    from cowfs.maintain.copy.push_report import PushReport
    from cowfs.store import ObjectStore

LEFT_OUT_SHOWN = 10

_log = log.get("volume")


def push(
    source: str,
    of: stores.Named,
    to: stores.Named,
    *,
    name: str | None = None,
    all_versions: bool = False,
    progress: ProgressListener | None = None,
    executor: Executor | None = None,
) -> PushReport:
    """`Store.push`; `Store.pull` with the stores the other way round. of: the store of a source
    that is not a locator, or None."""
    from cowfs.maintain.copy.push_report import PushReport
    from cowfs.maintain.copy.pushing import Push, line_up_to

    if sources.place(source).path:
        raise InvalidInputError(f"{source} is one folder", hint="Give the whole version.")
    with hints.of_one_of_two(stores.canonical_url(of)):
        found = sources.find(source, of)
        version = found.locator().version
    target, made_store = _target(to, found.store)
    if copied_stores.is_same(target, found.store):
        raise InvalidInputError(
            f"{target.url} is where the version is already", hint=f"Fork it there ({Command('fork')}, fork())."
        )
    wanted = names.checked(name) if name is not None else found.volume
    if found.head is not None:  # a name means the last version
        work.warn_of_changes(found.store, found.volume, "copied")
    line = line_up_to(found.store.objects, found.volume, version) if all_versions else [version]
    with hints.of_one_of_two(target.url):
        stores_layer.require_writable(target.record)
        _require_no_work(target, wanted, version)
        done = Push(
            found.store.objects,
            target.objects,
            found.volume,
            wanted,
            line,
            holder=current_holder(f"process {os.getpid()}, which pushes to it"),
            owner=author(),
            cache_dir=config.cache_dir(),
            progress=progress or (lambda _: None),
            in_parts=partial(Workers(executor).copy, found.store, target) if executor is not None else None,
        ).run(with_tags=all_versions)
    last = volumes.read_head(target.objects, wanted).version
    if last is not None and last != version:
        _log.warning(
            "volume %s of %s has a later version, %s, which stays its last one: what was copied is in its history",
            wanted,
            target.url,
            last.hex()[:12],
        )
    never_there = [each.hex()[:12] for each in done.left_out if each not in done.pruned]
    if left_out := never_there + [f"tag {tag}" for tag in done.left_out_tags]:
        _log.warning(
            "volume %s of %s has a later version, below which nothing is put, so this was left out: %s%s. "
            "Push under another name (--as, name=) to have all",
            wanted,
            target.url,
            ", ".join(left_out[:LEFT_OUT_SHOWN]),
            f" and {len(left_out) - LEFT_OUT_SHOWN} more" if len(left_out) > LEFT_OUT_SHOWN else "",
        )
    return PushReport(
        locator=str(volumes.locator(target.objects, wanted, version)),
        is_new=bool(done.heads),
        version_ids=[each.hex() for each in done.heads],
        packs=done.packs,
        put_packs=done.put_packs,
        put_bytes=done.put_bytes,
        tag_names=done.tags,
        made_store_url=target.url if made_store else None,
        mended_version_ids=[each.hex() for each in done.mended],
        left_out_version_ids=[each.hex() for each in done.left_out],
        left_out_tag_names=done.left_out_tags,
    )


def _require_no_work(target: OpenStore, name: str, version: VersionId) -> None:
    """A new head would orphan uncommitted work of the target's volume."""
    head = volumes.find_head(target.objects, name)
    if head is None or head.version == version:
        return
    if (entry := copied_stores.find_mount(target, name)) is not None:
        raise InvalidStateError(
            f"volume {name!r} of {target.url} is mounted at {entry.mount_path}",
            hint=f"Unmount it first: {Command('unmount', name)}, unmount(). Or copy under another name: --as NAME, as name=.",
        )
    if kept := [copy for copy in copied_stores.known(target, name) if copy.is_kept]:
        raise InvalidStateError(
            f"volume {name!r} of {target.url} has uncommitted work on this machine, in {kept[0].path}",
            hint=f"Publish it ({Command('commit', name)}, commit()), or drop it ({Command('unmount', name, '--discard')}, discard()).",
        )


def _target(named: stores.Named, source: OpenStore) -> tuple[OpenStore, bool]:
    """The target store, and whether it was created."""
    is_sealed, is_made = source.record.cipher is not None, False
    try:
        target = stores.open_store(named)
    except NotFoundError as error:
        if not stores.is_no_store(error):
            raise
        target, is_made = _make(named, source, is_sealed=is_sealed), True
    key, other = unlocking.store_key_of(source.objects), unlocking.store_key_of(target.objects)
    if (key and key.value) != (other and other.value):
        raise _keys_differ(source, target.url)
    assert sealing_of(target.objects).name_key == sealing_of(source.objects).name_key
    return target, is_made


def _make(named: stores.Named, source: OpenStore, *, is_sealed: bool) -> OpenStore:
    url, storage = stores.canonical_url(named), stores.storage_of(named)
    stores.require_place(url)
    objects = stores_layer.open_store(url, create=True, access=access(storage))
    try:
        secret = objects.key_source.secret()
        if is_sealed and secret is None:
            raise InvalidInputError(
                f"{source.url} is encrypted, and there is no passphrase or key for a store at {url}",
                hint=f"The target gets the same keys: open it with the same secret. {unlocking.HINT}",
            )
        if not is_sealed and secret is not None:
            raise InvalidInputError(
                f"{source.url} is not encrypted, and a store that is made at {url} would be: there is a passphrase or key for it",
                hint="Unset COWFS_ENCRYPTION_PASSPHRASE, COWFS_ENCRYPTION_KEY_FILE and COWFS_ENCRYPTION_KEY_COMMAND (leave out "
                f"encryption_key) for a store like the source. Into an encrypted one the files are copied ({_copying(source, url)}).",
            )
        if is_sealed:
            _give_keys(source, objects, secret)
    finally:
        objects.close()
    return stores.open_or_initialize(named, store_key=unlocking.store_key_of(source.objects))[0]


def _give_keys(source: OpenStore, objects: ObjectStore, secret: Secret | None) -> None:
    """The secrets of the source, and no others, open the store that is about to be created. Secrets
    removed since an earlier attempt that failed do not. Initialization then fails if the place
    belongs to another store."""
    record, own = unlocking.authentic_slots(source.objects)[1], unlocking.store_key_of(source.objects)
    assert secret is not None
    assert own is not None
    ref, first = refs.key_slots(), keys.key_slots(refs.FIRST)
    given = record.sign(own.value, first)
    try:
        refs.append(objects, ref, refs.FIRST, given)
    except ConflictError:
        number, found = unlocking.newest_slots(objects)
        if number == refs.FIRST and unlocking.find_key(found, secret, lambda key: key == own.value):
            objects.put(first, given.encode(key=first))


def _keys_differ(source: OpenStore, url: str) -> InvalidInputError:
    return InvalidInputError(
        f"{source.url} and {url} are not encrypted with the same key, so versions cannot have the same ids in both",
        hint="Push to a place where there is no store yet: one that is made for an encrypted source gets its keys. "
        f"Between others, copy the files ({_copying(source, url)}).",
    )


def _copying(source: OpenStore, url: str) -> str:
    """Each command names its own store."""
    download, upload = Command("download", "--store", source.url), Command("upload", "--store", url)
    return f"{download} and {upload}, files.download() and files.upload()"
