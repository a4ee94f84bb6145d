"""A declaration as files for systems that start mounts without `cowfs apply`.

    sh         a POSIX script of `cowfs` commands: creates missing volumes, mounts all
    systemd    a service that runs `cowfs up FILE` and `cowfs down FILE`
    k8s        a ConfigMap with the declaration, and a Pod whose sidecar runs `cowfs up`; to be filled in. Paths of the
               machine are the Pod's own hostPath volumes

Emitting queries no store and reads no secret; the output names the variables and files that hold
secrets. In the script, placeholders are filled in with the values of this process. The other two
leave them to the process that runs there.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from typing import Any, Literal

import yaml

from cowfs.api import stores
from cowfs.api.declared import host_paths, placeholders, plan
from cowfs.api.declared.declared_store import SECRETS, DeclaredStore, Secret
from cowfs.api.declared.model import Declaration, DeclaredVolume
from cowfs.api.storage.definition import Storage
from cowfs.base.errors import InvalidInputError
from cowfs.control.options import COPY_LIMIT
from cowfs.format import backends
from cowfs.format.locator import Locator, is_locator

Kind = Literal["sh", "k8s", "systemd"]
KINDS: tuple[Kind, ...] = ("sh", "k8s", "systemd")
_VARIABLES = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
    "encryption_key": "COWFS_ENCRYPTION_PASSPHRASE",
}
"""The environment variables from which the command line reads these credentials."""
_SAME = {"key_id": "access_key", "app_key": "secret_key"}
_PLACE = "/etc/cowfs/declared.cowfs.yml"
_SIDECAR = (
    f"trap 'cowfs down {_PLACE}; exit 0' TERM\nrm -f /state/mounted\ncowfs up {_PLACE} || exit 1\ntouch /state/mounted\n"
    "while :; do sleep 3600 & wait $!; done\n"
)


def emit(declared: Declaration, kind: Kind) -> str:
    """InvalidInputError: the declaration cannot be expressed in this form."""
    return {"sh": _script, "k8s": _manifest, "systemd": _service}[kind](declared)


# -- sh


_IS_MISSING = """\
# Whether a volume is neither there nor deleted. $1, $2: code and output of `cowfs get --json`; a store that does not
# answer says nothing about it.
is_missing() {
    [ "$1" -eq 3 ] && case $2 in *'"is_deleted": true'*) return 1 ;; esac
}"""


def _script(declared: Declaration) -> str:
    lines = ["#!/bin/sh", "# Makes and mounts what is declared; `cowfs unmount PATH` takes each mount off.", "set -eu"]
    if any(not volume.read_only for volume in declared.volumes):
        lines += ["", _IS_MISSING]
    for volume in declared.volumes:
        mount = " || ".join(_mount_command(declared, volume, source) for source in volume.candidates)
        steps = [mount] if volume.read_only else [_create_command(declared, volume), mount]
        steps = [each for each in steps if each]
        if volume.optional:
            steps = [
                f"{{ {' && '.join(f'{{ {each}; }}' for each in steps)}; }} || echo 'optional, and not mounted' >&2"
            ]
        lines += ["", *steps]
    return "\n".join(lines) + "\n"


def _create_command(declared: Declaration, volume: DeclaredVolume) -> str:
    """The command that creates the first candidate that is a volume, unless one of them exists or
    was deleted; "": none is a volume. Errors show up when it is mounted."""
    volumes = [each for each in volume.candidates if not host_paths.is_one(each)]
    if not volumes:
        return ""
    absent = [f"[ ! -e {shlex.quote(host_paths.expanded(each))} ]" for each in volume.candidates if each not in volumes]
    missing = [
        f'{{ said=$({_command(declared, volume, "get", source, "--json")} 2>/dev/null); is_missing $? "$said"; }}'
        for source in volumes
    ]
    return " && ".join([*absent, *missing, _command(declared, volume, "create", *_new(volume), volumes[0])]) + " || :"


def _new(volume: DeclaredVolume) -> list[str]:
    return ["--no-compress"] if volume.compress is False else []


def _mount_command(declared: Declaration, volume: DeclaredVolume, source: str) -> str:
    if host_paths.is_one(source):
        there, path = shlex.quote(host_paths.expanded(source)), shlex.quote(volume.mount_path)
        cleared = f"{{ rmdir {path} 2>/dev/null || :; }}"  # as `up` does with an empty directory
        return f'{{ test "$(readlink {path})" = {there} || {{ test -e {there} && {cleared} && ln -sT {there} {path}; }}; }}'
    options = _options(volume)
    if not volume.read_only:
        mount = _command(declared, volume, "mount", *options, source, volume.mount_path)
        if volume.size_bytes is None:
            return mount
        return f"{{ {_command(declared, volume, 'quota', source, str(volume.size_bytes))} && {mount}; }}"
    if is_locator(source):
        source = Locator.parse(source).with_path(os.fsencode(volume.folder))
    elif "@" not in source:
        source += "@{0}"
    if volume.folder and not is_locator(source):
        source += f":{volume.folder}"
    return _command(declared, volume, "mount", *options, source, volume.mount_path)


def _options(volume: DeclaredVolume) -> list[str]:
    """Options that differ from the default."""
    mode = [] if volume.mode == "auto" else ["--mode", volume.mode]
    return mode if volume.copy_limit == COPY_LIMIT else [*mode, "--copy-limit", str(volume.copy_limit)]


def _command(declared: Declaration, volume: DeclaredVolume, *words: str) -> str:
    store = declared.stores[volume.store] if volume.store is not None else None
    url, variables = _url_and_variables(store) if store is not None else (None, [])
    named = [] if url is None or any(map(is_locator, words)) else ["--store", url]
    return " ".join([*variables, shlex.join(["cowfs", *words, *named])])


def _url_and_variables(store: DeclaredStore | Storage) -> tuple[str, list[str]]:
    if isinstance(store, Storage):
        _require_none(store.has_credentials or store.path_style is not None or store.encryption_key is not None)
        return store.url, []
    made = store.without_secrets()
    found = [(_SAME.get(key, key), secret) for key in SECRETS if (secret := getattr(store, key)) is not None]
    is_sayable = backends.of_url(made.url).has_aws_credentials or all(key == "encryption_key" for key, _ in found)
    _require_none(not is_sayable or store.credential_process is not None or store.path_style is not None)
    return made.url, [f'{_VARIABLES[key]}="{_expansion(secret)}"' for key, secret in found]


def _require_none(is_more: bool) -> None:
    if is_more:
        raise InvalidInputError(
            "a store has settings that the commands of a script cannot be given",
            hint="Use `cowfs up` where it runs, or emit systemd or k8s.",
        )


def _expansion(secret: Secret) -> str:
    if secret.env is None:
        return f"$(cat {shlex.quote(secret.file or '')})"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", secret.env):
        raise InvalidInputError(f"{secret.env!r} is no variable of a shell", hint="Choose another name.")
    return f"${{{secret.env}:?}}"


# -- systemd


def _service(declared: Declaration) -> str:
    file = str(plan.file_of(declared))
    program = shutil.which("cowfs")
    words = [program] if program else [sys.executable, "-m", "cowfs.cli"]
    of_names = placeholders.variables(each.name for each in declared.volumes)
    named = sorted({*_variables(_secrets(declared)), *of_names})
    kept = [f"Environment={_unit_word(f'{name}={os.environ[name]}')}" for name in _PLACES if os.environ.get(name)]
    return "\n".join(
        [
            "[Unit]",
            f"Description=Volumes that {file.replace('%', '%%')} declares",
            "Wants=network-online.target",
            "After=network-online.target",
            "",
            "[Service]",
            "Type=oneshot",
            "RemainAfterExit=yes",
            f"User={os.getuid()}",
            "# Credentials: lines of NAME=value in a file that only this user can read."
            + (f" Named here: {', '.join(named)}." if named else ""),
            "EnvironmentFile=-/etc/cowfs/environment",
            *kept,
            f"ExecStart={' '.join(map(_unit_word, [*words, 'up', file]))}",
            f"ExecStop={' '.join(map(_unit_word, [*words, 'down', file]))}",
            "TimeoutStopSec=300",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )


_PLACES = (
    "COWFS_STORE",
    "COWFS_STATE_DIR",
    "COWFS_CACHE_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
)
"""Environment variables that the service must share with this shell."""


def _unit_word(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


# -- k8s


def _manifest(declared: Declaration) -> str:
    hosts = [each for each in declared.volumes if any(map(host_paths.is_one, each.candidates))]
    if any(len(each.name) > 1 for each in hosts):
        raise InvalidInputError(
            "a Pod cannot choose between a path of its machine and others", hint="Declare the one that it is to use."
        )
    declared = declared.model_copy(update={"volumes": tuple(each for each in declared.volumes if each not in hosts)})
    said = _values(declared)
    variables = _of_a_pod(_secrets(declared))
    places = [(f"mount-{index}", each.mount_path) for index, each in enumerate(declared.volumes)]
    sidecar = {
        "name": "cowfs",
        "image": "IMAGE-WITH-COWFS",
        "restartPolicy": "Always",
        "command": ["sh", "-c", _SIDECAR],
        "startupProbe": {
            "exec": {"command": ["test", "-e", "/state/mounted"]},
            "periodSeconds": 1,
            "failureThreshold": 300,
        },
        "securityContext": {"privileged": True},
        "env": [
            {"name": "COWFS_STATE_DIR", "value": "/state"},
            {"name": "COWFS_CACHE_DIR", "value": "/state/cache"},
            *_default_store(declared),
            *({"name": each, "valueFrom": {"secretKeyRef": {"name": "cowfs", "key": each}}} for each in variables),
        ],
        "volumeMounts": [
            {"name": "declared", "mountPath": "/etc/cowfs", "readOnly": True},
            {"name": "state", "mountPath": "/state"},
            *({"name": name, "mountPath": path, "mountPropagation": "Bidirectional"} for name, path in places),
        ],
    }
    task = {
        "name": "task",
        "image": "IMAGE",
        "volumeMounts": [
            *({"name": name, "mountPath": path, "mountPropagation": "HostToContainer"} for name, path in places),
            *({"name": f"host-{index}", "mountPath": each.mount_path} for index, each in enumerate(hosts)),
        ],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "task"},
        "spec": {
            "terminationGracePeriodSeconds": 300,
            "initContainers": [sidecar],
            "containers": [task],
            "volumes": [
                {"name": "declared", "configMap": {"name": "cowfs-declared"}},
                *({"name": each, "emptyDir": {}} for each in ("state", *(name for name, _ in places))),
                *(
                    {"name": f"host-{index}", "hostPath": {"path": host_paths.expanded(each.candidates[0])}}
                    for index, each in enumerate(hosts)
                ),
            ],
        },
    }
    data = {os.path.basename(_PLACE): yaml.safe_dump(said, sort_keys=False)}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cowfs-declared"}, "data": data}
    used = " ".join(f"{{{each}}}" for each in sorted(placeholders.used(each.name for each in declared.volumes)))
    note = f"# The container cowfs fills in {used} where it runs: give it the variables by env.\n"
    return (note if used else "") + yaml.dump_all([config, pod], Dumper=_Dumper, sort_keys=False)


class _Dumper(yaml.SafeDumper):
    """Writes multi-line strings in block style."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def _default_store(declared: Declaration) -> list[dict[str, str]]:
    """The store of volumes that name none. Every store must be reachable from other machines."""
    urls = [
        _url_and_variables(each)[0] if isinstance(each, Storage) else each.without_secrets().url
        for each in declared.stores.values()
    ]
    default = [stores.canonical_url()] if any(each.store is None for each in declared.volumes) else []
    for url in (*urls, *default):
        if backends.of_url(url).reach != "network":
            raise InvalidInputError(
                f"{url} lies on this machine: a Pod cannot reach it", hint="Declare a store in a bucket."
            )
    return [{"name": "COWFS_STORE", "value": url} for url in default]


