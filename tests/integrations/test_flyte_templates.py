"""Pod templates of the real flyte."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import flyte
import pytest
from kubernetes import client

from cowfs import MountOptions
from cowfs.errors import InvalidInputError
from cowfs.integrations.flyte import environment, image, pod
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


# -- what cowfs adds for Flyte


def test_a_pod_may_mount_and_has_time_to_commit() -> None:
    after: Any = pod()
    assert after.pod_spec.termination_grace_period_seconds == 300
    assert plain(after) == plain(flyte.PodTemplate().allow_fuse().with_termination_grace_period(300))
    assert only_container(pod(fuse="privileged")).security_context.privileged
    assert only_container(pod(resource="github.com/fuse")).resources.limits == {"github.com/fuse": "1"}
    given = templates()[2]
    assert plain(pod(given, grace="5m")) == plain(pod(given, grace="5min"))
    assert plain(pod(given, grace="1h")) == plain(given.allow_fuse().with_termination_grace_period(3600))
    assert plain(given) == plain(templates()[2])


@pytest.mark.parametrize(
    ("grace", "seconds"), [(7, 7), ("90s", 90), ("2 min", 120), ("2m", 120), ("1h", 3600), (timedelta(minutes=1), 60)]
)
def test_a_grace_period_is_written_as_people_do(grace: Any, seconds: int) -> None:
    template: Any = pod(grace=grace)
    assert template.pod_spec.termination_grace_period_seconds == seconds


def test_mistakes_in_a_pod_are_refused() -> None:
    for grace in ("soon", -1, "5 weeks", timedelta(seconds=-1)):
        with pytest.raises(InvalidInputError, match="grace is"):
            pod(grace=grace)
    with pytest.raises(InvalidInputError, match="fuse is 'broker'"):
        pod(fuse="broker")  # type: ignore[arg-type]


def test_an_image_has_cowfs_and_fusermount(tmp_path: Path) -> None:
    base = flyte.Image.from_debian_base(name="x")
    layers: Any = image(base)._layers
    *_, fuse, packages = layers
    assert (fuse.packages, packages.packages) == (("fuse3",), ("cowfs-volumes",))
    wheel = tmp_path / "cowfs_volumes-0.1.0-py3-none-any.whl"
    with pytest.raises(InvalidInputError, match="there is no wheel"):
        image(base, cowfs=wheel)
    wheel.write_bytes(b"")
    layers = image(base, cowfs=str(wheel))._layers
    *_, copied, command = layers
    assert (copied.src, copied.dst) == (wheel, "/opt/cowfs/")
    assert command.commands == (f"uv pip install /opt/cowfs/{wheel.name}",)


def test_the_environment_of_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment() == {}
    found = environment(store="s3://bucket/x", trusted_endpoints=["https://a.example", "b.example"], cache_size="1GiB")
    assert found == {
        "COWFS_STORE": "s3://bucket/x",
        "COWFS_TRUSTED_ENDPOINTS": "https://a.example,b.example",
        "COWFS_CACHE_SIZE": f"{1 << 30}B",
    }
    monkeypatch.setenv("COWFS_CACHE_SIZE", found["COWFS_CACHE_SIZE"])
    assert MountOptions().cache_size_bytes == 1 << 30
    assert MountOptions(cache_size=5).cache_size_bytes == 5
    for variables in ({"trusted_endpoints": "https://a.example"}, {"cache_size": "much"}):
        with pytest.raises(InvalidInputError):
            environment(**variables)
