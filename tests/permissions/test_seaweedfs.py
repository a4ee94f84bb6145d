"""The policies of docs/guide/permissions.md on a server that enforces them: each role does its work
with its own policy, and is refused the others' requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from cowfs.errors import AccessDeniedError
from tests.permissions import policies
from tests.permissions.policies import COLLECTOR, CREATE_ONLY, NOBODY, READER, SOME, WORK, WRITER, Asked
from tests.seaweedfs import SeaweedFS

pytestmark = [pytest.mark.s3, pytest.mark.slow]

ROLES = (READER, WRITER, SOME, COLLECTOR)
SECRET = "not-a-secret-either"
LIST = "s3:ListBucket"
OWN = "RemoveOwnRecords"
STRICT = "Strict writer"
OWN_RECORDS = ("pins", "probe")
"""What writers put and delete."""


class Guarded(SeaweedFS):
    """A SeaweedFS with an identity for each role, of the role's name without spaces."""

    def _command(self) -> list[str]:
        recipes = policies.recipes(self.bucket)
        admin = {
            "name": "admin",
            "credentials": [dict(zip(("accessKey", "secretKey"), self.credentials.values(), strict=True))],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        strict = dict(recipes[WRITER], Statement=[each for each in recipes[WRITER]["Statement"] if each["Sid"] != OWN])
        others = [_identity("kept", COLLECTOR, NOBODY), _identity("strict", STRICT)]
        by_actions = [
            {
                **each,
                "name": f"{each['name']}-by-actions",
                "credentials": [{"accessKey": f"{each['name']}-by-actions", "secretKey": SECRET}],
            }
            for each in policies.identities(self.bucket)
        ]
        configuration = {
            "identities": [admin, *(_identity(_key(role), role) for role in ROLES), *others, *by_actions],
            "policies": [
                {"name": _key(title), "content": json.dumps(policy)}
                for title, policy in {**recipes, STRICT: strict}.items()
            ],
        }
        path = self.directory / "s3.json"
        path.write_text(json.dumps(configuration))
        return [*super()._command(), f"-s3.config={path}"]


def _key(role: str) -> str:
    return role.lower().replace(" ", "-")


def _identity(name: str, *titles: str) -> dict[str, Any]:
    return {
        "name": name,
        "credentials": [{"accessKey": name, "secretKey": SECRET}],
        "actions": [],
        "policyNames": [_key(title) for title in titles],
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with Guarded(tmp_path_factory.mktemp("guarded")) as started:
        yield started


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Asked]]:
    """From a server of its own, by a user who may do everything."""
    with SeaweedFS(tmp_path_factory.mktemp("open")) as everything:
        return policies.record(everything, tmp_path_factory.mktemp("recorded") / "homes")


def _client(server: SeaweedFS, key: str) -> Any:
    session = botocore.session.Session()
    session.set_credentials(key, SECRET)
    return session.create_client(
        "s3", "us-east-1", endpoint_url=server.endpoint, config=Config(retries={"max_attempts": 0})
    )


def _is_allowed(client: Any, asked: Asked) -> bool:
    """Whether the server lets the request through; that the object is absent is no refusal."""
    requests = {
        "s3:GetObject": lambda: client.get_object(Bucket=asked.bucket, Key=asked.key),
        "s3:ListBucket": lambda: client.list_objects_v2(Bucket=asked.bucket, Prefix=asked.prefix, MaxKeys=1),
        "s3:PutObject": lambda: client.put_object(Bucket=asked.bucket, Key=f"{asked.key}-x", Body=b""),
        "s3:DeleteObject": lambda: client.delete_object(Bucket=asked.bucket, Key=f"{asked.key}-x"),
    }
    try:
        requests[asked.action]()
    except ClientError as error:
        if error.response["Error"]["Code"] == "AccessDenied":
            return False
        assert error.response["Error"]["Code"] in ("NoSuchKey", "404"), error
    return True


def _changes(recorded: dict[str, list[Asked]]) -> list[Asked]:
    """One request of each action in each folder."""
    made = [each for asked in recorded.values() for each in asked if each.action in ("s3:PutObject", "s3:DeleteObject")]
    return list({(each.action, each.folder): each for each in made}.values())


def test_each_role_does_its_work_with_its_policy(server: Guarded, tmp_path: Path) -> None:
    with policies.place(tmp_path / "admin", server, server.endpoint, server.credentials) as admin:
        done = admin.run(WORK["store"])
        assert done.returncode == 0, done.stderr
    for role in ROLES:
        credentials = {"AWS_ACCESS_KEY_ID": _key(role), "AWS_SECRET_ACCESS_KEY": SECRET}
        with policies.place(tmp_path / _key(role), server, server.endpoint, credentials) as user:
            done = user.run(WORK[role])
            assert done.returncode == 0, f"{role}: {done.stdout}{done.stderr}"
    credentials = {"AWS_ACCESS_KEY_ID": "strict", "AWS_SECRET_ACCESS_KEY": SECRET}
    with policies.place(tmp_path / "strict", server, server.endpoint, credentials) as user:
        done = user.run(WORK[WRITER].replace("work", "strict").replace("other", "strict-2"))
        assert done.returncode == 0, done.stderr
        assert "could not remove the pin" in done.stderr
    credentials = {"AWS_ACCESS_KEY_ID": "kept", "AWS_SECRET_ACCESS_KEY": SECRET}
    with policies.place(tmp_path / "kept", server, server.endpoint, credentials) as user:
        done = user.run(f"cowfs prune data --keep-last 1 -y\n{WORK[COLLECTOR]}")
        assert done.returncode != 0
        assert "s3:DeleteObject" in done.stderr, "the error names the permission"
        assert user.run("cowfs log data && cowfs verify").returncode == 0


