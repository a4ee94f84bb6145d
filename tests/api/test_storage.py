"""Storage: which store a preset means, what it refuses, and that it shows no secret."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from cowfs import storage
from cowfs.api import stores
from cowfs.api.storage import objects
from cowfs.api.storage.presets import S3Credentials
from cowfs.api.storage.resolving import access
from cowfs.base import redaction
from cowfs.blocking import Store, Volume
from cowfs.errors import AccessDeniedError, CowfsError, InvalidInputError, NotFoundError, UnavailableError
from cowfs.format.store_url import StoreUrl
from cowfs.storage import Storage
from cowfs.store.credentials import trust
from cowfs.store.origin import OriginObject
from cowfs.store.origin.contract import Origin
from cowfs.store.origin.directory import DirectoryOrigin
from cowfs.store.origin.open_origin import RepeatingOrigin
from tests.seaweedfs import SeaweedFS

SECRET = "Zq7-the-secret-of-this-test-Zq7"
KEYS: S3Credentials = {"access_key": "AKIDTESTTEST", "secret_key": SECRET}


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self) -> str:
        return SECRET


@pytest.fixture(autouse=True)
def no_endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def s3(host: str, region: str) -> str:
    return f"s3://b;endpoint=https%3A%2F%2F{host};region={region}/p/q"


@pytest.mark.quick
@pytest.mark.parametrize(
    ("made", "url"),
    [
        (storage.S3("b", "p/q", region="eu-west-1"), "s3://b;region=eu-west-1/p/q"),
        (storage.S3("b"), "s3://b"),
        (storage.R2("b", "p/q", account_id="A1b2"), s3("a1b2.r2.cloudflarestorage.com", "auto")),
        (storage.R2("b", "p/q", account_id="a1", jurisdiction="eu"), s3("a1.eu.r2.cloudflarestorage.com", "auto")),
        (storage.Wasabi("b", "p/q", region="eu-central-2"), s3("s3.eu-central-2.wasabisys.com", "eu-central-2")),
        (storage.Backblaze("b", "p/q", region="us-west-004"), s3("s3.us-west-004.backblazeb2.com", "us-west-004")),
        (storage.MinIO("b", "/p//q/", endpoint="https://m:9000/"), s3("m%3A9000", "us-east-1")),
        (storage.Hyperstack("b", "p/q"), s3("ca1.obj.nexgencloud.io", "us-east-1")),
        (storage.Hyperstack("b", "p/q", region="X", endpoint="https://x.example"), s3("x.example", "us-east-1")),
        (storage.GCS("b", "p/q"), "gs://b/p/q"),
        (storage.Azure("c", "p/q", account="acc"), "abfs://c@acc.dfs.core.windows.net/p/q"),
        (storage.Local("/srv/a b"), "file:///srv/a%20b"),
        (storage.S3("b", "a-b/-/é"), "s3://b/a-b/%2D/%C3%A9"),
    ],
)
def test_a_preset_is_its_providers_store(made: Storage, url: str) -> None:
    assert made.url == url
    assert not made.has_credentials
    assert stores.canonical_url(made) == url


@pytest.mark.quick
def test_presets_are_found_by_the_names_that_files_use() -> None:
    assert set(storage.PRESETS) == {"s3", "gcs", "r2", "wasabi", "backblaze", "minio", "hyperstack", "azure", "local"}
    assert storage.PRESETS["r2"]("b", account_id="a", **KEYS) == storage.R2("b", account_id="a", **KEYS)


@pytest.mark.quick
@pytest.mark.parametrize(
    "make",
    [
        lambda: storage.R2("b", account_id="evil.example/"),
        lambda: storage.R2("b", account_id="a", jurisdiction="evil.example#"),
        lambda: storage.Wasabi("b", region="x.evil.example"),
        lambda: storage.Backblaze("b", region="x@evil.example"),
        lambda: storage.Hyperstack("b", region="MARS-1"),
        lambda: storage.S3("b;endpoint=https://evil.example"),
        lambda: storage.S3("b/c"),
        lambda: storage.S3("b", "../c"),
        lambda: storage.MinIO("b", endpoint=""),
        lambda: storage.Azure("c", account="acc", secret_key="x", session_token="y"),
        lambda: storage.Local("s3://b"),
        lambda: Storage("s3://b;region=eu-west-1", region="eu-west-2"),
        lambda: Storage("/dir", region="eu-west-1"),
        lambda: Storage("/dir", access_key="a", secret_key="b"),
        lambda: Storage("/dir", credential_process="x"),
        lambda: Storage("s3://b", access_key="a"),
        lambda: Storage("s3://b", access_key="a", secret_key=""),
        lambda: Storage("s3://b", access_key="a", secret_key=7),  # type: ignore[arg-type]
        lambda: Storage("s3://b", session_token="a"),
        lambda: Storage("s3://b", access_key="a", secret_key=Unhashable()),
        lambda: Storage("s3://b", credential_process=" "),
        lambda: Storage("s3://b", credential_process="'"),
        lambda: Storage("gs://b", access_key="a", secret_key="b"),
        lambda: Storage("gs://b", path_style=True),
    ],
)
def test_what_does_not_go_together_is_refused_at_once(make: Callable[[], Storage]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make()
    assert caught.value.hint


@pytest.mark.quick
def test_no_secret_is_shown_or_pickled() -> None:
    plain = storage.MinIO("b", endpoint="https://m", **KEYS)
    made = replace(plain, session_token=SECRET, path_style=True, credential_process=f"tool {SECRET}")
    identity = access(made).identity
    assert identity is not None
    identity.ready()
    for value in (made, access(made), identity, identity.newest, Volume.new("v", store=made)):
        assert SECRET not in f"{value!r} {value} {value:}"
    pickled = pickle.dumps(made)
    assert SECRET.encode() not in pickled
    again = pickle.loads(pickled)
    assert (again.url, again.path_style, again.has_credentials) == (made.url, True, False)
    assert SECRET.encode() not in pickle.dumps(Volume.new("v", store=made))
    with pytest.raises(TypeError):
        pickle.dumps(identity.newest)
    assert copy.copy(made) is made
    assert copy.deepcopy([made])[0] is made
    assert replace(made, path_style=None).secret_key == SECRET
    assert hash(made) == hash(replace(made))
    assert SECRET not in redaction.redact(f"what a server may say of {SECRET}")
    del pickled
    shown = [repr(each) for each in gc.get_objects() if str(type(each).__module__).startswith("cowfs.")]
    assert not [each for each in shown if SECRET in each]


@pytest.mark.quick
def test_given_credentials_do_not_make_a_server_trusted_with_those_of_the_environment() -> None:
    made = storage.MinIO("b", endpoint="https://given.example", **KEYS)
    Volume.new("v", store=made)
    assert not trust.is_trusted(StoreUrl.parse(made.url))
    Volume.new("v", store=storage.MinIO("b", endpoint="https://named.example"))
    assert trust.is_trusted(StoreUrl.parse("s3://b;endpoint=https://named.example/x"))


@pytest.mark.quick
def test_the_server_of_a_locator_is_not_named_by_looking_at_its_volumes() -> None:
    url = "s3://b;endpoint=https://located.example/x"
    with pytest.raises(InvalidInputError, match="version, not a volume"):
        Store(url, located=True).describe("v@1")
    assert not trust.is_trusted(StoreUrl.parse(url))
    with pytest.raises(InvalidInputError, match="Storage is named by the user"):
        Store(storage=storage.Local("/s"), located=True)


@pytest.mark.quick
def test_a_storage_for_each_task_keeps_no_store_open_for_ever(tmp_path: Path) -> None:
    made = [
        storage.MinIO("b", endpoint="https://m", access_key=lambda: "a", secret_key=lambda: "b") for _ in range(100)
    ]
    assert len(set(made)) == 100
    Volume.new("v", store=storage.Local(tmp_path)).resolve()
    opened = stores.open_store(str(tmp_path))
    for each in made:
        stores._remember(each.url, replace(opened, storage=each))
    mine = [key for key in stores._open if key[2] in made]
    assert [key[2] for key in mine] == made[-stores.MOST_STORAGES :]
    for key in mine:
        del stores._open[key]


@pytest.mark.quick
def test_functions_are_called_and_awaited_also_below_a_running_loop() -> None:
    async def token() -> str:
        await anyio.lowlevel.checkpoint()
        return "token-of-a-coroutine"

    made = Storage("s3://b", access_key=lambda: "AKIDTESTTEST", secret_key=lambda: SECRET, session_token=token)
    identity = access(made).identity
    assert identity is not None

    async def below_a_loop() -> None:
        assert identity is not None
        assert identity.ready().token == "token-of-a-coroutine"

    anyio.run(below_a_loop)


@pytest.mark.quick
@pytest.mark.parametrize("returned", [None, "", 7, b"bytes", ValueError(f"secret={SECRET}")])
def test_a_function_that_has_none_is_named_without_what_it_said(returned: Any) -> None:
    def function() -> str:
        if isinstance(returned, Exception):
            raise returned
        return returned  # type: ignore[no-any-return]

    identity = access(Storage("s3://b", access_key=lambda: "AKIDTESTTEST", secret_key=function)).identity
    assert identity is not None
    with pytest.raises(AccessDeniedError, match="secret_key") as caught:
        identity.ready()
    assert SECRET not in f"{caught.value}{caught.value.hint}"


@pytest.mark.s3
@pytest.mark.parametrize("path_style", [None, True])
def test_objects_are_stored_listed_fetched_and_removed(
    seaweedfs: SeaweedFS, tmp_path: Path, path_style: bool | None
) -> None:
    access_key, secret_key = seaweedfs.credentials.values()
    made = storage.MinIO(
        seaweedfs.bucket,
        f"objects/{tmp_path.name}",
        endpoint=seaweedfs.endpoint,
        access_key=lambda: access_key,
        secret_key=secret_key,
        path_style=path_style,
    )
    check_objects(made, tmp_path)
    anyio.run(check_async, made, tmp_path)
    with replace(made, secret_key="a-wrong-secret-key") as wrong, pytest.raises(AccessDeniedError) as caught:
        wrong.ls()
    assert "Storage" in caught.value.hint


@pytest.mark.quick
def test_objects_of_a_directory(tmp_path: Path) -> None:
    made = storage.Local(tmp_path / "store")
    check_objects(made, tmp_path)
    anyio.run(check_async, made, tmp_path)


def check_objects(made: Storage, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(range(256)) * 1000)
    target.mkdir(exist_ok=True)
    with made as s, made as same:
        s.upload(source, "a/b.bin")
        assert [(each.key, each.size) for each in same.ls()] == [("a/b.bin", 256000)]
        assert (s.ls("a/"), s.ls("b")) == (same.ls(), [])
        assert s.exists("a/b.bin")
        assert not s.exists("a/c")
        for fetched in (s.download("a/b.bin", target), s.download("a/b.bin", tmp_path / "other")):
            assert fetched.read_bytes() == source.read_bytes()
        assert sorted(target.iterdir()) == [target / "b.bin"]
        for wrong in ("../x", "/x", "é", ""):
            with pytest.raises(InvalidInputError):
                s.upload(source, wrong)
        for call in (lambda: s.download("a/c", target), lambda: s.upload(tmp_path / "none", "x")):
            with pytest.raises(NotFoundError):
                call()
        with pytest.raises(CowfsError):
            s.download("a/b.bin", tmp_path / "none" / "x")
        for wrong in ("../x", "", "a//b"):
            with pytest.raises(InvalidInputError):
                s.download(wrong, tmp_path / "other")
        s.rm("a/b.bin")
        s.rm("a/b.bin")
        assert s.ls() == []


@pytest.mark.quick
def test_a_download_is_one_state_of_its_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same size; replaced between two pieces."""
    check_replaced(storage.Local(tmp_path / "store"), DirectoryOrigin, tmp_path, monkeypatch)


