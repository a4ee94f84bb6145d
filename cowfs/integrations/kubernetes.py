"""Pods that may mount volumes: `allow_fuse` changes templates of pods.

    dict                        a manifest with one pod in it (Pod, Job, CronJob, Deployment, …), or the spec of a pod
    kubernetes.client models    the same as V1Pod, V1PodTemplateSpec, V1Job, V1PodSpec, …
    flyte.PodTemplate           the same result as that of its own `allow_fuse()`

`kubernetes_manifests` does it for text in YAML. Nothing here talks to a cluster. AppArmor is left
as it is: where a profile forbids `mount`, the pod needs an unconfined one.
"""

from __future__ import annotations

import copy
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

from cowfs.errors import InvalidInputError

FUSE_RESOURCE = "smarter-devices/fuse"
"""The resource that smarter-device-manager and fuse-device-plugin advertise for /dev/fuse."""
_PRIMARY = "primary"
_CAPABILITY = "SYS_ADMIN"
_ANNOTATION = "flyte.org/capability-fuse"
_TO_PODS = {"spec": "spec", "template": "template", "jobTemplate": "job_template"}
"""Fields of a manifest that lead to the pod in it, and their names in models."""

T = TypeVar("T")
Spec = dict[str, Any]


class Wanted(NamedTuple):
    resource: str = FUSE_RESOURCE
    privileged: bool = False
    container: str | None = None


def allow_fuse(
    template: T, *, resource: str = FUSE_RESOURCE, privileged: bool = False, container: str | None = None
) -> T:
    """A copy of `template` in which one container may mount volumes. Done twice, it changes nothing
    more.

    The container requests one device of `resource`, which a device plugin of the cluster turns into
    access to /dev/fuse, and gets the capability SYS_ADMIN for the mount itself. privileged: for
    clusters without such a plugin; the container becomes privileged instead, and so has all devices
    of its node. container: its name; init containers count, too. By default it is the only
    container, or the one named "primary".

    InvalidInputError, a ValueError: the template forbids what is needed, or it is not clear which
    container is meant.
    """
    wanted = Wanted(resource, privileged, container)
    flyte = sys.modules.get("flyte")
    if flyte is not None and isinstance(template, flyte.PodTemplate):
        return _change_flyte_template(template, wanted)
    if isinstance(template, dict):
        return change_manifest(copy.deepcopy(template), wanted)  # type: ignore[return-value]
    if hasattr(template, "openapi_types"):
        return _change_in_model(template, wanted)
    raise InvalidInputError(
        f"a {type(template).__name__} is not a pod template",
        hint="Pass a manifest as a dict, a model of kubernetes.client, or a flyte.PodTemplate.",
    )


def change_manifest(manifest: Spec, wanted: Wanted) -> Spec:
    """`allow_fuse` for a manifest. The result has the same objects where nothing changes, so that
    comparing the two takes no long time, whatever aliases there are."""
    found = path_to_pod(manifest)
    if found is None:
        raise _no_pod("the manifest")
    return _change_at(manifest, found, wanted)  # type: ignore[no-any-return]


