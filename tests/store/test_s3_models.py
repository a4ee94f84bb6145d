"""What is left of botocore's descriptions says the same about what we ask for."""

from __future__ import annotations

import json
from typing import Any

import botocore.session
import pytest
from botocore.loaders import Loader
from botocore.model import Shape
from botocore.regions import EndpointResolver

from cowfs.store.s3_models import OPERATIONS, SERVICES, use_small_models

pytestmark = pytest.mark.quick


def small_session() -> botocore.session.Session:
    session = botocore.session.Session()
    use_small_models(session)
    return session


def small_loader() -> Loader:
    return small_session().get_component("data_loader")


def described(shape: Shape | None, above: tuple[str, ...] = ()) -> Any:
    """All that a request or an answer is made of, without its documentation."""
    if shape is None or shape.name in above:
        return shape and shape.name
    inside = (*above, shape.name)
    members = getattr(shape, "members", None) or {
        part: getattr(shape, part) for part in ("member", "key", "value") if hasattr(shape, part)
    }
    fields = {name: described(member, inside) for name, member in members.items()}
    return shape.name, shape.type_name, dict(shape.serialization), dict(shape.metadata), fields


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_an_operation_is_described_as_before(operation: str) -> None:
    full = botocore.session.Session().get_service_model("s3").operation_model(operation)
    small = small_session().get_service_model("s3").operation_model(operation)
    assert small.http == full.http
    for part in ("input_shape", "output_shape"):
        assert described(getattr(small, part)) == described(getattr(full, part))
    assert [described(shape) for shape in small.error_shapes] == [described(shape) for shape in full.error_shapes]


def test_endpoints_are_as_before() -> None:
    full = EndpointResolver(Loader().load_data("endpoints"))
    small = EndpointResolver(small_loader().load_data("endpoints"))
    assert small.get_available_partitions() == full.get_available_partitions()
    for partition in full.get_available_partitions():
        for service in SERVICES:
            regions = full.get_available_endpoints(service, partition, allow_non_regional=True)
            assert small.get_available_endpoints(service, partition, allow_non_regional=True) == regions
            for region in regions:
                found = small.construct_endpoint(service, region, partition)
                assert found == full.construct_endpoint(service, region, partition)


def test_little_is_left() -> None:
    def length(loader: Loader) -> int:
        described = [loader.load_service_model("s3", "service-2"), loader.load_data("endpoints")]
        return sum(len(json.dumps(found)) for found in described)

    assert length(small_loader()) * 10 < length(Loader())


def test_other_services_keep_their_operations() -> None:
    """Credentials may come from them."""
    full = Loader().load_service_model("sts", "service-2")
    small = small_loader().load_service_model("sts", "service-2")
    assert small["operations"].keys() == full["operations"].keys()
    assert small["shapes"].keys() == full["shapes"].keys()
    assert not small["documentation"]


def test_what_is_not_there_is_not_found() -> None:
    assert small_loader().file_loader.load_file("/nowhere/service-2") is None
