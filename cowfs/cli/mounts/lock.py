"""cowfs lock: locks the read-only volumes that a file declares to the versions that they have."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from cowfs.cli import output
from cowfs.errors import InvalidInputError
from cowfs.rendering import count, format_time, printable

if TYPE_CHECKING:
    from cowfs.api.declared.locking import LockedVersion
    from cowfs.blocking import Declared


_SHARED = "Other copies and branches of the project share these tags. A prune may delete versions that they still lock."


@click.command("lock")
@click.option("-f", "--file", type=click.Path(), help="What is declared. [the nearest cowfs.toml or *.cowfs.yml]")
@output.manifest_option
@click.option("--update", multiple=True, metavar="NAME", help="Lock this volume to its last version. Repeatable.")
@click.option("--update-all", is_flag=True, help="Lock every volume to its last version.")
@click.option("--check", is_flag=True, help="Only exit with 1 if the lock does not fit the file; asks no store.")
@click.option("--release", is_flag=True, help="Remove old tags of versions that cowfs.lock does not name.")
@click.option("--older", metavar="DURATION", help="With --release: only tags that are older. [30d]")
@click.option("-y", "--yes", "is_agreed", is_flag=True, help="With --release: do not ask.")
@output.dry_run_option
@output.json_option
def command(
    file: str | None,
    manifest: str | None,
    update: tuple[str, ...],
    update_all: bool,
    check: bool,
    release: bool,
    older: str | None,
    is_agreed: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Lock the read-only volumes that a file declares to versions, in cowfs.lock beside it. `up`
    and `apply` then use these versions, whatever is committed later. Commit the file with the
    project. Prints its path.

    Volumes that are locked keep their versions; the option --update moves them. A tag keeps each
    version from being pruned until --release. All copies of the project share the tags. Writable
    volumes are not locked.
    """
    from cowfs.blocking import Declared

    _require_one(file, manifest, update=bool(update) or update_all, check=check, release=release)
    if (older is not None or is_agreed) and not release:
        raise InvalidInputError("--older and --yes are about --release", hint="Give --release, too.")
    if dry_run and check:
        raise InvalidInputError("--check writes nothing", hint="Leave --dry-run out.")
    declared = Declared.load(file) if manifest is None else Declared.load_manifest(manifest)
    if check:
        return _check(declared, as_json=as_json)
    if release:
        return _release(declared, older or "30d", is_agreed=is_agreed, dry_run=dry_run, as_json=as_json)
    done = declared.lock(update=update, update_all=update_all, dry_run=dry_run)
    for each in done.volumes:
        output.say(as_json, _describe(each, dry_run=dry_run))
    if not done.volumes:
        output.say(as_json, f"{declared.file} declares no volume that can be locked.")
    for note in done.notes:
        output.say(as_json, f"Note: {printable(note)}")
    record = {
        "file": str(declared.file),
        "lock_file": done.path,
        "is_changed": done.is_changed,
        "notes": list(done.notes),
    }
    record["volumes"] = done.volumes
    output.emit(as_json, record, "" if dry_run else done.path)
    return output.plan_code(done.is_changed) if dry_run else 0


def _require_one(file: str | None, manifest: str | None, *, update: bool, check: bool, release: bool) -> None:
    if file is not None and manifest is not None:
        raise InvalidInputError("--file and --manifest at once", hint="Give one of them.")
    if update + check + release > 1:
        raise InvalidInputError("--update, --check and --release exclude each other", hint="Give one of them.")


def _check(declared: Declared, *, as_json: bool) -> int:
    found = declared.find_misfits()
    for each in found:
        output.say(as_json, printable(each))
    output.say(as_json, "Run `cowfs lock`." if found else f"The lock fits {declared.file}.")
    output.emit(as_json, {"file": str(declared.file), "is_fitting": not found, "misfits": found}, "")
    return 1 if found else 0


def _release(declared: Declared, older: str, *, is_agreed: bool, dry_run: bool, as_json: bool) -> int:
    done = declared.release_lock(older=older, dry_run=True)
    rows = [(each.volume, each.version[:12], each.tag, format_time(each.created_ns)) for each in done]
    if rows and not as_json:
        click.echo(output.table(("VOLUME", "VERSION", "TAG", "LOCKED"), rows))
    if rows and not dry_run:
        _ask(len(rows), is_agreed=is_agreed, as_json=as_json)
        done = declared.release_lock(older=older, only=done)
    output.say(as_json, f"{'Would remove' if dry_run else 'Removed'} {count(len(done), 'tag')}")
    record = {
        "file": str(declared.file),
        "is_released": not dry_run,
        "tags": done,
    }
    output.emit(as_json, record, "")
    return output.plan_code(bool(done)) if dry_run else 0


def _ask(tags: int, *, is_agreed: bool, as_json: bool) -> None:
    output.say(as_json, _SHARED)
    if is_agreed:
        return
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidInputError("nobody can be asked whether to remove these tags", hint="Add -y to remove them.")
    output.confirm(f"Remove {count(tags, 'tag')}?")


def _describe(volume: LockedVersion, *, dry_run: bool) -> str:
    name = f"{volume.store}/{volume.name}" if volume.store else volume.name
    version = _digits(volume.locator)
    return {
        "added": f"{'Would lock' if dry_run else 'Locked'} {name} to {version}",
        "updated": f"{'Would update' if dry_run else 'Updated'} {name}: {_digits(volume.before or '')} → {version}",
        "kept": f"{'Would keep' if dry_run else 'Kept'} {name} at {version}",
        "removed": f"{'Would remove' if dry_run else 'Removed'} {name}: it is not declared any more",
    }[volume.what]


def _digits(locator: str) -> str:
    return locator.rpartition("@")[2][:12]
