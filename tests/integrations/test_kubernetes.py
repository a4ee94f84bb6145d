"""Templates of pods, as dicts and as models of the real client."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kubernetes import client

from cowfs.errors import InvalidInputError
from cowfs.integrations.kubernetes import allow_fuse
from cowfs.integrations.kubernetes_manifests import allow_fuse_in_manifests

pytestmark = pytest.mark.quick

DEVICE = {"smarter-devices/fuse": "1"}


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [*containers], **spec}}


def named(name: str = "primary", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", **fields}


def of_kind(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    if kind == "Pod":
        return {"kind": kind, "spec": spec}
    if kind == "PodTemplate":
        return {"kind": kind, "template": template}
    if kind == "CronJob":
        return {"kind": kind, "spec": {"jobTemplate": {"spec": {"template": template}}}}
    return {"kind": kind, "spec": {"selector": {}, "template": template}} if kind else spec


KINDS = ("Pod", "PodTemplate", "Job", "CronJob", "Deployment", "StatefulSet", "")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("privileged", [False, True])
def test_a_copy_is_changed_in_one_container_and_nowhere_else(kind: str, privileged: bool) -> None:
    before = of_kind(kind, {"containers": [named("side"), named(resources={"limits": {"cpu": "1"}})], "volumes": []})
    given = copy.deepcopy(before)
    after = allow_fuse(given, privileged=privileged)
    assert given == before
    assert allow_fuse(after, privileged=privileged) == after
    if privileged:
        changed = named(resources={"limits": {"cpu": "1"}}, securityContext={"privileged": True})
    else:
        changed = named(
            resources={"limits": {"cpu": "1", **DEVICE}, "requests": DEVICE},
            securityContext={"capabilities": {"add": ["SYS_ADMIN"]}},
        )
    assert after == of_kind(kind, {"containers": [named("side"), changed], "volumes": []})


def test_nothing_is_shared_with_the_input() -> None:
    given = pod(named(env=[{"name": "A", "value": "1"}]))
    after = allow_fuse(given)
    after["spec"]["containers"][0]["env"][0]["value"] = "2"
    assert given["spec"]["containers"][0]["env"][0]["value"] == "1"


def test_the_container_is_the_only_one_or_primary_or_named() -> None:
    def changed(template: dict[str, Any], container: str | None = None) -> list[str]:
        spec = allow_fuse(template, container=container)["spec"]
        every = [*spec["containers"], *spec.get("initContainers", [])]
        return [each["name"] for each in every if "securityContext" in each]

    assert changed(pod(named("any"))) == ["any"]
    assert changed(pod(named("a"), named("primary"))) == ["primary"]
    assert changed(pod(named("a"), named("b")), "b") == ["b"]
    assert changed(pod(named("a"), initContainers=[named("cowfs")]), "cowfs") == ["cowfs"]
    for container in (None, "absent"):
        with pytest.raises(ValueError, match="there are: a, b") as refused:
            allow_fuse(pod(named("a"), named("b")), container=container)
        assert isinstance(refused.value, InvalidInputError)
        assert "container=" in refused.value.hint


@pytest.mark.parametrize(
    ("container", "of_pod", "privileged", "said"),
    [
        ({"securityContext": {"privileged": False}}, {}, True, "privileged: false"),
        ({"securityContext": {"allowPrivilegeEscalation": False}}, {}, True, "allowPrivilegeEscalation: false"),
        ({"securityContext": {"capabilities": {"drop": ["SYS_ADMIN"]}}}, {}, False, "drops the capability"),
        ({"securityContext": {"capabilities": {"drop": ["CAP_SYS_ADMIN"]}}}, {}, False, "drops the capability"),
        ({"securityContext": {"allowPrivilegeEscalation": False, "runAsUser": 1000}}, {}, False, "fusermount3"),
        ({"securityContext": {"allowPrivilegeEscalation": False}}, {"runAsNonRoot": True}, False, "fusermount3"),
        ({"resources": {"limits": {"smarter-devices/fuse": 0}}}, {}, False, "0 of smarter-devices/fuse"),
        ({"resources": {"requests": {"smarter-devices/fuse": "0"}}}, {}, False, "0 of smarter-devices/fuse"),
        ({"resources": {"requests": DEVICE, "limits": {"smarter-devices/fuse": "2"}}}, {}, False, "1 and 2 of"),
    ],
)
def test_contradictions_are_refused(
    container: dict[str, Any], of_pod: dict[str, Any], privileged: bool, said: str
) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        allow_fuse(pod(named(**container), securityContext=of_pod), privileged=privileged)
    assert isinstance(refused.value, InvalidInputError)
    assert refused.value.hint


@pytest.mark.parametrize(
    "context",
    [
        {"capabilities": {"add": ["CAP_SYS_ADMIN"]}},
        {"capabilities": {"add": ["ALL"]}},
        {"capabilities": {"add": ["NET_ADMIN", "SYS_ADMIN"], "drop": ["ALL"]}},
        {"allowPrivilegeEscalation": False, "runAsUser": 0, "capabilities": {"add": ["SYS_ADMIN"]}},
    ],
)
def test_what_permits_a_mount_is_left_as_it_is(context: dict[str, Any]) -> None:
    after = allow_fuse(pod(named(securityContext=context), securityContext={"runAsUser": 1000}))
    assert after["spec"]["containers"][0]["securityContext"] == context


def test_another_resource_and_another_amount() -> None:
    given = pod(named(resources={"limits": {"github.com/fuse": "2"}}))
    resources = allow_fuse(given, resource="github.com/fuse")["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"github.com/fuse": "2"}, "requests": {"github.com/fuse": "2"}}


def test_what_has_no_pod_is_refused() -> None:
    for template in ({"kind": "ConfigMap", "data": {}}, client.V1ConfigMap(data={})):
        with pytest.raises(ValueError, match="no pod in it"):
            allow_fuse(template)
    with pytest.raises(ValueError, match="a str is not a pod template"):
        allow_fuse("pod.yaml")


# -- models


def spec() -> Any:
    return client.V1PodSpec(
        containers=[
            client.V1Container(
                name="primary",
                image="i",
                env=[client.V1EnvVar(name="A", value="1")],
                liveness_probe=client.V1Probe(http_get=client.V1HTTPGetAction(port=8080)),
                resources=client.V1ResourceRequirements(limits={"cpu": "1"}),
            )
        ],
        termination_grace_period_seconds=60,
    )


def models() -> list[Any]:
    template = client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(name="t"), spec=spec())
    job = client.V1JobSpec(template=template)
    return [
        spec(),
        template,
        client.V1Pod(metadata=client.V1ObjectMeta(name="p"), spec=spec()),
        client.V1PodTemplate(template=template),
        client.V1Job(spec=job),
        client.V1CronJob(
            spec=client.V1CronJobSpec(schedule="* * * * *", job_template=client.V1JobTemplateSpec(spec=job))
        ),
    ]


@pytest.mark.parametrize("index", range(6))
@pytest.mark.parametrize("privileged", [False, True])
def test_a_model_says_what_the_dict_says(index: int, privileged: bool) -> None:
    given = models()[index]
    after = allow_fuse(given, privileged=privileged)
    assert type(after) is type(given)
    assert given == models()[index]
    assert allow_fuse(after, privileged=privileged) == after
    with client.ApiClient() as api:
        plain = [api.sanitize_for_serialization(each) for each in (given, after)]
    assert plain[0] != plain[1] == allow_fuse(plain[0], privileged=privileged)


def test_a_contradiction_in_a_model_is_refused() -> None:
    given = spec()
    given.containers[0].security_context = client.V1SecurityContext(privileged=False)
    with pytest.raises(ValueError, match="privileged: false"):
        allow_fuse(given, privileged=True)


# -- files

MANIFESTS = """\
# comments stay
apiVersion: v1
kind: ConfigMap  # here too
metadata: {name: c}
data: {x: "y",   z: 010}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train, annotations: {at: 2026-01-01, until: 12:30}}
spec:
  template:
    spec:
      securityContext: &root {runAsUser: 0}
      containers:
      - name: main
        securityContext: *root
        env: [{name: A, value: "1"}, {name: B, value: 'true'}, {name: C, value: yes please}]
        args:
        - |
          several

          lines
      volumes: [{name: v, secret: {defaultMode: 0644}}]
