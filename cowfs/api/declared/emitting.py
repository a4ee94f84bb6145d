"""A declaration as files for systems that start mounts without `cowfs apply`.

    sh         a POSIX script with the declaration, which writes it to a file and runs `cowfs apply` with it
    systemd    a service that runs `cowfs up FILE` and `cowfs down FILE`
    k8s        a ConfigMap with the declaration, and a Pod whose sidecar runs `cowfs up`; to be filled in. Paths of the
               machine are the Pod's own hostPath volumes

Emitting queries no store and reads no secret; the output names the variables and files that hold
secrets. Placeholders are filled in by the process that runs there.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, Literal

import yaml

from cowfs.api import stores
from cowfs.api.declared import fitting, host_paths, placeholders, plan
from cowfs.api.declared.declared_store import SECRETS, DeclaredStore, Secret
from cowfs.api.declared.model import Declaration, DeclaredVolume
from cowfs.api.storage.definition import Storage
from cowfs.base.errors import InvalidInputError
from cowfs.format import backends
from cowfs.format.locator import is_locator

Kind = Literal["sh", "k8s", "systemd"]
KINDS: tuple[Kind, ...] = ("sh", "k8s", "systemd")
_PLACE = "/etc/cowfs/declared.cowfs.yml"


def emit(declared: Declaration, kind: Kind) -> str:
    """InvalidInputError: the declaration cannot be expressed in this form, or its lock does not
    fit."""
    fitting.require_fitting(declared)
    return {"sh": _script, "k8s": _manifest, "systemd": _service}[kind](declared)


def _script(declared: Declaration) -> str:
    return _SCRIPT + _declaration(declared) + _SCRIPT_END.format(made=_emit_parents(declared))


def _emit_parents(declared: Declaration) -> str:
    """A line that makes what `apply` makes below the directory of the file: the script writes its
    own file elsewhere."""
    parents = {os.path.dirname(each.mount_path) for each in declared.volumes}
    below = declared.file.parent if declared.file is not None else None
    words = [shlex.quote(each) for each in sorted(parents) if below is not None and Path(each).is_relative_to(below)]
    return f"mkdir -p {' '.join(words)}\n" if words else ""


_SCRIPT = """\
#!/bin/sh
# Makes and mounts what is declared; `cowfs down FILE` unmounts it. FILE, which is written: the first argument, or SCRIPT.cowfs.yml.
set -eu
file=${1:-$0.cowfs.yml}
cat > "$file" <<'END OF THE DECLARATION'
"""
_SCRIPT_END = """\
END OF THE DECLARATION
{made}exec cowfs apply -y -f "$file"
"""


# -- systemd


def _service(declared: Declaration) -> str:
    file = str(plan.file_of(declared))
    program = shutil.which("cowfs")
    words = [program] if program else [sys.executable, "-m", "cowfs.cli"]
    of_names = placeholders.variables(each.name for each in declared.volumes)
    named = sorted({*_variables(_secrets(declared)), *of_names})
    kept = [f"Environment={_unit_word(f'{name}={os.environ[name]}')}" for name in _PLACES if os.environ.get(name)]
    return _UNIT.format(
        file=file.replace("%", "%%"),
        user=os.getuid(),
        named=f" Named here: {', '.join(named)}." if named else "",
        kept="".join(f"{each}\n" for each in kept),
        up=" ".join(map(_unit_word, [*words, "up", file])),
        down=" ".join(map(_unit_word, [*words, "down", file])),
    )


_UNIT = """\
[Unit]
Description=Volumes that {file} declares
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
RemainAfterExit=yes
User={user}
# Credentials: lines of NAME=value in a file that only this user can read.{named}
EnvironmentFile=-/etc/cowfs/environment
{kept}ExecStart={up}
ExecStop={down}
TimeoutStopSec=300

[Install]
WantedBy=multi-user.target
"""
_PLACES = (
    *("COWFS_STORE", "COWFS_STATE_DIR", "COWFS_CACHE_DIR"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"),
)
"""Environment variables that the service must share with this shell."""


def _unit_word(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


# -- k8s

_POD = """
apiVersion: v1
kind: Pod
metadata: {name: task}
spec:
  terminationGracePeriodSeconds: 300
  initContainers:
  - name: cowfs
    image: IMAGE-WITH-COWFS
    restartPolicy: Always
    command: [sh, -c]
    startupProbe: {exec: {command: [test, -e, /state/mounted]}, periodSeconds: 1, failureThreshold: 300}
    securityContext: {privileged: true}
    env:
    - {name: COWFS_STATE_DIR, value: /state}
    - {name: COWFS_CACHE_DIR, value: /state/cache}
    volumeMounts:
    - {name: declared, mountPath: /etc/cowfs, readOnly: true}
    - {name: state, mountPath: /state}
  containers:
  - {name: task, image: IMAGE, volumeMounts: []}
  volumes:
  - {name: declared, configMap: {name: cowfs-declared}}
  - {name: state, emptyDir: {}}
