"""cowfs exec -v SOURCE[:PATH][:MODE] CMD…: runs a program with volumes mounted around it, as the
first process of a container or at a shell.

Exit codes are those of `docker run`: the program's, 125 for a failure of cowfs (`cowfs.cli.main`),
126 and 127 for a program that cannot be started, 128 + N after signal N.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from cowfs.cli import completing, output
from cowfs.errors import CowfsError
from cowfs.rendering import printable

_POLICIES = ("keep", "commit", "discard")


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.option(
    "-v",
    "--volume",
    "volumes",
    multiple=True,
    metavar="SOURCE[:PATH][:MODE]",
    shell_complete=completing.volumes,
    help="A volume to mount. MODE: ro, rw, fork, shared or scratch. [ro]",
)
@click.option(
    "--on-success",
    type=click.Choice(_POLICIES[:2]),
    default="commit",
    show_default=True,
    help="What becomes of changes if CMD exits with 0.",
)
@click.option(
    "--on-failure", type=click.Choice(_POLICIES), default="keep", show_default=True, help="The same if it fails."
)
@click.option("--on-stop", type=click.Choice(_POLICIES), help="The same if it is asked to end. [as --on-failure]")
@click.option(
    "--stop-timeout", default="10s", show_default=True, metavar="DURATION", help="From SIGTERM until CMD is killed."
)
@click.option("--locators", type=click.Path(), metavar="FILE", help="After success, {PATH or SOURCE: locator} as JSON.")
@click.option(
    "--wait", default="150s", show_default=True, metavar="DURATION", help="For a volume that another writer has."
)
@output.version_options
@output.common_options
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] CMD...")
def command(
    volumes: tuple[str, ...],
    words: tuple[str, ...],
    described: output.Described,
    store: str | None,
    as_json: bool,
    **how: Any,
) -> int:
    """Mount volumes, run CMD, publish what it has changed, and unmount.

    MODE of a volume: ro (a version, read-only), rw (the volume itself, made if it is missing), fork
    (a new volume that starts from the version), shared (a fork that is merged into the volume at
    the end), scratch (writable, nothing stays). PATH begins with /, ~, ./ or ../; without it, the
    path is one of the volume's own and is printed.

    Work that is kept stays on this machine, and a message says how to go on with it. CMD gets the
    signals that this process gets. CMD is asked to end if that is SIGTERM, or if it ends because of
    SIGINT, SIGTERM, SIGHUP or SIGQUIT. With --json, its standard output goes to standard error.

    Exit codes: those of CMD; 125 if cowfs fails, 126 if CMD is not executable, 127 if it is not
    found, 128 + N after signal N.

    \b
    cowfs exec -v base:/data -v results:/out:rw -- python train.py
    """
    from cowfs import run_program

    if store is not None:
        os.environ["COWFS_STORE"] = store  # CMD's cowfs uses it, too
    begun: list[dict[str, str]] = []

    def hear(paths: dict[str, str]) -> None:
        begun.append(paths)
        for source, path in paths.items():
            output.say(as_json, f"Mounted {source} at {printable(path)}")

    sys.stdout.flush()
    try:
        run = run_program(
            words,
            volumes,
            stdout=sys.stderr.fileno() if as_json else None,
            started=hear,
            **described,
            **how,
        )
    except CowfsError as error:
        if begun:  # no question to the user, which would run CMD again
            for question in ("untrusted_server", "encrypted_store", "unallowed_file"):
                error.details.pop(question, None)
        raise
    if run.problem:
        output.talk(f"cowfs: {run.problem}")
    for each in run.volumes:
        if each.volume_mode not in ("ro", "scratch") and each.locator is not None:
            verb = "Published" if each.is_new else "Nothing new in"
            output.say(as_json, f"{verb} {each.source}: {printable(each.locator)}")
    output.emit(as_json, run, "")
    return run.exit_code