@pytest.mark.s3
def test_a_download_from_s3_is_one_state_of_its_object(
    seaweedfs: SeaweedFS, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access_key, secret_key = seaweedfs.credentials.values()
    place = (seaweedfs.bucket, f"replaced/{tmp_path.name}")
    made = storage.MinIO(*place, endpoint=seaweedfs.endpoint, access_key=access_key, secret_key=secret_key)
    check_replaced(made, RepeatingOrigin, tmp_path, monkeypatch)


def check_replaced(made: Storage, origin: type[Origin], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PIECE_BYTES", 1000)
    (tmp_path / "one").write_bytes(b"a" * 2500)
    (tmp_path / "other").write_bytes(b"b" * 2500)
    target, really_read, reads = tmp_path / "target", origin.read, [0]
    target.write_bytes(b"before")
    target.chmod(0o600)

    with made as s:
        s.upload(tmp_path / "one", "key")

        def read(self: Origin, found: OriginObject, offset: int, length: int) -> bytes:
            reads[0] += 1
            if reads[0] == 2:
                time.sleep(0.05)  # what tells two files of a directory apart is their time
                s.upload(tmp_path / "other", "key")
            return really_read(self, found, offset, length)

        monkeypatch.setattr(origin, "read", read)
        with pytest.raises(UnavailableError, match="was replaced while"):
            s.download("key", target)
        assert target.read_bytes() == b"before"
        s.download("key", target)
        assert target.read_bytes() == b"b" * 2500
        assert target.stat().st_mode & 0o777 == 0o600
        os.mkfifo(tmp_path / "fifo")
        with pytest.raises(InvalidInputError, match="is no file"):
            s.download("key", tmp_path / "fifo")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.quick
def test_links_in_a_directory_of_objects_are_followed(tmp_path: Path) -> None:
    (tmp_path / "store" / "real").mkdir(parents=True)
    (tmp_path / "store" / "real" / "a").write_bytes(b"a")
    (tmp_path / "store" / "newest").symlink_to("real")
    (tmp_path / "store" / "b").symlink_to("real/a")
    with storage.Local(tmp_path / "store") as s:
        for key in ("newest/a", "b"):
            assert s.download(key, tmp_path / "copy").read_bytes() == b"a"
        (tmp_path / "store" / "circle").symlink_to("circle")
        with pytest.raises(CowfsError):
            s.download("circle", tmp_path / "copy")


async def check_async(made: Storage, tmp_path: Path) -> None:
    async with made as s:
        await s.upload(tmp_path / "source", "x")
        assert [each.key for each in await s.ls()] == ["x"]
        assert (await s.download("x", tmp_path / "again")).read_bytes() == (tmp_path / "source").read_bytes()
        await s.rm("x")
        assert not await s.exists("x")
