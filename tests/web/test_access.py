"""Who gets in: links, passwords, proxies, names of the server; which addresses it may have."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from cowfs.blocking import ROVolume, Store
from cowfs.errors import AccessDeniedError, InvalidInputError
from cowfs.web.users import UsersFile
from tests.cli.conftest import Run, run
from tests.cli.test_json import check
from tests.web.conftest import Start, csrf

__all__ = ["run"]


def test_a_link_works_once(start: Start, place: Path) -> None:
    Store().create("data")
    web = start()
    assert web.new_client().get(web.link).status_code == 403
    assert "printed" in web.new_client().get("/").text
    for url in ("/v/-/data", "/stores", "/gc", "/v/-/data/raw/-/x"):
        assert web.new_client().get(url).url.path == "/login"
    cookie = web.client.cookies.jar
    [session] = list(cookie)
    assert session.has_nonstandard_attr("HttpOnly")
    assert session.get_nonstandard_attr("SameSite") == "strict"
    assert web.client.get("/v/-/data").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]", "", "a,b"])
def test_other_names_of_the_server_are_refused(start: Start, place: Path, host: str) -> None:
    web = start("--name", "store.example")
    assert web.client.get("/login", headers={"host": host}).status_code in (400, 421)
    for own in ("localhost:1", "STORE.example", "[::1]:99"):
        assert web.client.get("/login", headers={"host": own}).status_code == 200


def refusal(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cowfs", "web", "--port", "0", *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == InvalidInputError.exit_code, done
    return done.stderr


def test_addresses_that_others_reach_need_users(place: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.7", "store.example"):
        assert "others reach the server" in refusal("--host", host)
    assert "from a proxy alone" in refusal("--host", "0.0.0.0", "--trust-header", "X-User")
    assert "does not appear to be" in refusal("--trust-header", "X-User", "--trusted-proxy", "ten.0.0.1")


def test_a_file_of_users_lets_others_in(start: Start, place: Path) -> None:
    UsersFile(place / "users").add("ada", "viewer", "secret")
    web = start("--host", "0.0.0.0", "--name", "127.0.0.1", "--users", str(place / "users"))
    web.url = web.url.replace("0.0.0.0", "127.0.0.1")
    client = web.log_in("ada", "secret")
    assert "ada (viewer)" in client.get("/").text
    UsersFile(place / "users").add("ada", "viewer", "changed")
    assert client.get("/").url.path == "/login"
    client = web.log_in("ada", "changed")
    UsersFile(place / "users").remove("ada")
    assert client.get("/").url.path == "/login"


def test_passwords(start: Start, place: Path) -> None:
    UsersFile(place / "users").add("ada", "viewer", "secret")
    web = start("--users", str(place / "users"))

    def attempt(name: str, password: str) -> httpx.Response:
        return web.new_client().post("/login", data={"name": name, "password": password, "next": "//evil.example/"})

    right = attempt("ada", "secret")
    assert (right.status_code, right.url.host, right.url.path) == (200, "127.0.0.1", "/")
    for name, password in (("ada", "wrong"), ("bob", "secret"), ("ada", ""), ("", ""), ("ada", "Secret")):
        assert attempt(name, password).status_code == 403
    late = attempt("ada", "secret")
    assert late.status_code == 429
    assert int(late.headers["retry-after"]) > 0


def test_a_user_gets_no_more_tries_for_the_password_of_another(start: Start, place: Path) -> None:
    for name in ("ada", "root"):
        UsersFile(place / "users").add(name, "admin", name * 2)
    web = start("--users", str(place / "users"))

    def attempt(name: str, password: str) -> int:
        return web.new_client().post("/login", data={"name": name, "password": password}).status_code

    seen = [code for _ in range(5) for code in (attempt("root", "guess"), attempt("ada", "adaada"))]
    assert seen == [403, 200, 403, 200, 403, 200, 403, 200, 403, 429]


def test_a_port_that_is_taken(place: Path, run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = run("web", "--port", str(taken.getsockname()[1]))
    assert (said.code, "Give another --port" in said.err) == (2, True)


def test_a_link_counts_while_its_maker_may_make_one(start: Start, versions: list[ROVolume], place: Path) -> None:
    file = place / "users"
    UsersFile(file).add("ada", "writer", "secret")
    web = start("--users", str(file))
    ada, stranger = web.log_in("ada", "secret"), web.new_client()
    sent = {"store": "-", "volume": "data", "version": "-", "path": "/d/notes.txt", "csrf": csrf(ada)}
    assert ada.post(f"/links?csrf={csrf(ada)}", data=sent).status_code == 200
    [link] = re.findall(r'/s/[^"\s<]+', ada.get("/links").text)[:1]
    assert stranger.get(link).content == b"one\n2\n"
    UsersFile(file).add("ada", "viewer", "secret")
    assert stranger.get(link).status_code == 404
    UsersFile(file).remove("ada")
    assert stranger.get(link).status_code == 404


def test_a_header_counts_from_the_proxy_alone(start: Start, place: Path) -> None:
    Store().create("data", owner="ada")
    words = ("--trust-header", "X-User", "--admin", "root", "--trusted-proxy")
    forged = start(*words, "192.0.2.1/32").new_client()
    assert forged.get("/", headers={"X-User": "root"}).status_code == 403
    client = start(*words, "127.0.0.0/8").new_client()
    assert client.get("/").status_code == 403
    assert client.get("/", headers=[("X-User", "ada"), ("X-User", "root")]).status_code == 403
    assert "ada (writer)" in client.get("/", headers={"X-User": "ada"}).text
    assert "root (admin)" in client.get("/", headers={"X-User": "root"}).text
    page = client.get("/", headers={"X-User": "bob"}).text
    token = page.partition("csrf=")[2][:64]
    for name in ("bob", "ada"):  # the token is bob's
        done = client.post(f"/v/-/data/delete?csrf={token}", data={"confirm": "data"}, headers={"X-User": name})
        assert done.status_code == 403
    assert Store().describe("data").volume.owner == "ada"


def test_commands_manage_the_file(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place / "users"
    done = subprocess.run(
        [sys.executable, "-m", "cowfs", "web", "users", "add", "ada", "--users", str(file), "--role", "admin"],
        input="secret\n",
        text=True,
        check=True,
    )
    assert done.returncode == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert "secret" not in file.read_text()
    listed = run("web", "users", "ls", "--users", str(file), "--json").json
    check("web users", listed)
    assert listed["users"] == [{"user": "ada", "role": "admin"}]
    assert UsersFile(file).verify("ada", "secret") is not None
    assert UsersFile(file).verify("ada", "other") is None
    UsersFile(file).add("ada", None, "another")
    UsersFile(file).add("eve", None, "another")
    assert UsersFile(file).list_users() == {"ada": "admin", "eve": "writer"}, "a new password is no new role"
    UsersFile(file).remove("eve")
    for wrong in ("#c", "a b", "a:b", "a\udcff"):
        with pytest.raises(InvalidInputError, match="no name of a user"):
            UsersFile(file).add(wrong, None, "secret")
    (place / "link").symlink_to(file)
    UsersFile(place / "link").add("ada", None, "third")
    assert (place / "link").is_symlink()
    assert run("web", "users", "remove", "bob", "--users", str(file)).code == 3
    assert run("web", "users", "remove", "ada", "--users", str(file)).code == 0
    assert UsersFile(file).list_users() == {}


def test_changes_of_users_keep_comments(place: Path) -> None:
    file = place / "users"
    UsersFile(file).add("bob", "viewer", "secret")
    bob = file.read_bytes().strip()
    file.write_bytes(b"# readers \xff\n\n" + bob + b"\r\n# bob again\n" + bob + b"\n# bob\xe2\x80\xa8 leaves in May")
    UsersFile(file).add("ada", "admin", "secret")
    UsersFile(file).add("bob", "writer", "another")
    lines = file.read_bytes().split(b"\n")
    assert [line for line in lines if line[:1] in (b"#", b"")] == [
        b"# readers \xff", b"", b"# bob again", b"# bob\xe2\x80\xa8 leaves in May", b"",
    ]  # fmt: skip
    assert [line.split()[0] for line in (lines[2], lines[5])] == [b"bob", b"ada"]
    assert UsersFile(file).list_users() == {"ada": "admin", "bob": "writer"}
    UsersFile(file).remove("bob")
    assert [line[:5] for line in file.read_bytes().splitlines()] == [b"# rea", b"", b"# bob", b"# bob", b"ada a"]
    users = UsersFile(file)
    users.list_users()
    file.unlink()
    users.add("eve", None, "secret")
    assert len(file.read_bytes().splitlines()) == 1


def test_a_file_that_others_can_write_is_refused(place: Path) -> None:
    file = place / "users"
    UsersFile(file).add("ada", "admin", "secret")
    os.chmod(file, 0o666)
    with pytest.raises(AccessDeniedError, match="others can write"):
        UsersFile(file).list_users()
    os.chmod(file, 0o600)
    file.write_text("ada king $argon2id$x\n")
    with pytest.raises(InvalidInputError, match="line 1"):
        UsersFile(file).list_users()
    file.write_text("#" * 1_100_000)
    with pytest.raises(InvalidInputError, match="larger than 1 MiB"):
        UsersFile(file).add("ada", "admin", "secret")


def test_a_file_of_users_that_breaks_refuses_all(start: Start, place: Path) -> None:
    file = place / "users"
    UsersFile(file).add("ada", "admin", "secret")
    web = start("--users", str(file))
    ada = web.log_in("ada", "secret")
    os.chmod(file, 0o666)
    answer = ada.get("/")
    assert (answer.status_code, str(file) in answer.text) == (503, False)
    os.chmod(file, 0o600)
    assert ada.get("/").status_code == 200


def test_changes_of_users_at_once_are_all_there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place / "users"
    names = [f"user{number}" for number in range(8)]
    read = UsersFile._read

    def read_slowly(users: UsersFile) -> dict[str, tuple[str, str]]:
        found = read(users)
        time.sleep(0.05)
        return found

    monkeypatch.setattr(UsersFile, "_read", read_slowly)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: UsersFile(file).add(name, "viewer", "secret"), names))
    assert sorted(UsersFile(file).list_users()) == names
