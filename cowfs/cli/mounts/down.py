"""cowfs down [FILE]: unmounts the mounts that `up` or `apply` of that file made, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import output
from cowfs.cli.start import tidy_up_when_terminated

if TYPE_CHECKING:
    from cowfs.api.declared.mounting import Outcome


@click.command("down")
@click.argument("file", required=False, type=click.Path())
@click.option("--force", "is_forced", is_flag=True, help="Also while in use; programs that use it get errors.")
@output.json_option
def command(file: str | None, is_forced: bool, as_json: bool) -> None:
    """Unmount the mounts that `cowfs up` or `cowfs apply` made for FILE. Uncommitted work is kept.

    FILE itself may be missing. Other mounts are left alone.
    """
    from cowfs import mounts
    from cowfs.blocking import Declared

    place = Declared.find(file)

    def hears(outcome: Outcome) -> None:
        output.say(as_json, output.outcome_line(outcome))

    tidy_up_when_terminated()
    with mounts.out_of_mounts():
        outcomes = Declared.unmount(place, force=is_forced, hears=hears)
    if not outcomes:
        output.say(as_json, f"Nothing that {place} declares was mounted by it.")
    done = [output.outcome(each) for each in outcomes]
    failed = [each.error for each in outcomes if each.error is not None]
    if failed:
        failed[0].details = {**failed[0].details, "outcomes": done}
        raise failed[0]
    output.emit(as_json, {"file": str(place), "outcomes": done}, "")