def test_what_a_role_may_not_do_is_refused_with_a_clear_error(server: Guarded, tmp_path: Path) -> None:
    with policies.place(tmp_path / "admin", server, server.endpoint, server.credentials) as admin:
        assert admin.run("cowfs create base; echo a > a; cowfs cp a base:a").returncode == 0
    to_put = ["cowfs tag base no", "cowfs cp a base:b", "cowfs delete base -y", "cowfs mount base mnt"]
    refused = {
        READER: ["cowfs create no", "cowfs fork base no", "cowfs gc -y", *to_put],
        WRITER: ["cowfs gc -y"],
        SOME: ["cowfs create elsewhere", *to_put],
    }
    for role, commands in refused.items():
        credentials = {"AWS_ACCESS_KEY_ID": _key(role), "AWS_SECRET_ACCESS_KEY": SECRET}
        with policies.place(tmp_path / _key(role), server, server.endpoint, credentials) as user:
            (user.home / "a").write_text("b")
            for command in commands:
                done = user.run(command)
                assert done.returncode == AccessDeniedError.exit_code, (role, command, done.stderr)
                assert "It has to allow s3:PutObject here" in done.stderr, (role, command, done.stderr)
            assert user.run("cowfs cat base:a").stdout == "a\n", "nothing has changed"


@pytest.mark.parametrize("role", ROLES)
def test_the_server_refuses_the_requests_of_other_roles(
    server: Guarded, recorded: dict[str, list[Asked]], role: str
) -> None:
    client = _client(server, _key(role))
    for asked in _changes(recorded):
        assert _is_allowed(client, asked) == is_expected(role, asked), (role, asked)
    client.close()


@pytest.mark.parametrize("role", [READER, WRITER, COLLECTOR])
def test_actions_of_identities_come_near(server: Guarded, recorded: dict[str, list[Asked]], role: str) -> None:
    """A writer may delete where it may write: these servers have no other action."""
    client = _client(server, f"{_key(role)}-by-actions")
    reads = {(each.action, each.folder): each for each in recorded[role] if each.action in ("s3:GetObject", LIST)}
    for asked in [*reads.values(), *_changes(recorded)]:
        may_write = is_expected(role, replace(asked, action="s3:PutObject"))
        expected = may_write if asked.action in ("s3:PutObject", "s3:DeleteObject") else True
        assert _is_allowed(client, asked) == expected, (role, asked)
    client.close()


def test_nobody_deletes_wins_over_a_role(server: Guarded, recorded: dict[str, list[Asked]]) -> None:
    client = _client(server, "kept")
    changes = _changes(recorded)
    assert any(each.action == "s3:DeleteObject" for each in changes)
    for asked in changes:
        assert _is_allowed(client, asked) == (asked.action == "s3:PutObject"), asked
    client.close()


def is_expected(role: str, asked: Asked) -> bool:
    """What the page promises."""
    folder = asked.folder.split("/")[0]
    if asked.action in ("s3:GetObject", "s3:ListBucket"):
        return True
    if role == READER:
        return False
    if asked.action == "s3:DeleteObject":
        return folder in OWN_RECORDS or (role == COLLECTOR and folder in ("packs", "versions", "gc"))
    if role == COLLECTOR:
        return True
    if role == SOME and folder == "volumes":
        return asked.folder.startswith("volumes/train-")
    return folder in ("packs", "versions", "volumes", "pins", "probe")


def test_the_work_shows_all_kinds_of_requests(recorded: dict[str, list[Asked]]) -> None:
    """A policy could be too narrow or too wide where no request was recorded."""
    deleted = {each.folder for each in recorded[COLLECTOR] if each.action == "s3:DeleteObject"}
    assert {"packs", "versions", "probe"} <= deleted
    assert {each.action for each in recorded[READER]} == {"s3:GetObject", "s3:ListBucket"}
    for role in ROLES:
        refused = [each for each in recorded[role] if not is_expected(role, each)]
        assert not refused, f"{role} needs more than the page gives"


def test_records_are_put_as_the_create_only_statement_demands(recorded: dict[str, list[Asked]]) -> None:
    (statement,) = policies.recipes("cowfs")[CREATE_ONLY]["Statement"]
    patterns = [resource.removeprefix("arn:aws:s3:::cowfs/") for resource in statement["Resource"]]
    matched = set()
    for each in {each for asked in recorded.values() for each in asked if each.action == "s3:PutObject"}:
        for pattern in patterns:
            if _matches(each.key, pattern):
                matched.add(pattern)
                assert each.is_create_only, f"{each.key} would be refused"
    assert matched == set(patterns)


def _matches(key: str, pattern: str) -> bool:
    """As in a policy: `*` also stands for slashes."""
    first, *others = pattern.split("*")
    if not key.startswith(first):
        return False
    at = len(first)
    for part in others:
        at = key.find(part, at) + len(part) if part else len(key)
        if at < len(part):
            return False
    return True
