"""cowfs warm SOURCE[:PATH]: fetches a version's contents into this machine's cache; with
--manifest, those of the volumes that a file lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.errors import InvalidInputError
from cowfs.rendering import format_size

if TYPE_CHECKING:
    from cowfs.blocking import WarmReport


@click.command("warm")
@click.argument("source", required=False, metavar="SOURCE[:PATH]", shell_complete=completing.volumes)
@output.manifest_option
@click.option("--cache-dir", type=click.Path(), help="The cache; mounts find it there if they are given the same.")
@click.option("--cache-size", metavar="SIZE", help="Most the cache directory may hold, like 20GiB.")
@click.option(
    "--replay", type=click.Path(), metavar="FILE", help="Fetch what this profile has (cowfs mount --record), no more."
)
@output.progress_option
@output.common_options
def command(
    source: str | None,
    manifest: str | None,
    cache_dir: str | None,
    cache_size: str | None,
    replay: str | None,
    progress_style: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Fetch the contents of a version, or of PATH in it, into this machine's cache, where every
    mount of it finds them. SOURCE is NAME (its last version), NAME@TAG, NAME@VERSION or a locator.
    Prints the version's locator. --manifest: the versions of all volumes that the file lists,
    locked ones if they are locked.

    Cached contents are not fetched again: to continue an interrupted command, repeat it. It may run
    beside mounts. If the cache is too small for all of it, the rest is left out.
    """
    tidy_up_when_terminated()
    if manifest is not None:
        if source is not None or store is not None or replay is not None:
            raise InvalidInputError(
                "--manifest names the volumes and their stores", hint="Leave SOURCE, --store and --replay out."
            )
        _warm_listed(manifest, cache_dir, cache_size, progress_style, as_json=as_json)
        return
    if source is None:
        raise InvalidInputError("there is nothing to fetch", hint="Give SOURCE, or --manifest FILE.")
    from cowfs.blocking import Store

    with output.progress(progress_style) as progress:
        done = Store(store).warm(
            source,
            cache_dir=cache_dir,
            cache_size=cache_size,
            replay=replay,
            progress=progress,
        )
    output.say(as_json, _describe(done))
    output.emit(as_json, done, done.locator)


def _warm_listed(
    manifest: str, cache_dir: str | None, cache_size: str | None, progress_style: str, *, as_json: bool
) -> None:
    from cowfs.blocking import Declared

    declared = Declared.load_manifest(manifest)
    with output.progress(progress_style) as progress:
        done = declared.warm(cache_dir=cache_dir, cache_size=cache_size, progress=progress)
    for each in done:
        output.say(as_json, f"{each.locator}: {_describe(each)}")
    record = {"file": str(declared.file), "versions": done}
    output.emit(as_json, record, "\n".join(each.locator for each in done))


def _describe(done: WarmReport) -> str:
    said = f"Fetched {format_size(done.fetched_bytes)}; {format_size(done.found_bytes)} were there"
    if not done.is_complete:
        said += (
            ". The cache has no room for the rest: free space, give --cache-size, or warm a part of it (SOURCE:PATH)"
        )
    return said
