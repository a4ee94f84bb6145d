"""Placeholders such as {node_rank} in names of volumes. They stand for facts about the process that
reads the names.

    {hostname}     without its domain
    {user}         login name
    {node_rank}    NODE_RANK, GROUP_RANK (torchrun), SLURM_NODEID, JOB_COMPLETION_INDEX (Kubernetes)
    {rank}         RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK, PMI_RANK
    {local_rank}   LOCAL_RANK, SLURM_LOCALID, OMPI_COMM_WORLD_LOCAL_RANK
    {job_id}       SLURM_JOB_ID, PBS_JOBID, JOB_ID
    {env.NAME}     the environment variable NAME

The first variable that is set counts. An unset variable is an error, never an empty text, since two
nodes would get the same name. A variable whose name is that of a credential is an error, too. The
only other use of braces, after an @, is the number of versions to go back or a time: NAME@{3},
NAME@{2026-11-20T12:00}.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterable

from cowfs.base.errors import InvalidInputError
from cowfs.base.redaction import holds_credential

VARIABLES = {
    "node_rank": ("NODE_RANK", "GROUP_RANK", "SLURM_NODEID", "JOB_COMPLETION_INDEX"),
    "rank": ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
    "local_rank": ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "job_id": ("SLURM_JOB_ID", "PBS_JOBID", "JOB_ID"),
}
KNOWN = ("hostname", "user", *VARIABLES, "env.NAME")
_PLACEHOLDER = re.compile(r"(?!(?<=@)\{[0-9])\{([^{}]*)\}")
_EARLIER = re.compile(r"@\{[0-9][^{}]*\}")


def filled(text: str) -> str:
    """text with each placeholder replaced. InvalidInputError: a placeholder is unknown or has no
    value."""
    result = _PLACEHOLDER.sub(lambda found: _value(found[1]), text)
    left = _EARLIER.sub("", _PLACEHOLDER.sub("", text))
    if "{" in left or "}" in left:
        raise InvalidInputError(f"{text!r} has a brace without its other", hint="Write {node_rank}, for example.")
    return result


def require_none(text: str, what: str) -> None:
    """InvalidInputError: a placeholder stands where none is filled in. Other braces are text."""
    for name in _PLACEHOLDER.findall(text):
        if name in KNOWN or name.startswith("env."):
            raise InvalidInputError(
                f"{{{name}}} in the {what} {text!r} would not be filled in",
                hint=f"Placeholders may stand in names of volumes only: write the {what} out.",
            )


def variables(names: Iterable[tuple[str, ...]]) -> set[str]:
    """The environment variables that candidate names use by {env.NAME}."""
    return {each.removeprefix("env.") for each in used(names) if each.startswith("env.")}


def used(names: Iterable[tuple[str, ...]]) -> set[str]:
    """The placeholders of candidate names, without braces."""
    return {each for candidates in names for name in candidates for each in _PLACEHOLDER.findall(name)}


def may_become(text: str, name: str) -> bool:
    """Whether text, with placeholders, can become this name in another process, for example of
    another rank or user."""
    parts = _PLACEHOLDER.split(text)[::2]
    return len(parts) > 1 and re.fullmatch(".+".join(map(re.escape, parts)), name) is not None


def _value(name: str) -> str:
    if name == "hostname":
        return socket.gethostname().split(".")[0]
    if name == "user":
        return _user()
    if name.startswith("env."):
        return _of_environment(name.removeprefix("env."))
    if name in VARIABLES:
        return _first(VARIABLES[name], name)
    raise InvalidInputError(
        f"there is no placeholder {{{name}}}", hint=f"There are: {', '.join(f'{{{each}}}' for each in KNOWN)}."
    )


def _of_environment(variable: str) -> str:
    if holds_credential(variable):
        raise InvalidInputError(
            f"{variable} holds a credential by its name, and names of volumes are told to stores",
            hint="Use a variable that is no secret.",
        )
    return _first((variable,), f"env.{variable}")


def _first(variables: tuple[str, ...], name: str) -> str:
    for variable in variables:
        if value := os.environ.get(variable):
            return value
    raise InvalidInputError(
        f"{{{name}}} is not known here: {' and '.join(variables)} {'are' if len(variables) > 1 else 'is'} not set",
        hint=f"Set {variables[0] or 'a variable'}, or write the name out.",
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no passwd entry
        return f"u{os.getuid()}"
