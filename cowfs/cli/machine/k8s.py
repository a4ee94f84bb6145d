"""cowfs k8s patch: changes Kubernetes manifests so that a container of each pod can mount."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress

import click

from cowfs.cli import output
from cowfs.errors import InvalidInputError, from_local_disk
from cowfs.rendering import count

STDOUT = "-"


@click.command("k8s")
@click.argument("action", type=click.Choice(["patch"]))
@click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    required=True,
    help="Manifests in YAML or JSON; -: standard input.",
)
@click.option("-o", "--output", "target", default=STDOUT, metavar="FILE", help="Where the result goes. [-: stdout]")
@click.option("--privileged", is_flag=True, help="For clusters without a device plugin for /dev/fuse.")
@click.option("--resource", metavar="R", help="What the device plugin calls /dev/fuse. [smarter-devices/fuse]")
@click.option("--container", metavar="C", help="The container that mounts. [the only one, or the one named primary]")
@output.json_option
def command(
    action: str,
    file: str,
    target: str,
    privileged: bool,
    resource: str | None,
    container: str | None,
    as_json: bool,
) -> None:
    """Change every pod in FILE so that one of its containers can mount volumes (patch).

    The container requests a device of the resource, with which a device plugin of the cluster gives
    it /dev/fuse, and gets the capability SYS_ADMIN. With --privileged it becomes privileged
    instead. The documents may be pods, workloads with a pod template, or Lists of these; others are
    passed on unchanged. Done twice, it changes nothing more. Comments in changed documents are
    lost.

    \b
    cowfs k8s patch -f job.yaml | kubectl apply -f -
    """
    from cowfs.integrations.kubernetes import FUSE_RESOURCE
    from cowfs.integrations.kubernetes_manifests import allow_fuse_in_manifests

    text, changed = allow_fuse_in_manifests(
        _read(file), resource=resource or FUSE_RESOURCE, privileged=privileged, container=container
    )
    if target != STDOUT:
        try:
            _write(target, text)
        except FileNotFoundError as error:
            raise InvalidInputError(
                f"{target} is in no directory that exists", hint="Make the directory first, or leave --output out."
            ) from error
        except OSError as error:
            raise from_local_disk(error, f"{target} cannot be written") from error
    said = f"Changed {', '.join(changed)}" if changed else "Nothing was to be changed"
    output.say(as_json, said)
    shown = text if target == STDOUT else None
    record = {"file": file, "output": target, "changed_resources": changed, "manifests": shown}
    output.emit(as_json, record, (shown or "").removesuffix("\n"))


def _read(file: str) -> str:
    with click.open_file(file, "rb") as opened:
        data: bytes = opened.read()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{file} is not UTF-8 at {count(error.start, 'byte')}", hint="Convert it: `iconv -t utf-8`."
        ) from error


def _write(target: str, text: str) -> None:
    """Replaces a file as a whole: it may be the one that was read."""
    path = os.path.realpath(target)
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        return
    descriptor, written = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".cowfs-")
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        if os.path.exists(path):
            shutil.copymode(path, written)
        else:
            os.chmod(written, 0o666 & ~_umask())
        os.replace(written, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(written)
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