---
---
kind: Service
"""


def test_documents_without_a_pod_stay_byte_for_byte() -> None:
    text, changed = allow_fuse_in_manifests(MANIFESTS)
    assert changed == ["Job/train"]
    first, job, *rest = text.split("---\n")
    assert [first, *rest] == [each for each in MANIFESTS.split("---\n") if "Job" not in each]
    for kept in (
        "at: 2026-01-01\n",
        "until: 12:30\n",
        'value: "1"',
        "value: 'true'",
        "value: yes please",
        "mode: 0644",
    ):
        assert kept.lower() in job.lower()
    assert "|\n          several\n\n          lines\n" in job
    assert job.count("runAsUser") == 2, "the pod's own context is not that of the container"
    assert '"1"\n' in job.partition("smarter-devices/fuse: ")[2]
    assert allow_fuse_in_manifests(text) == (text, [])


def test_a_changed_document_says_what_allow_fuse_says() -> None:
    import yaml

    text, _ = allow_fuse_in_manifests(MANIFESTS, privileged=True)
    before, after = (list(yaml.safe_load_all(each)) for each in (MANIFESTS, text))
    assert after[1] == allow_fuse(before[1], privileged=True) != before[1]


def test_items_of_a_list_are_changed() -> None:
    import yaml

    given = {"kind": "List", "items": [{"kind": "ConfigMap"}, pod(named("a")), of_kind("Job", pod(named("b"))["spec"])]}
    text, changed = allow_fuse_in_manifests(yaml.safe_dump(given))
    assert changed == ["Pod/p", "Job/?"]
    config, *pods = given["items"]
    assert yaml.safe_load(text)["items"] == [config, *map(allow_fuse, pods)]


@pytest.mark.parametrize("text", ["", "# nothing\n", "%YAML 1.1\n---\nkind: Service\n", "kind: Service\n...\n", "[]\n"])
def test_files_without_a_pod_stay(text: str) -> None:
    assert allow_fuse_in_manifests(text) == (text, [])


@pytest.mark.parametrize("text", ["{{ .Values.x }}\n", "a: [\n", "a: !Ref x\n", "a: \x00\n"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a manifest in YAML"):
        allow_fuse_in_manifests(text)


def test_a_refusal_names_the_document() -> None:
    import yaml

    given = yaml.safe_dump_all([pod(named("a")), {**pod(named("a"), named("b")), "kind": "Pod"}])
    with pytest.raises(ValueError, match="Pod/p: the pod has not exactly one container, and none is named 'primary'"):
        allow_fuse_in_manifests(given)


@pytest.mark.parametrize(
    "text",
    [
        "kind: Pod\nspec: &a\n  template: *a\n",
        "x: " + "[" * 3000,
        "spec:\n  containers: [{name: c}]\nx: !!timestamp foo\n",
        "spec:\n  containers: [1]\n",
        "spec:\n  containers: [{name: c, securityContext: x}]\n",
    ],
)
def test_malformed_manifests_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        allow_fuse_in_manifests(text)


def test_aliases_of_aliases_take_no_long_time() -> None:
    """Compared one by one, these are 9**40 entries."""
    levels = [f"l{at}: &l{at} [{', '.join([f'*l{at - 1}' if at else 'x'] * 9)}]" for at in range(40)]
    text = "\n".join([*levels, "kind: Pod", "spec:", "  containers: [{name: c}]", ""])
    assert allow_fuse_in_manifests(text).changed == ["Pod/?"]
