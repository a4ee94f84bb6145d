"""Changes through a real server: uploads, tags, deletion, plans; who may make them."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import httpx
import pytest

from cowfs.blocking import ROVolume, Store, Volume
from cowfs.web.forms import FILES
from tests.web.conftest import Start, Web, csrf


def post(client: httpx.Client, url: str, **data: str) -> httpx.Response:
    return client.post(f"{url}?csrf={csrf(client)}", data=data)


def upload(client: httpx.Client, volume: str, files: dict[str, bytes], to: str = "/") -> httpx.Response:
    sent = [("files", (name, content)) for name, content in files.items()]
    return client.post(f"/v/-/{volume}/upload?csrf={csrf(client)}", data={"to": to, "message": "m"}, files=sent)


def test_from_a_new_volume_to_its_return(start: Start, place: Path) -> None:
    client = start().client
    made = post(client, "/volumes", name="new")
    assert (made.status_code, made.url.path) == (200, "/v/-/new")
    content = os.urandom(3_000_000)
    assert upload(client, "new", {"a.bin": content, "b.txt": b"b"}).status_code == 200
    assert upload(client, "new", {"b.txt": b"B"}, to="/deep/er").status_code == 200
    newest, first = Volume.open("new").history()
    assert newest.message == "m"
    assert newest.files.read("a.bin") == content
    assert (newest.files.read("b.txt"), newest.files.read("deep/er/b.txt")) == (b"b", b"B")
    assert post(client, "/v/-/new/tag", tag="v1", version=first.id[:12]).status_code == 200
    assert Volume.version("new@v1") == first
    assert post(client, "/v/-/new/tag", tag="v1").status_code == 409
    assert post(client, "/v/-/new/tag", tag="v1", move="1").status_code == 200
    assert Volume.version("new@v1") == newest
    assert post(client, "/v/-/new/delete", confirm="New").status_code == 400
    assert post(client, "/v/-/new/untag", tag="v1").status_code == 200
    assert post(client, "/v/-/new/delete", confirm="new").status_code == 200
    assert client.get("/v/-/new").status_code == 404
    assert client.get(f"/v/-/new/tree/{newest.id}/").status_code == 404
    assert "Bring back new" not in client.get("/").text
    assert "Bring back new" in client.get("/?deleted=1").text
    assert post(client, "/v/-/new/undelete").status_code == 200
    assert Volume.version("new") == newest


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "n" * 256])
def test_names_of_uploads_are_checked(start: Start, versions: list[ROVolume], name: str) -> None:
    client = start().client
    assert upload(client, "data", {name: b"x"}).status_code == 400
    assert upload(client, "data", {"x": b"x"}, to="/../up").status_code == 400
    assert Volume.version("data") == versions[1]


MULTIPART = {"content-type": "multipart/form-data; boundary=B"}
PART = b'--B\r\nContent-Disposition: form-data; name="files"; filename="%s"\r\n\r\n%s'


def test_two_files_of_one_name_are_refused(start: Start, versions: list[ROVolume]) -> None:
    web = start()
    sent = [("files", ("same", b"one")), ("files", ("same", b"two"))]
    answer = web.client.post(f"/v/-/data/upload?csrf={csrf(web.client)}", data={"to": "/up"}, files=sent)
    assert answer.status_code == 400
    assert len(Volume.version("data").history()) == 2


def test_a_form_that_is_cut_makes_no_version(start: Start, versions: list[ROVolume]) -> None:
    client = start().client
    url, whole = f"/v/-/data/upload?csrf={csrf(client)}", PART % (b"one", b"first\r\n")
    for cut in (whole, whole + b"--B", whole + PART % (b"two", b"half"), whole + b"--B\r\nContent-Disp"):
        answer = client.post(url, content=cut, headers=MULTIPART)
        assert (answer.status_code, "closing boundary" in answer.text) == (400, True)
        assert Volume.version("data") == versions[1]
    assert client.post(url, content=whole + b"--B--", headers=MULTIPART).status_code == 200
    assert Volume.version("data").files.read("one") == b"first"


def test_a_form_has_so_many_files_at_most(start: Start, versions: list[ROVolume]) -> None:
    client = start().client
    assert upload(client, "data", {f"f{number}": b"x" for number in range(FILES + 1)}).status_code == 400
    assert Volume.version("data") == versions[1]
    assert upload(client, "data", {f"f{number}": b"x" for number in range(FILES)}).status_code == 200


def test_a_form_that_is_not_finished_takes_little_memory(start: Start, versions: list[ROVolume]) -> None:
    web = start()
    content = bytes(300_000) + b"\r\n"
    parts = [PART % (b"%03d" % number, content) for number in range(FILES - 10)]
    length = sum(map(len, parts))
    head = (
        f"POST /v/-/data/upload?csrf={csrf(web.client)} HTTP/1.1\r\nHost: localhost\r\n"
        f"Cookie: {'; '.join(f'{name}={value}' for name, value in web.client.cookies.items())}\r\n"
        f"Content-Type: {MULTIPART['content-type']}\r\nContent-Length: {length + 5}\r\n\r\n"
    )
    before = resident_bytes(web)
    with socket.create_connection(("127.0.0.1", httpx.URL(web.url).port or 0)) as connection:
        connection.sendall(head.encode())
        for part in parts:
            connection.sendall(part)
        grown = resident_bytes(web) - before
        connection.sendall(b"--B--")
        assert connection.recv(100).startswith(b"HTTP/1.1 303")
    assert grown < length / 2, grown


def resident_bytes(web: Web) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{web.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def test_a_change_needs_the_token_of_its_session(start: Start, versions: list[ROVolume]) -> None:
    web = start()
    for url in ("/volumes", "/v/-/data/delete", "/v/-/data/upload", "/v/-/data/tag", "/logout"):
        for query in ("", "?csrf=", "?csrf=" + "0" * 64):
            answer = web.client.post(url + query, data={"confirm": "data", "name": "other"})
            assert answer.status_code == 403, url
    good = f"/v/-/data/delete?csrf={csrf(web.client)}"
    for origin in ("http://evil.example", "null", "", "http://[", web.url + ".evil.example"):
        foreign = web.client.post(good, data={"confirm": "data"}, headers={"origin": origin})
        assert foreign.status_code == 403, origin
    stranger = web.new_client()
    assert stranger.post(good, data={"confirm": "data"}).status_code == 401
    assert Volume.version("data") == versions[1]


def test_a_mounted_volume_is_not_changed(start: Start, versions: list[ROVolume]) -> None:
    client = start().client
    with Volume.open("data") as mounted:
        assert str(mounted.path) in client.get("/").text
        for answer in (post(client, "/v/-/data/delete", confirm="data"), upload(client, "data", {"x": b"x"})):
            assert answer.status_code == 409
            assert str(mounted.path) in answer.text
    assert post(client, "/v/-/data/delete", confirm="data").status_code == 200


def test_plans_change_nothing(start: Start, versions: list[ROVolume]) -> None:
    client = start().client
    Store().fork("data", "side")
    Volume.open("side").files.write("only-here", b"x")
    Volume.open("side").commit()
    before = {each.name: each.version for each in Store().volumes()}
    assert "no saved rules" in client.get("/v/-/data/prune").text
    assert "1 of 2 versions would be removed" in client.get("/v/-/data/prune?last=1").text
    assert client.get("/v/-/data/prune?last=x").status_code == 400
    merged = client.get("/v/-/data/merge?from=side").text
    assert "1 paths would change, 0 conflicts" in merged
    assert "only-here" in merged
    assert client.get("/v/-/data/merge?from=none").status_code == 404
    assert "would shrink by" in client.get("/gc").text
    assert {each.name: each.version for each in Store().volumes()} == before


def test_a_read_only_server_and_read_only_stores(start: Start, versions: list[ROVolume]) -> None:
    web = start("--read-only")
    assert "Delete volume" not in web.client.get("/v/-/data").text
    for answer in (
        post(web.client, "/volumes", name="other"),
        post(web.client, "/v/-/data/delete", confirm="data"),
        upload(web.client, "data", {"x": b"x"}),
    ):
        assert answer.status_code == 403
    assert Volume.version("data") == versions[1]


@pytest.fixture
def users(start: Start, place: Path) -> Web:
    """vera (viewer), ada and bob (writers), root (admin); a password is the name twice."""
    from cowfs.web.users import UsersFile

    found = UsersFile(place / "users")
    for name, role in {"vera": "viewer", "ada": "writer", "bob": "writer", "root": "admin"}.items():
        found.add(name, role, name * 2)
    return start("--users", str(place / "users"))


def test_roles(users: Web, versions: list[ROVolume]) -> None:
    clients = {name: users.log_in(name, name * 2) for name in ("vera", "ada", "bob", "root")}
    assert post(clients["vera"], "/volumes", name="veras").status_code == 403
    assert post(clients["ada"], "/volumes", name="adas").status_code == 200
    assert post(clients["ada"], "/volumes", name="more").status_code == 200
    assert {each.name: each.owner for each in Store().volumes()}["adas"] == "ada"
    assert all(client.get("/v/-/adas").status_code == 200 for client in clients.values())
    for name in ("vera", "bob"):
        refused = post(clients[name], "/v/-/adas/delete", confirm="adas")
        assert refused.status_code == 403
        assert "belongs to ada" in refused.text
        assert "Delete volume" not in clients[name].get("/v/-/adas").text
        assert upload(clients[name], "adas", {"x": b"x"}).status_code == 403
        assert post(clients[name], "/v/-/adas/tag", tag="t").status_code == 403
    assert upload(clients["ada"], "adas", {"x": b"x"}).status_code == 200
    assert Volume.version("adas").author == "ada"
    assert post(clients["ada"], "/v/-/data/delete", confirm="data").status_code == 403
    assert post(clients["ada"], "/v/-/adas/delete", confirm="adas").status_code == 200
    assert post(clients["bob"], "/v/-/adas/undelete").status_code == 403
    assert post(clients["ada"], "/v/-/adas/undelete").status_code == 200
    assert post(clients["root"], "/v/-/adas/delete", confirm="adas").status_code == 200
    assert post(clients["root"], "/v/-/data/delete", confirm="data").status_code == 200
