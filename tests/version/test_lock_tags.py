"""Tags of locks are told from all other tags by their names."""

from __future__ import annotations

import pytest

from cowfs.base.ids import VersionId
from cowfs.format import keys
from cowfs.version.names import lock_tags

pytestmark = pytest.mark.quick

VERSION = VersionId(bytes(range(32)))


@pytest.mark.parametrize("project", ["digits-3fa9c1", "a", "-_Z", "x" * 64])
def test_a_tag_of_a_lock_is_recognised_and_is_a_tag_name(project: str) -> None:
    name = lock_tags.lock_tag(project, VERSION)
    assert keys.check_tag_name(name) == name
    assert lock_tags.parse_project(name) == project


@pytest.mark.parametrize(
    "name",
    [
        *("lock", "v1", "lock.a", "lock.a.000102030405x", "lock.a.0001020304", "lock..000102030405"),
        *("lock.a.b.000102030405", "lock.a.00010203040G", "xlock.a.000102030405", "lock.a.000102030405\n"),
        f"lock.{'x' * 65}.000102030405",
    ],
)
def test_other_tags_are_not(name: str) -> None:
    assert lock_tags.parse_project(name) is None
