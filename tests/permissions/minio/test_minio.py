"""The policies of docs/guide/permissions.md, evaluated by MinIO's own code.

`make test-integrations` runs it. The requests are those that cowfs makes
(`tests.permissions.policies`). Needs Go, which fetches MinIO's module through its proxy.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.permissions import policies
from tests.permissions.policies import COLLECTOR, NOBODY, Asked
from tests.permissions.test_seaweedfs import ROLES, is_expected
from tests.seaweedfs import SeaweedFS

pytestmark = [pytest.mark.s3, pytest.mark.slow]

Check = Callable[[Iterable[str], list[Asked]], list[bool]]


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Whether the policies of these titles, attached to one user, allow each request."""
    program = tmp_path_factory.mktemp("go") / "policycheck"
    subprocess.run(["go", "build", "-o", program, "."], cwd=Path(__file__).parent, check=True)
    recipes = policies.recipes("cowfs")

    def ask(titles: Iterable[str], requests: list[Asked]) -> list[bool]:
        question = {
            "policies": [recipes[title] for title in titles],
            "requests": [
                {"action": each.action, "bucket": each.bucket, "key": each.key, "prefix": each.prefix}
                for each in requests
            ],
        }
        done = subprocess.run([program], input=json.dumps(question), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        allowed: list[bool] = json.loads(done.stdout)
        return allowed

    return ask


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> list[Asked]:
    """Of all roles, and two that no role makes."""
    with SeaweedFS(tmp_path_factory.mktemp("open")) as server:
        recorded = policies.record(server, tmp_path_factory.mktemp("recorded") / "homes")
    others = [
        Asked("s3:DeleteObject", "cowfs", f"{policies.PREFIX}/volumes/data/head/0"),
        Asked("s3:PutObject", "cowfs", f"{policies.PREFIX}/keys/0"),
    ]
    return [*(each for asked in recorded.values() for each in asked), *others]


@pytest.mark.parametrize("role", ROLES)
def test_minio_allows_what_a_role_needs_and_no_more(check: Check, requests: list[Asked], role: str) -> None:
    for asked, is_allowed in zip(requests, check([role], requests), strict=True):
        assert is_allowed == is_expected(role, asked), (role, asked)


def test_minio_lets_nobody_deletes_win(check: Check, requests: list[Asked]) -> None:
    for asked, is_allowed in zip(requests, check([COLLECTOR, NOBODY], requests), strict=True):
        assert is_allowed == (asked.action != "s3:DeleteObject"), asked


def test_other_prefixes_and_buckets_stay_closed(check: Check) -> None:
    elsewhere = [
        Asked(action, bucket, key)
        for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")
        for bucket, key in (("cowfs", f"{policies.PREFIX}-2/packs/00/0"), ("other", f"{policies.PREFIX}/packs/00/0"))
    ]
    for role in ROLES:
        assert not any(check([role], elsewhere)), role
