"""{node_rank} and the like in names of volumes: what is known of the process that reads them.

    {hostname}     without its domain
    {user}         login name
    {node_rank}    NODE_RANK, GROUP_RANK (torchrun), SLURM_NODEID, JOB_COMPLETION_INDEX (Kubernetes)
    {rank}         RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK, PMI_RANK
    {local_rank}   LOCAL_RANK, SLURM_LOCALID, OMPI_COMM_WORLD_LOCAL_RANK
    {job_id}       SLURM_JOB_ID, PBS_JOBID, JOB_ID
    {env.NAME}     the environment variable NAME

The first variable that is set counts. One that nobody has set is an error where the name is used,
never an empty text: names of two nodes would be the same. A declaration that is only handed on has
names as they are written. A variable that holds a credential by its name is always an error.
Nothing else may stand in braces but, behind an @, how many versions ago, or when: NAME@{3},
NAME@{2026-11-20T12:00}.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterable

from cowfs.errors import InvalidInputError
from cowfs.redaction import holds_credential

VARIABLES = {
    "node_rank": ("NODE_RANK", "GROUP_RANK", "SLURM_NODEID", "JOB_COMPLETION_INDEX"),
    "rank": ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
    "local_rank": ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "job_id": ("SLURM_JOB_ID", "PBS_JOBID", "JOB_ID"),
}
KNOWN = ("hostname", "user", *VARIABLES, "env.NAME")
_PLACEHOLDER = re.compile(r"(?!(?<=@)\{[0-9])\{([^{}]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_.-][A-Za-z0-9_.-]*")
"""As Kubernetes takes them. Emitted texts name variables: no line may begin in one."""
_EARLIER = re.compile(r"@\{[0-9][^{}]*\}")


def check(text: str) -> None:
    """InvalidInputError: it is wrong everywhere, whatever has a value."""
    for name in _PLACEHOLDER.findall(text):
        _check(name)
    left = _EARLIER.sub("", _PLACEHOLDER.sub("", text))
    if "{" in left or "}" in left:
        raise InvalidInputError(f"{text!r} has a brace without its other", hint="Write {node_rank}, for example.")


def is_known(text: str) -> bool:
    """Whether each placeholder of a checked text has a value here."""
    return all(_found(name) is not None for name in _PLACEHOLDER.findall(text))


def filled(text: str) -> str:
    """A checked text with each placeholder replaced; InvalidInputError: one without a value."""
    return _PLACEHOLDER.sub(lambda found: _value(found[1]), text)


def filled_if_known(text: str) -> str:
    """As it is written where a placeholder has no value here."""
    return filled(text) if is_known(text) else text


def require_none(text: str, what: str) -> None:
    """InvalidInputError: a placeholder stands where none is filled in. Other braces are text."""
    for name in _PLACEHOLDER.findall(text):
        if name in KNOWN or name.startswith("env."):
            raise InvalidInputError(
                f"{{{name}}} in the {what} {text!r} would not be filled in",
                hint=f"Placeholders may stand in names of volumes only: write the {what} out.",
            )


def variables(names: Iterable[tuple[str, ...]]) -> set[str]:
    """Those that candidate names take from the environment; of several that give a rank or a job
    id, the first."""
    found = (each for candidates in names for name in candidates for each in _PLACEHOLDER.findall(name))
    return {variables[0] for each in found if (variables := _variables(each))}


def may_become(text: str, name: str) -> bool:
    """Whether text, with placeholders, may be this name somewhere else: for another rank or
    user."""
    parts = _PLACEHOLDER.split(text)[::2]
    return len(parts) > 1 and re.fullmatch(".+".join(map(re.escape, parts)), name) is not None


def _check(name: str) -> None:
    variable = name.removeprefix("env.")
    is_one = name in KNOWN if variable == name else _VARIABLE.fullmatch(variable)
    if not is_one:
        raise InvalidInputError(
            f"there is no placeholder {{{name}}}", hint=f"There are: {', '.join(f'{{{each}}}' for each in KNOWN)}."
        )
    if variable != name and holds_credential(variable):
        raise InvalidInputError(
            f"{variable} holds a credential by its name, and names of volumes are told to stores",
            hint="Use a variable that is no secret.",
        )


def _variables(name: str) -> tuple[str, ...]:
    """Those that a placeholder is taken from, the first one that is set."""
    return (name.removeprefix("env."),) if name.startswith("env.") else VARIABLES.get(name, ())


def _found(name: str) -> str | None:
    if name == "hostname":
        return socket.gethostname().split(".")[0]
    if name == "user":
        return _user()
    return next(filter(None, map(os.environ.get, _variables(name))), None)


def _value(name: str) -> str:
    if (value := _found(name)) is not None:
        return value
    variables = _variables(name)
    raise InvalidInputError(
        f"{{{name}}} is not known here: {' and '.join(variables)} {'are' if len(variables) > 1 else 'is'} not set",
        hint=f"Set {variables[0]}, or write the name out.",
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without an entry
        return f"u{os.getuid()}"
