"""cowfs completion SHELL: the script that makes a shell complete commands, options, volumes and
mounts.

The script asks `cowfs` itself, with _COWFS_COMPLETE set, as click has it.
"""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class

from cowfs.cli import output
from cowfs.errors import InvalidInputError

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_COWFS_COMPLETE"


@click.command("completion")
@click.argument("shell", required=False, metavar="[bash|zsh|fish]")
def command(shell: str | None) -> None:
    """Print the script that makes SHELL complete `cowfs`; by default the shell that you use.

    \b
    bash   cowfs completion bash > ~/.local/share/bash-completion/completions/cowfs
    zsh    cowfs completion zsh > ~/.zfunc/_cowfs          (with ~/.zfunc in fpath, before compinit)
    fish   cowfs completion fish > ~/.config/fish/completions/cowfs.fish
    """
    from cowfs.cli.main import cowfs

    chosen = shell or os.path.basename(os.environ.get("SHELL", ""))
    kind = get_completion_class(chosen) if chosen in SHELLS else None
    if kind is None:
        raise InvalidInputError(
            f"there is no completion for the shell {chosen!r}", hint=f"Name one: {', '.join(SHELLS)}."
        )
    with output.to_stdout():
        click.echo(kind(cowfs, {}, "cowfs", VARIABLE).source())
