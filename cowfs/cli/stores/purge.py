"""cowfs purge: takes bytes out of a store, whatever versions have them. Shows the plan first, and
asks for the volume's name."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.errors import InvalidInputError
from cowfs.rendering import count, format_size, printable

if TYPE_CHECKING:
    from cowfs.blocking import PurgedVersion, PurgeReport

WAITS = 4
SHOWN_KEEPERS = 3


@click.command("purge")
@click.argument("source", shell_complete=completing.places)
@output.dry_run_option
@click.option(
    "--yes-purge",
    "typed",
    metavar="NAME",
    help="Do not ask: this is the volume's name, in full. For scripts.",
)
@click.option("--lose-work", is_flag=True, help="Purge whole versions although uncommitted work is based on one.")
@output.progress_option
@output.common_options
def command(
    source: str,
    dry_run: bool,
    typed: str | None,
    lose_work: bool,
    progress_style: str,
    store: str | None,
    as_json: bool,
) -> int:
    """Take the bytes of SOURCE out of the store, for good: a secret, or a volume that fills the
    bucket. SOURCE is NAME (all versions of a volume, deleted or not), NAME@VERSION, NAME:PATH (that
    path in every version of the volume) or NAME@VERSION:PATH.

    Chunks are shared between versions and volumes: every version that has one of the chunks loses
    it, whatever keeps that version. The plan lists them. Reading the lost bytes fails with the kind
    `purged`; everything else reads as before, and locators stay. Names and extended attributes go
    with whole versions only.

    Nothing brings purged bytes back, so the volume's name has to be typed. Mounts can stay in use
    meanwhile. The command waits for a mount that does not answer. If that takes too long, it exits
    with 4; running it again, or `cowfs gc`, continues. Uncommitted work that is based on a version
    which goes as a whole keeps it from beginning, unless --lose-work says otherwise.
    """
    from cowfs.blocking import Store

    can_ask = not as_json and sys.stdin.isatty() and sys.stderr.isatty()
    if not (dry_run or typed is not None or can_ask):
        raise InvalidInputError(
            "nobody can be asked for the volume's name",
            hint="Add --yes-purge NAME to purge without a question, or --dry-run to see what would be lost.",
        )
    tidy_up_when_terminated()
    with output.progress(progress_style) as progress:
        plan = Store(store).plan_purge(source, progress=progress)
    if dry_run:
        output.emit(as_json, plan.report, render_plan(plan.report, is_empty=plan.is_empty))
        return output.plan_code(not plan.is_empty)
    if not as_json:
        output.say(as_json, render_plan(plan.report, is_empty=plan.is_empty))
    if typed is None:
        typed = plan.report.volume if plan.is_empty else output.ask(f"Type {plan.report.volume} to purge this")
    done = plan.apply(typed, lose_work=lose_work, say=lambda text: output.say(as_json, text))
    output.emit(as_json, done, _outcome(done, is_empty=plan.is_empty))
    for each in done.waits_for:
        output.say(as_json, f"Not done: no answer yet from who writes to {each.volume} ({each.holder}). Run it again.")
    if done.stored_again:
        again = count(done.stored_again, "chunk")
        output.say(
            as_json,
            f"Not done: a writer has the same bytes and stored {again} again. Run it again when it has committed.",
        )
    return 0 if done.is_done else WAITS


def render_plan(report: PurgeReport, *, is_empty: bool) -> str:
    if is_empty:
        return f"{printable(report.source)} has no bytes in the store that are not purged already"
    rows = [_row(each) for each in report.versions]
    lines = [output.table(("VERSION", "VOLUME", "LOSES", "KEPT BY"), rows)] if rows else []
    lines += [f"  {printable(path)}" for path in dict.fromkeys(path for each in report.versions for path in each.paths)]
    packs = f"{count(report.freed_packs, 'pack')}; {format_size(report.written_bytes)} of them is written anew"
    lines.append(f"{count(report.chunks, 'chunk')}, {format_size(report.freed_bytes)} in {packs}")
    lines.append("This does not reach:")
    lines += [f"  {each}" for each in report.beyond]
    return "\n".join(lines)


def _row(each: PurgedVersion) -> tuple[str, str, str, str]:
    loses = "everything" if each.is_whole else count(each.files, "file")
    more = f" and {len(each.kept_by) - SHOWN_KEEPERS} more" if len(each.kept_by) > SHOWN_KEEPERS else ""
    kept_by = f"{', '.join(each.kept_by[:SHOWN_KEEPERS])}{more}" or "nothing"
    return each.version[:12], each.volume, loses, printable(kept_by)


def _outcome(done: PurgeReport, *, is_empty: bool) -> str:
    return "" if is_empty or not done.is_done else f"Purged {count(done.chunks, 'chunk')} from {done.store_url}"