def path_to_pod(manifest: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The keys that lead to the spec of the pod in a manifest; None: it has no pod."""
    if isinstance(manifest.get("containers"), list):
        return ()
    for key in _TO_PODS:
        if isinstance(below := manifest.get(key), dict) and (rest := path_to_pod(below)) is not None:
            return key, *rest
    return None


# -- kinds of templates


def _change_at(manifest: Any, path: Sequence[str], wanted: Wanted) -> Any:
    """No object is changed in place: aliases of YAML let several containers share one."""
    if not path:
        return _add_fuse(manifest, wanted)
    return {**manifest, path[0]: _change_at(manifest[path[0]], path[1:], wanted)}


def _change_in_model(template: T, wanted: Wanted) -> T:
    changed = copy.deepcopy(template)
    above: Any = None
    name, spec = "", changed
    while not hasattr(spec, "containers"):
        fields = [each for each in _TO_PODS.values() if getattr(spec, each, None) is not None]
        if not fields:
            raise _no_pod(f"the {type(template).__name__}")
        above, name = spec, fields[0]
        spec = getattr(spec, name)
    new = _change_model(spec, lambda manifest: _add_fuse(manifest, wanted))
    if above is None:
        return new
    setattr(above, name, new)
    return changed


def _change_flyte_template(template: T, wanted: Wanted) -> T:
    """flyte makes the primary container if the template has none, and so does this."""
    from kubernetes.client import V1PodSpec

    changed: Any = copy.deepcopy(template)
    primary = changed.primary_container_name
    chosen = wanted._replace(container=wanted.container or primary)

    def change(spec: Spec) -> Spec:
        containers = spec.get("containers") or []
        if all(each.get("name") != primary for each in containers):
            containers = [*containers, {"name": primary}]
        return _add_fuse({**spec, "containers": containers}, chosen)

    changed.pod_spec = _change_model(changed.pod_spec or V1PodSpec(containers=[]), change)
    changed.annotations = {**(changed.annotations or {}), _ANNOTATION: "true"}
    return changed  # type: ignore[no-any-return]


def _change_model(spec: T, change: Callable[[Spec], Spec]) -> T:
    from kubernetes.client import ApiClient

    with ApiClient() as client:
        data = json.dumps(change(client.sanitize_for_serialization(spec)))
        kind = type(spec).__name__
        if "content_type" in inspect.signature(client.deserialize).parameters:
            return client.deserialize(data, kind, "application/json")  # type: ignore[no-any-return]
        return client.deserialize(SimpleNamespace(data=data), kind)  # type: ignore[no-any-return] # before client 37


# -- the spec of a pod


def _add_fuse(spec: Spec, wanted: Wanted) -> Spec:
    key, index = _choose(spec, wanted.container)
    containers = list(spec[key])
    containers[index] = _add_fuse_to(containers[index], spec.get("securityContext") or {}, wanted)
    return {**spec, key: containers}


def _choose(spec: Spec, name: str | None) -> tuple[str, int]:
    """(list of the spec, place in it) of the container."""
    names = {key: [each.get("name") for each in spec.get(key) or []] for key in ("containers", "initContainers")}
    ordinary = names["containers"]
    missing = f"no container {name!r}"
    if name is None:
        name = ordinary[0] if len(ordinary) == 1 else _PRIMARY
        missing = f"not exactly one container, and none is named {name!r}"
    for key, found in names.items():
        if name in found:
            return key, found.index(name)
    listed = ", ".join(str(each) for found in names.values() for each in found) or "none"
    raise InvalidInputError(
        f"the pod has {missing}; there are: {listed}",
        hint="Name the one that mounts: container=NAME, --container NAME.",
    )


def _add_fuse_to(container: Spec, of_pod: Spec, wanted: Wanted) -> Spec:
    name, context = container.get("name"), container.get("securityContext") or {}
    if wanted.privileged:
        return {**container, "securityContext": _make_privileged(context, name)}
    return {
        **container,
        "securityContext": _add_capability(context, {**of_pod, **context}, name),
        "resources": _resources(container.get("resources") or {}, wanted.resource, name),
    }


def _make_privileged(context: Spec, name: object) -> Spec:
    for key in ("privileged", "allowPrivilegeEscalation"):
        if context.get(key) is False:
            raise InvalidInputError(
                f"container {name!r} has {key}: false, and cannot be privileged",
                hint=f"Remove {key} from its securityContext, or leave out privileged=True (--privileged).",
            )
    return {**context, "privileged": True}


def _add_capability(context: Spec, effective: Spec, name: object) -> Spec:
    capabilities = context.get("capabilities") or {}
    added, dropped = ([*(capabilities.get(key) or [])] for key in ("add", "drop"))
    if _CAPABILITY in map(_plain, dropped):  # ALL may be dropped: what is added counts more
        raise InvalidInputError(
            f"container {name!r} drops the capability {_CAPABILITY}, which a mount needs",
            hint="Remove it from capabilities.drop.",
        )
    user = effective.get("runAsUser")
    is_other = effective.get("runAsNonRoot") is True or (user is not None and str(user) != "0")
    if is_other and context.get("allowPrivilegeEscalation") is False:
        raise InvalidInputError(
            f"container {name!r} does not run as root and has allowPrivilegeEscalation: false, which disables "
            "fusermount3: it cannot mount",
            hint="Remove allowPrivilegeEscalation from its securityContext, or run it as root.",
        )
    if {_CAPABILITY, "ALL"} & set(map(_plain, added)):
        return context
    return {**context, "capabilities": {**capabilities, "add": [*added, _CAPABILITY]}}


def _plain(capability: object) -> str:
    return str(capability).upper().removeprefix("CAP_")


def _resources(resources: Spec, resource: str, name: object) -> Spec:
    """Kubernetes requires the request of such a resource to equal its limit."""
    sides = {key: {**(resources.get(key) or {})} for key in ("requests", "limits")}
    amounts = {str(side[resource]) for side in sides.values() if side.get(resource) is not None} or {"1"}
    if "0" in amounts or len(amounts) > 1:
        raise InvalidInputError(
            f"container {name!r} has {' and '.join(sorted(amounts))} of {resource}, and a mount needs one",
            hint=f"Remove {resource} from its resources.",
        )
    for side in sides.values():
        side.setdefault(resource, next(iter(amounts)))
    return {**resources, **sides}


def _no_pod(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"{what} has no pod in it: no `containers` in it, nor below `spec`, `template` or `jobTemplate`",
        hint="Pass a Pod, a workload such as a Job or a Deployment, or the spec of a pod.",
    )