def _values(declared: Declaration) -> dict[str, Any]:
    """The declaration in the form of a file."""
    volumes = [  # ~ would be another directory where this is used
        {**json.loads(each.model_dump_json(exclude_defaults=True)), "path": each.mount_path}
        for each in declared.volumes
    ]
    said = {}
    for name, store in declared.stores.items():
        if isinstance(store, Storage):
            said[name] = {"url": _url_and_variables(store)[0]}
        else:
            said[name] = json.loads(store.model_dump_json(exclude_none=True))
    return {"volumes": volumes, "stores": said}


def _secrets(declared: Declaration) -> list[Secret]:
    stores_of_files = [each for each in declared.stores.values() if isinstance(each, DeclaredStore)]
    found = (getattr(store, key) for store in stores_of_files for key in SECRETS)
    return [secret for secret in found if secret is not None]


def _variables(secrets: list[Secret]) -> list[str]:
    return sorted({secret.env for secret in secrets if secret.env})


def _of_a_pod(secrets: list[Secret]) -> list[str]:
    """Variables that the Pod's Secret provides."""
    if any(secret.file for secret in secrets):
        raise InvalidInputError(
            "a secret that lies in a file of this machine cannot be used in a Pod",
            hint='Name a variable, {env = "NAME"}: the Pod takes it from the Secret "cowfs".',
        )
    return _variables(secrets)