"""
_SIDECAR = (
    f"trap 'cowfs down {_PLACE}; exit 0' TERM\nrm -f /state/mounted\ncowfs up {_PLACE} || exit 1\ntouch /state/mounted\n"
    "while :; do sleep 3600 & wait $!; done\n"
)


def _manifest(declared: Declaration) -> str:
    hosts = [each for each in declared.volumes if any(map(host_paths.is_one, each.candidates))]
    if any(len(each.name) > 1 for each in hosts):
        raise InvalidInputError(
            "a Pod cannot choose between a path of its machine and others", hint="Declare the one that it is to use."
        )
    declared = declared.model_copy(update={"volumes": tuple(each for each in declared.volumes if each not in hosts)})
    data, pod = {os.path.basename(_PLACE): _declaration(declared)}, yaml.safe_load(_POD)
    [sidecar], [task], volumes = (pod["spec"][key] for key in ("initContainers", "containers", "volumes"))
    sidecar["command"].append(_SIDECAR)
    sidecar["env"] += _default_store(declared)
    for variable in _of_a_pod(_secrets(declared)):
        sidecar["env"].append({"name": variable, "valueFrom": {"secretKeyRef": {"name": "cowfs", "key": variable}}})
    for index, each in enumerate(declared.volumes):
        mount = {"name": f"mount-{index}", "mountPath": each.mount_path}
        volumes.append({"name": mount["name"], "emptyDir": {}})
        sidecar["volumeMounts"].append({**mount, "mountPropagation": "Bidirectional"})
        task["volumeMounts"].append({**mount, "mountPropagation": "HostToContainer"})
    for index, each in enumerate(hosts):
        volumes.append({"name": f"host-{index}", "hostPath": {"path": host_paths.expanded(each.candidates[0])}})
        task["volumeMounts"].append({"name": f"host-{index}", "mountPath": each.mount_path})
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
        _plain_url(each) if isinstance(each, Storage) else each.without_secrets().url
        for each in _used_stores(declared).values()
    ]
    default = [stores.canonical_url()] if any(each.store is None for each in declared.volumes) else []
    for url in (*urls, *default):
        if backends.of_url(url).reach != "network":
            raise InvalidInputError(
                f"{url} lies on this machine: a Pod cannot reach it", hint="Declare a store in a bucket."
            )
    return [{"name": "COWFS_STORE", "value": url} for url in default]


def _declaration(declared: Declaration) -> str:
    """The declaration in the form of a file, with the versions that are locked."""
    volumes = [  # ~ would be another directory where this is used
        {
            **json.loads(each.model_dump_json(exclude_defaults=True)),
            **_name_versions(declared, each),
            "path": each.mount_path,
        }
        for each in declared.volumes
    ]
    said: dict[str, Any] = {}
    for name, store in _used_stores(declared).items():
        if isinstance(store, Storage):
            said[name] = {"url": _plain_url(store)}
        else:
            said[name] = json.loads(store.model_dump_json(exclude_none=True))
    return yaml.safe_dump({"volumes": volumes, "stores": said}, sort_keys=False)


def _name_versions(declared: Declaration, volume: DeclaredVolume) -> dict[str, list[str]]:
    lines = [fitting.find_locked(declared, volume, source) for source in volume.candidates]
    names = [
        each.name if is_locator(each.name) else f"{each.locator.volume}@{each.version.hex()}"
        for each in lines
        if each is not None
    ]
    return {"name": names} if names else {}


def _used_stores(declared: Declaration) -> dict[str, DeclaredStore | Storage]:
    """Those of its volumes: a declaration also has every store that has a name on this machine."""
    named = {each.store for each in declared.volumes}
    return {name: store for name, store in declared.stores.items() if name in named}


def _plain_url(store: Storage) -> str:
    if store.has_credentials or store.path_style is not None or store.encryption_key is not None:
        raise InvalidInputError(
            "a store that was made in Python has settings that a file cannot have",
            hint="Declare it with DeclaredStore, which names the places of its secrets.",
        )
    return store.url


def _secrets(declared: Declaration) -> list[Secret]:
    stores_of_files = [each for each in _used_stores(declared).values() if isinstance(each, DeclaredStore)]
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
