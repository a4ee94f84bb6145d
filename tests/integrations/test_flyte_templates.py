"""Pod templates of the real flyte."""

from __future__ import annotations

from typing import Any

import flyte
import pytest
from kubernetes import client

from cowfs.integrations.kubernetes import allow_fuse

pytestmark = pytest.mark.quick


def templates() -> list[flyte.PodTemplate]:
    spec = client.V1PodSpec(
        containers=[
            client.V1Container(name="side", image="s"),
            client.V1Container(
                name="main",
                image="m",
                resources=client.V1ResourceRequirements(limits={"cpu": "1"}, requests={"cpu": "1"}),
            ),
        ]
    )
    return [
        flyte.PodTemplate(),
        flyte.PodTemplate(labels={"a": "b"}, annotations={"c": "d"}).with_termination_grace_period(60),
        flyte.PodTemplate(pod_spec=spec, primary_container_name="main"),
        flyte.PodTemplate(pod_spec=spec),
    ]


def plain(template: flyte.PodTemplate) -> Any:
    with client.ApiClient() as api:
        spec = api.sanitize_for_serialization(template.pod_spec)
    return spec, template.primary_container_name, template.labels, template.annotations


def only_container(template: flyte.PodTemplate) -> Any:
    assert template.pod_spec is not None
    (container,) = template.pod_spec.containers
    return container


@pytest.mark.parametrize("index", range(4))
def test_the_result_is_that_of_flyte(index: int) -> None:
    given = templates()[index]
    after = allow_fuse(given)
    assert isinstance(after, flyte.PodTemplate)
    assert plain(given) == plain(templates()[index])
    assert plain(after) == plain(given.allow_fuse())
    assert plain(allow_fuse(after)) == plain(after)
    assert after.to_k8s_pod() == given.allow_fuse().to_k8s_pod()


def test_another_resource_is_requested_and_annotated() -> None:
    after = allow_fuse(flyte.PodTemplate(), resource="github.com/fuse")
    container = only_container(after)
    assert container.resources.limits == container.resources.requests == {"github.com/fuse": "1"}
    assert after.annotations == {"flyte.org/capability-fuse": "true"}


def test_privileged_needs_no_device() -> None:
    after = allow_fuse(flyte.PodTemplate(), privileged=True)
    container = only_container(after)
    assert container.security_context.privileged
    assert container.resources is None


def test_contradictions_are_refused() -> None:
    context = client.V1SecurityContext(privileged=False)
    spec = client.V1PodSpec(containers=[client.V1Container(name="primary", security_context=context)])
    with pytest.raises(ValueError, match="privileged: false"):
        allow_fuse(flyte.PodTemplate(pod_spec=spec), privileged=True)
    with pytest.raises(ValueError, match="no container 'absent'"):
        allow_fuse(flyte.PodTemplate(), container="absent")
