"""The JSON API, its document, live mounts, metrics and links of a real server."""

from __future__ import annotations

import io
import json
import re
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from jsonschema import Draft202012Validator
from starlette.exceptions import HTTPException

from cowfs.blocking import ROVolume, Store, Volume
from cowfs.web import shared_links
from cowfs.web.api import OPERATIONS, PREFIX
from cowfs.web.openapi import make_document
from tests.cli.test_json import check_things
from tests.docs.json_page import DOCUMENTS
from tests.web.conftest import ODD, Start, Web

V = "/stores/-/volumes/data"


class Api:
    """Calls of the API; each answer is checked against the document."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        self.document = client.get(PREFIX + "/openapi.json").json()
        self.token = client.get(PREFIX + "/session").json()["csrf"]
        self.seen: set[tuple[str, str]] = set()

    def __call__(self, method: str, path: str, status: int = 200, **options: Any) -> Any:
        headers = {"X-CSRF-Token": self.token} if method != "GET" else {}
        answer = self.client.request(method, PREFIX + path, headers=headers, **options)
        assert answer.status_code == status, answer.text
        template = self._find(path)
        content = self.document["paths"][template][method.lower()]["responses"]["200" if status == 200 else "default"]
        self.seen.add((method, template))
        if "application/json" not in content["content"]:
            return answer.content
        schema = content["content"]["application/json"]["schema"] | {"components": self.document["components"]}
        Draft202012Validator(schema).validate(answer.json())
        check_things({name: each for name, each in answer.json().items() if name != "csrf"})
        return answer.json()

    def _find(self, path: str) -> str:
        for template in sorted(self.document["paths"], key=lambda each: each.count("{")):
            pattern = re.sub(r"\\{path\\}$", ".*", re.escape(template)).replace("\\{path\\}", ".*")
            if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", pattern), PREFIX + path):
                return str(template)
        raise AssertionError(path)


@pytest.fixture
def web(start: Start, versions: list[ROVolume]) -> Web:
    return start()


def test_every_operation_answers_as_its_document_says(web: Web, versions: list[ROVolume]) -> None:
    call = Api(web.client)
    assert call("GET", "/session")["role"] == "admin"
    assert [each["store_name"] for each in call("GET", "/stores")["stores"]] == ["-"]
    assert [each["volume"] for each in call("GET", "/stores/-/volumes")["volumes"]] == ["data"]
    assert call("GET", V)["volumes"][0]["version"] == versions[1].id
    log = call("GET", V + "/log")["versions"]
    assert [each["version"] for each in log] == [each.id for each in versions[::-1]]
    of_file = call("GET", V + "/log", params={"path": "/large.bin"})
    assert [each["version"] for each in of_file["versions"]] == [versions[0].id]
    assert of_file["changes_by_version"][versions[0].id][0]["bytes"] == 3_000_000
    assert call("GET", V + "/versions/-")["message"] == "second"
    listed = call("GET", V + "/versions/-/entries/")
    assert listed["total"] == len(list(versions[1].files.ls()))
    assert "\udcff\udcfe" in [each["name"] for each in listed["entries"]]
    page = call("GET", V + "/versions/-/entries/", params={"limit": 2, "page": 2})
    assert page["entries"] == listed["entries"][2:4]
    for name in ODD:
        assert call("GET", V + "/versions/-/file/" + quote(name, safe="")) == b"content of " + name
    assert [each["path"] for each in call("GET", V + "/versions/-/find/", params={"q": "note"})["entries"]] == [
        "/d/notes.txt"
    ]
    diff = call("GET", V + "/diff", params={"old": versions[0].id})
    changes = diff["changes"]
    assert [diff["old_locator"], diff["new_locator"]] == [each.locator for each in versions]
    assert {(each["kind"], each["path"]) for each in changes} == {
        ("changed", "/d/notes.txt"),
        ("removed", "/page.svg"),
    }
    assert call("PUT", V + "/tags/v1", json={"version": versions[0].id})["tags"][0]["version"] == versions[0].id
    call("PUT", V + "/tags/v1", 409, json={"version": "-"})
    assert [each["tag"] for each in call("GET", V + "/tags")["tags"]] == ["v1"]
    call("DELETE", V + "/tags/v1")
    plan = call("GET", V + "/prune", params={"last": 1})["versions"]
    assert [each["is_kept"] for each in plan] == [True, False]
    assert call("GET", "/stores/-/gc")["alarms"] == []
    made = call("PUT", V + "/files/new/deep.txt", content=b"deep", params={"message": "put"})
    assert (made["message"], made["version"]) == ("put", Volume.version("data").id)
    assert call("GET", V + "/versions/-/file/new/deep.txt") == b"deep"
    Store().fork("data", "side")
    merge = call("GET", V + "/merge", params={"from": "side"})
    assert (merge["is_new"], merge["changes"], merge["conflicts"]) == (False, [], [])
    call("POST", "/stores/-/volumes", json={"volume": "other"})
    call("POST", "/stores/-/volumes", 409, json={"volume": "other"})
    call("DELETE", "/stores/-/volumes/other", 400, params={"confirm": "Other"})
    call("DELETE", "/stores/-/volumes/other", params={"confirm": "other"})
    [deleted] = call("GET", "/stores/-/volumes", params={"deleted": "true"})["volumes"]
    assert deleted["volume"] == "other"
    call("POST", "/stores/-/volumes/other/undelete")
    link = {"store_name": "-", "volume": "data", "version": "-"}
    [made_link] = call("POST", "/links", json=link)["shared_links"]
    assert call("GET", "/links")["shared_links"] == [made_link]
    assert call("DELETE", f"/links/{made_link['link_id']}") == {"link_id": made_link["link_id"]}
    call("GET", "/mounts")
    assert call.seen == {(each.method, PREFIX + each.path) for each in OPERATIONS}


OWN = {
    "csrf",
    "total",
    *("shared_links", "link", "link_id", "created_by"),
    *("work", "memory_bytes", "waiting_requests", "oldest_request_s"),
}
"""Names that only the API has."""


@pytest.mark.quick
def test_names_and_types_are_those_of_commands() -> None:
    known = {
        name: field.type
        for records in DOCUMENTS.values()
        for fields in records.values()
        for name, field in fields.items()
    }
    seen = set[str]()
    for schema in make_document()["components"]["schemas"].values():
        for name, kinds in list_fields(schema):
            seen.add(name)
            if name not in OWN:
                assert kinds == {known.get(name)}, name
            assert (kinds == {"boolean"}) == bool(re.match(r"(is|has|was)_", name)), name
    assert seen - known.keys() >= OWN


def list_fields(schema: dict[str, Any]) -> Iterator[tuple[str, set[str]]]:
    """Every field of a document, at any depth: its name, and its types as json.md calls them."""
    for name, each in schema.get("properties", {}).items():
        choices = [one for one in each.get("anyOf", [each]) if one != {"type": "null"}]
        yield name, {type_of(one) for one in choices}
        for one in choices:
            for inner in (one, one.get("items"), one.get("additionalProperties")):
                if isinstance(inner, dict):
                    yield from list_fields(inner.get("items", inner))


def type_of(schema: dict[str, Any]) -> str:
    if schema["type"] == "array":
        return "list of objects" if schema["items"]["type"] == "object" else "list of texts"
    if schema["type"] == "string":
        return "digits" if "pattern" in schema else "text"
    return {"integer": "number"}.get(schema["type"], str(schema["type"]))


def test_wrong_requests_are_refused_in_words(web: Web) -> None:
    call = Api(web.client)
    missing = call("GET", "/stores/-/volumes/dats", 404)["error"]
    assert missing["kind"] == "not_found"
    assert "data" in missing["hint"]
    wrong: list[dict[str, Any]] = [
        {"content": b"{"},
        {"json": []},
        {"json": {"volume": 1}},
        {"json": {"volume": "x", "more": 1}},
    ]
    for options in wrong:
        call("POST", "/stores/-/volumes", 400, **options)
    assert call("POST", "/stores/-/volumes", 400, json={})["error"]["message"] == "volume is missing"
    assert call("POST", "/stores/-/volumes", 400, json={"volume": None})["error"]["message"] == "volume is no string"
    stranger = Volume.new("stranger")
    stranger.files.write("f", b"")
    stranger.finalize()
    unrelated = call("GET", V + "/merge", 409, params={"from": "stranger"})["error"]
    assert "have no version in common" in unrelated["message"]
    assert "Only forks of one version" in unrelated["hint"]
    call("POST", "/links", 400, json={"store_name": "-", "volume": "data", "version": "-", "hours": 0})
    half = json.dumps({"store_name": "-", "volume": "data", "version": "-", "path": "/\ud800"})
    call("POST", "/links", 400, content=half.encode())
    call("GET", V + "/log", 400, params={"limit": "many"})
    call("PUT", V + "/files/%2e%2e", 400, content=b"")
    without = web.client.post(PREFIX + "/stores/-/volumes", json={"volume": "x"})
    assert (without.status_code, without.json()["error"]["kind"]) == (403, "refused")
    nobody = web.new_client().get(PREFIX + "/stores")
    assert (nobody.status_code, nobody.headers["content-type"]) == (401, "application/json")


def test_the_document_is_shown_without_other_servers(web: Web) -> None:
    page = web.client.get("/api").text
    assert all(PREFIX + each.path in page for each in OPERATIONS)
    assert "http://" not in page.replace(web.url, "")
    assert "https://" not in page


def test_mounts_are_shown_as_they_change(web: Web) -> None:
    def mounts(events: Iterator[str]) -> list[Any]:
        line = next(each for each in events if each.startswith("data: "))
        found: list[Any] = json.loads(line.removeprefix("data: "))["mounts"]
        return found

    with web.client.stream("GET", "/mounts/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = answer.iter_lines()
        assert mounts(events) == []
        with Volume.open("data") as mounted:
            (mounted.path / "x").write_text("x")
            end = time.monotonic() + 60
            while not (shown := mounts(events)) or not shown[0]["has_uncommitted"]:
                assert time.monotonic() < end
            assert shown[0]["mount_path"] == str(mounted.path)
            assert str(mounted.path) in web.client.get("/mounts").text
            metrics = web.client.get("/metrics").text
            assert re.search(rf'cowfs_mount_uncommitted{{.*mount_path="{mounted.path}".*}} 1', metrics)


def test_metrics_for_a_scraper(web: Web, place: Path) -> None:
    import os

    web.client.get("/v/-/none")
    text = web.client.get("/metrics").text
    assert re.search(r'cowfs_web_answers_total{method="GET",status="404"} 1\n', text)
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) .+|\w+({\w+=\".*\"})? [\d.]+", line), line
    scraper = web.new_client()
    assert scraper.get("/metrics", headers={"authorization": "Bearer x"}).status_code == 401, (
        "no page is taken for figures"
    )
    token = (Path(os.environ["COWFS_STATE_DIR"]) / "web" / "metrics-token").read_text()
    assert scraper.get("/metrics", headers={"authorization": f"Bearer {token}"}).status_code == 200
    assert scraper.get("/", headers={"authorization": f"Bearer {token}"}).url.path == "/login"


def test_methods_that_clients_make_up_count_as_one(web: Web) -> None:
    for number in range(3):
        assert web.client.request(f"MADE{number}", "/static/x").status_code == 405
    text = web.client.get("/metrics").text
    assert 'cowfs_web_answers_total{method="other",status="405"} 3\n' in text
    assert "MADE" not in text


def test_links(web: Web, start: Start, versions: list[ROVolume], monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    call, stranger = Api(web.client), web.new_client()
    to = {"store_name": "-", "volume": "data"}
    [file] = call("POST", "/links", json={**to, "version": versions[0].id, "path": "/page.svg"})["shared_links"]
    [whole] = call("POST", "/links", json={**to, "version": "-"})["shared_links"]
    call("POST", "/links", 400, json={**to, "version": "-", "path": "/d"})
    call("POST", "/links", 404, json={**to, "version": "-", "path": "/none"})
    shown = stranger.get(file["link"])
    assert shown.content == versions[0].files.read("page.svg")
    assert shown.headers["content-disposition"].startswith("attachment")
    listing = stranger.get(whole["link"]).text
    assert "Log out" not in listing
    [deeper] = re.findall(r'href="(/s/[^"]*/d)"', listing)
    assert "notes.txt" in stranger.get(deeper).text
    assert stranger.get(deeper + "/notes.txt").content == b"one\n2\n"
    assert stranger.get(f"{file['link']}/d/notes.txt").content == shown.content
    with tarfile.open(fileobj=io.BytesIO(stranger.get(whole["link"] + "?as=tar").content)) as archive:
        assert "data/d/notes.txt" in archive.getnames()
    forged = f"/s/{whole['link_id']}.{'0' * 64}"
    for wrong in (
        forged,
        file["link"][:-1],
        f"/s/{file['link_id']}.{whole['link'].partition('.')[2]}",
        "/s/x",
        "/s/%FF.x",
    ):
        assert stranger.get(wrong).status_code == 404
    assert stranger.get(f"/v/-/data/tree/{versions[0].id}/").url.path == "/login"
    again = start().new_client()
    assert again.get(file["link"]).status_code == 200, "a link outlives the server"
    monkeypatch.setattr(shared_links, "FILE_BYTES", 1000)
    with pytest.raises(HTTPException, match="too many"), shared_links._change() as links:
        links += links * 10
    elsewhere = start(environ={"COWFS_STORE": os.environ["COWFS_STORE"] + "2"}).new_client()
    assert elsewhere.get(file["link"]).status_code == 404
    call("DELETE", f"/links/{file['link_id']}")
    call("DELETE", f"/links/{file['link_id']}", 404)
    for client in (stranger, again):
        assert client.get(file["link"]).status_code == 404
        assert client.get(whole["link"]).status_code == 200
    kept = Path(os.environ["COWFS_STATE_DIR"]) / "web" / "links.json"
    records = json.loads(kept.read_text())
    kept.write_text(json.dumps([{**each, "until_ns": 1} for each in records]))
    assert stranger.get(whole["link"]).status_code == 404
    assert kept.stat().st_mode & 0o777 == 0o600
