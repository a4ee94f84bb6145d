"""cowfs up [FILE]: mounts the volumes that a file declares; all of them, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.errors import InvalidInputError

if TYPE_CHECKING:
    from cowfs.api.declared.mounting import Outcome


@click.command("up")
@click.argument("file", required=False, type=click.Path())
@output.manifest_option
@click.option(
    "--root", type=click.Path(), help="With --manifest: where its volumes are mounted. [volumes, beside FILE]"
)
@output.progress_option
@output.json_option
def command(file: str | None, manifest: str | None, root: str | None, progress_style: str, as_json: bool) -> None:
    """Mount the volumes that FILE declares, by default the nearest cowfs.toml or *.cowfs.yml.
    Volumes that are locked (`cowfs lock`) are mounted at those versions.

    If a volume that is not optional cannot be mounted, the volumes mounted before it are unmounted
    again. Existing mounts are left as they are.
    """
    from cowfs.blocking import Declared

    tidy_up_when_terminated()
    if manifest is not None and file is not None:
        raise InvalidInputError(f"{file} and --manifest {manifest} at once", hint="Give one of them.")
    if root is not None and manifest is None:
        raise InvalidInputError("--root is for a manifest", hint=f"Write root = {root!r} in the file.")
    declared = Declared.load(file) if manifest is None else Declared.load_manifest(manifest, root=root)

    def hears(outcome: Outcome) -> None:
        output.say(as_json, output.outcome_line(outcome))

    with output.progress(progress_style) as progress:
        outcomes = declared.up(progress=progress, hears=hears)
    if not outcomes:
        output.say(as_json, f"{declared.file} declares no volumes.")
    record = {"file": str(declared.file), "outcomes": [output.outcome(each) for each in outcomes]}
    paths = [each.mount_path for each in outcomes if each.error is None]
    output.emit(as_json, record, "\n".join(paths))
