"""cowfs unmount PATH|NAME: keeps uncommitted work for the next mount, commits it, or discards it.

With --commit a mount that is in use is still detached from its path, because its version is
published by then.

A scratch mount keeps only committed work.

A mount whose daemon has died is also removed; its uncommitted work is in the working copy and is
restored by the next mount. With --force a daemon that does not answer is killed first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cowfs.cli import completing, output
from cowfs.errors import InvalidInputError

if TYPE_CHECKING:
    from cowfs.mounts import Mounted, Unmounted


@click.command("unmount")
@click.argument("target", metavar="PATH|NAME", shell_complete=completing.mounts_and_volumes)
@click.option("--commit", "is_commit", is_flag=True, help="Commit first, also while in use; prints the locator.")
@click.option("--discard", "is_discard", is_flag=True, help="Drop uncommitted work for good.")
@click.option(
    "--force",
    "is_forced",
    is_flag=True,
    help="Also while in use or shared, programs that use it get errors; also a copy in another container.",
)
@output.version_options
@click.option("--meta-dir", type=click.Path(), help="With --discard NAME: drop the work that lies there alone.")
@output.progress_option
@output.common_options
def command(
    target: str,
    is_commit: bool,
    described: output.Described,
    is_discard: bool,
    is_forced: bool,
    meta_dir: str | None,
    progress_style: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Unmount PATH, or the mount of volume NAME. Uncommitted work is kept unless you say otherwise;
    a scratch mount drops it, even if it writes to volume NAME. In the folder of a copy, --discard
    removes committed files and leaves files with changes. A mount of NAME that is detached from its
    path, and served for programs that have its files open, ends with --force. With --discard, PATH
    may also be the place of uncommitted work of a volume that is not mounted, as `cowfs status`
    shows it, even if its store is gone."""
    from cowfs import mounts

    if is_commit and is_discard:
        raise InvalidInputError("--commit and --discard exclude each other", hint="Choose one.")
    if not is_commit and (given := [name for name, value in described.items() if value]):
        raise InvalidInputError(f"{', '.join(given)} without --commit", hint="Add --commit.")
    if meta_dir is not None:
        if not is_discard:
            raise InvalidInputError("--meta-dir without --discard", hint="Add --discard.")
        record = _discard_below(target, meta_dir, store, is_forced=is_forced)
        output.say(as_json, record.pop("said"))
        output.emit(as_json, record, "")
        return
    if is_discard and (dropped := mounts.discard_kept(target, force=is_forced)) is not None:
        record = {"mount_path": None, "volume": dropped.volume, "was_dead": False, "has_uncommitted": False}
        said = f"Dropped uncommitted work of {dropped.volume} in {target}"
        output.say(as_json, said if dropped.had_work else f"{dropped.volume} has no uncommitted work here any more")
        output.emit(as_json, {**record, "is_discarded": dropped.had_work}, "")
        return
    if (dead := mounts.detach_dead(target, store, wants_work=is_commit or is_discard)) is not None:
        work = f"; {dead.work}" if dead.work else ""
        output.say(as_json, f"Unmounted {dead.path}, whose daemon had died{work}")
        gone = {
            "mount_path": dead.path,
            "volume": None,
            "was_dead": True,
            "has_uncommitted": None,
            "is_discarded": False,
        }
        output.emit(as_json, gone, "")
        return
    is_plain = not (is_commit or is_discard)
    found = mounts.find(target, store, read_only=is_plain, detached=is_plain)
    if not isinstance(found, mounts.Mounted):
        record = _discard(found, is_forced=is_forced) if is_discard else found.unmount()
    else:
        with output.if_interrupted(found.describe_interrupted_unmount()), mounts.out_of_mounts():
            if is_commit:
                record = _commit(found, described, progress_style, is_forced=is_forced)
            else:
                record = _unmount(found, is_discard=is_discard, is_forced=is_forced)
    output.say(as_json, record.pop("said"))
    output.emit(as_json, record, record.get("locator", ""))


def _commit(mount: Mounted, described: output.Described, progress_style: str, *, is_forced: bool) -> dict[str, Any]:
    from cowfs.cli import versions

    with output.progress(progress_style) as progress:
        version, released = mount.commit_and_unmount(force=is_forced, progress=progress, **described)
    said = f"{versions.summary(version)}; unmounted {mount.path}"
    if released.users:
        said += (
            f", although {released.users}. They keep their files until they close them; what they write from now on is "
            f"{mount.describe_late_writes()}"
        )
    elif released.trouble:
        said = f"{versions.summary(version)}; but unmounting failed: {released.trouble}"
    record = {
        "is_new": version.is_new,
        "mount_path": mount.path,
        "is_detached": bool(released.users),
        "problem": released.trouble,
    }
    return {**versions.record(version, is_published_now=True), **record, "said": said}


def _unmount(mount: Mounted, *, is_discard: bool, is_forced: bool) -> dict[str, Any]:
    record = {"mount_path": mount.path, "volume": mount.volume, "was_dead": False}
    if is_discard or not mount.keeps_work:
        had_work = mount.discard(force=is_forced)
        dropped = " and dropped uncommitted work" if had_work else ""
        none = "; nothing was uncommitted" if had_work is False else ""  # None: the log shows the meaning
        said = f"Unmounted {mount.path}{dropped}{none if mount.keeps_work else '; a scratch leaves nothing'}"
        return {**record, "has_uncommitted": False, "is_discarded": bool(had_work), "said": said}
    is_kept = mount.unmount(force=is_forced)
    said = f"Unmounted {mount.path}{'; uncommitted work is kept' if is_kept else ''}"
    return {**record, "has_uncommitted": is_kept, "is_discarded": False, "said": said}


def _discard_below(name: str, meta_dir: str, store: str | None, *, is_forced: bool) -> dict[str, Any]:
    from cowfs.blocking import Volume

    volume = Volume.open(name, store=store)
    volume.discard(meta_dir=meta_dir, force=is_forced)
    record = {"mount_path": None, "volume": volume.name, "was_dead": False, "has_uncommitted": volume.has_changes()}
    return {**record, "is_discarded": True, "said": f"Dropped uncommitted work of {volume.name} in {meta_dir}"}


def _discard(volume: Unmounted, *, is_forced: bool) -> dict[str, Any]:
    """A volume that is not mounted here has nothing to unmount, but may have a working copy to
    discard."""
    had_work = volume.discard(force=is_forced)
    name = volume.volume
    said = f"Dropped uncommitted work of {name}" if had_work else f"{name} has no uncommitted work here"
    record = {"mount_path": None, "volume": name, "was_dead": False, "has_uncommitted": False}
    return {**record, "is_discarded": had_work, "said": said}
