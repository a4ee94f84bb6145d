"""Where S3's requests go, whatever the environment says, and with which credentials."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from cowfs.errors import AccessDeniedError, InvalidInputError
from cowfs.store import Access, Credentials, Identity, open_store
from cowfs.store.backends.s3 import s3_store
from cowfs.store.backends.s3.s3_errors import Malformed
from cowfs.store.backends.s3.s3_place import S3Place, place_of
from cowfs.store.backends.s3.s3_store import S3Store
from cowfs.store.credentials import aws
from tests.store.scripted_server import STORED, Answer, Request, ScriptedServer, response

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "cowfs-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret-at-all")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.parametrize(
    ("bucket", "endpoint", "region", "path_style", "address"),
    [
        ("data", None, None, None, "https://data.s3.us-east-1.amazonaws.com"),
        ("data", None, "eu-west-3", None, "https://data.s3.eu-west-3.amazonaws.com"),
        ("data", None, "cn-north-1", None, "https://data.s3.cn-north-1.amazonaws.com.cn"),
        ("data", None, None, True, "https://s3.us-east-1.amazonaws.com/data"),
        ("my.data", None, None, None, "https://s3.us-east-1.amazonaws.com/my.data"),
        ("data", "http://minio:9000", None, None, "http://minio:9000/data"),
        ("data", "http://minio:9000/", None, False, "http://data.minio:9000"),
        ("data", "https://host/base", "x", None, "https://host/base/data"),
    ],
)
def test_addresses(
    bucket: str, endpoint: str | None, region: str | None, path_style: bool | None, address: str
) -> None:
    place = place_of(bucket, "", endpoint, region, path_style=path_style)
    assert (place.address, place.region) == (address, region or "us-east-1")
    assert place.is_amazons == (endpoint is None)


@pytest.mark.parametrize("endpoint", ["host", "ftp://host", "http://[::1", "http://"])
def test_what_is_no_endpoint(endpoint: str) -> None:
    with pytest.raises(Malformed):
        place_of("data", "", endpoint, None, path_style=None)
    store = S3Store(bucket="data", prefix="", url="s3://data", endpoint=endpoint, region=None)
    with pytest.raises(InvalidInputError):
        store.get("key")


def test_settings_of_the_environment_and_of_the_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://all:1")
    assert aws.settings() == aws.Settings("eu-west-1", "http://all:1", None)
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert aws.settings() == aws.Settings("eu-west-1", None, None)
    (tmp_path / "config").write_text(
        "[default]\nregion = eu-west-2\nendpoint_url = http://configured:1\ns3 =\n  addressing_style = virtual\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for name in ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    assert aws.settings() == aws.Settings("eu-west-2", "http://configured:1", "virtual")
    assert place_of("data", "", None, None, path_style=None).address == "http://data.configured:1"


def value(request: Request) -> Answer:
    return (STORED if request.method == "PUT" else response("200 OK", b"value")), True


def url(server: ScriptedServer) -> str:
    return f"s3://cowfs;endpoint={quote(server.endpoint, safe='')};region=us-east-1/stores"


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_the_urls_endpoint_wins_over_variables(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    with ScriptedServer(value) as named, ScriptedServer(value) as other:
        monkeypatch.setenv(variable, other.endpoint)
        monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false")
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
        store = open_store(url(named))
        assert store.get("key") == b"value"
        store.close()
        assert [request.target for request in named.requests] == ["/cowfs/stores/key"]
        assert "cowfs-tests" in named.requests[0].headers["authorization"]
        assert not other.requests


def test_keys_of_a_profile_are_found_by_botocore(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[work]\naws_access_key_id = of-the-profile\naws_secret_access_key = not-a-secret-at-all\n"
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_PROFILE", "work")
    with ScriptedServer(value) as server:
        store = open_store(url(server))
        store.get("key")
        store.close()
        assert "Credential=of-the-profile/" in server.requests[0].headers["authorization"]
    monkeypatch.setenv("AWS_PROFILE", "no-such-profile")
    with ScriptedServer(value) as server:
        store = open_store(url(server))
        with pytest.raises(AccessDeniedError, match=r"no-such-profile(.|\n)*Correct AWS_PROFILE"):
            store.get("key")
        assert not server.requests
        store.close()


def test_each_request_is_signed_with_the_newest_credentials() -> None:
    """Over the same connection: nothing is made anew."""
    identity = Identity(Fixed(), Credentials("first-key", "not-a-secret-at-all"))
    with ScriptedServer(value) as server:
        store = open_store(url(server), access=Access(identity=identity))
        store.get("key")
        identity.supply(Credentials("second-key", "not-a-secret-at-all", "a-session-token"))
        store.get("key")
        store.close()
        signed = [request.headers["authorization"] for request in server.requests]
        assert ["first-key" in signed[0], "second-key" in signed[1]] == [True, True]
        assert server.requests[1].headers["x-amz-security-token"] == "a-session-token"
        assert len(server._connections) == 1


class Fixed:
    renew_s = None
    can_renew = False

    def fetch(self) -> Credentials:
        raise AssertionError("nobody asks")


def test_a_bucket_that_lies_elsewhere_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Amazon answers 301 without saying where to; a put goes there, too."""
    asked: list[str] = []

    def region_of(bucket: str) -> str:
        asked.append(bucket)
        return "eu-north-1"

    def moved(request: Request) -> Answer:
        return response("301 Moved Permanently", b"<Error><Code>PermanentRedirect</Code></Error>"), True

    with ScriptedServer(moved) as wrong, ScriptedServer(value) as right:

        def place(bucket: str, prefix: str, endpoint: str | None, region: str | None, *, path_style: object) -> S3Place:
            server = right if region == "eu-north-1" else wrong
            return S3Place(bucket, prefix, "https://s3.x.amazonaws.com", f"{server.endpoint}/cowfs", region or "x")

        monkeypatch.setattr(s3_store, "place_of", place)
        monkeypatch.setattr(s3_store, "region_of", region_of)
        store = S3Store(bucket="cowfs", prefix="", url="s3://cowfs", endpoint=None, region=None)
        store.put_if_absent("key", b"x")
        assert store.get("key") == b"value"
        store.close()
        assert (len(wrong.requests), [request.method for request in right.requests]) == (1, ["PUT", "GET"])
        assert asked == ["cowfs"]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_server_that_sends_to_https_is_told_of(status: int) -> None:
    """A get follows it, without its signature, so that the answer is a 403."""
    denied = response("403 Forbidden", b"<Error><Code>AccessDenied</Code></Error>")

    def answer(request: Request) -> Answer:
        where = (
            f"HTTP/1.1 {status} Elsewhere\r\nLocation: https://127.0.0.1{request.target}\r\nContent-Length: 0\r\n\r\n"
        )
        return denied if request.method == "GET" else where.encode(), True

    with ScriptedServer(answer) as server:
        store = open_store(url(server))
        for call in (
            lambda: store.put("key", b"x"),
            lambda: store.put_if_absent("key", b"x"),
            lambda: store.get("key"),
        ):
            with pytest.raises(InvalidInputError, match="redirects to https") as caught:
                call()
            assert "https:// in the endpoint" in caught.value.hint
        store.close()
        assert [request.method for request in server.requests] == ["PUT", "HEAD", "PUT", "GET"], "none is repeated"


def test_a_server_that_refuses_is_asked_once_whether_it_wants_https() -> None:
    with ScriptedServer(lambda _: (response("403 Forbidden"), True)) as server:
        store = open_store(url(server))
        for _ in range(3):
            with pytest.raises(AccessDeniedError):
                store.get("key")
        store.close()
        assert [request.method for request in server.requests] == ["GET", "HEAD", "GET", "GET"]


def test_a_store_with_keys_in_the_environment_loads_no_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    with ScriptedServer(value) as server:
        program = (
            f"import sys; from cowfs.store import open_store; print(open_store({url(server)!r}).get('key'))\n"
            "print(sorted({'s3fs', 'fsspec', 'botocore', 'aiohttp', 'asyncio'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "b'value'\n[]\n", done.stderr
