"""schemathesis over every route of a real server: none answers with 500, and those of the JSON API
answer as their OpenAPI document says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Route

from cowfs.blocking import ROVolume, Store
from cowfs.web.api import PREFIX
from cowfs.web.routes import routes
from tests.web.browser.conftest import make_link
from tests.web.conftest import Web, csrf

LEFT_OUT = {"/mounts/events", "/logout"}
"""The first never ends, and the other ends the session."""
QUERY = ("old", "new", "path", "page", "from", "q", "as", "image", "last", "within", "deleted", "next", "token")
EXAMPLES = "15"


def describe_pages() -> dict[str, Any]:
    """The routes that are for browsers, as an OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for each in routes():
        if not isinstance(each, Route) or each.path.startswith(PREFIX) or each.path in LEFT_OUT:
            continue
        for method in (each.methods or set()) - {"HEAD"}:
            paths.setdefault(each.path_format, {})[method.lower()] = describe(each, method)
    return {"openapi": "3.1.0", "info": {"title": "pages", "version": "1"}, "paths": paths}


def describe(route: Route, method: str) -> dict[str, Any]:
    text = {"schema": {"type": ["string", "integer"]}}
    parameters = [{"name": name, "in": "path", "required": True, **text} for name in route.param_convertors]
    parameters += [{"name": name, "in": "query", **text} for name in QUERY if method == "GET"]
    found: dict[str, Any] = {"parameters": parameters, "responses": {"default": {"description": "any"}}}
    if method == "POST":
        names = ("name", "tag", "version", "confirm", "store", "volume", "path", "hours", "to", "message")
        fields = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
        found["requestBody"] = {
            "content": {
                kind: {"schema": fields} for kind in ("application/x-www-form-urlencoded", "multipart/form-data")
            }
        }
    return found


@pytest.mark.parametrize("part", ["api", "pages"])
def test_no_route_fails(web: Web, versions: list[ROVolume], place: Path, part: str) -> None:
    for name, each in zip(("first", "second"), versions, strict=True):
        each.tag(name)
    Store().fork("data", "side")
    token = csrf(web.client)
    document = web.client.get(PREFIX + "/openapi.json").json() if part == "api" else describe_pages()
    config = place / "schemathesis.toml"
    config.write_text(Path(__file__).with_name(config.name).read_text())
    (place / "links").write_text(json.dumps(make_link(web).split("/")[2]))
    described = place / "openapi.json"
    described.write_text(json.dumps(document))
    checks = ["not_a_server_error"]
    if part == "api":
        checks += ["status_code_conformance", "content_type_conformance", "response_schema_conformance"]
    cookies = "; ".join(f"{each.name}={each.value}" for each in web.client.cookies.jar)
    words = ["run", str(described), "--url", web.url, "--checks", ",".join(checks), "--max-examples", EXAMPLES]
    words += ["-H", f"Cookie:{cookies}", "-H", f"X-CSRF-Token:{token}", "--phases", "coverage,fuzzing", "--no-color"]
    words += ["--generation-database", "none", "--continue-on-failure", "--suppress-health-check", "all"]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), *words],
        cwd=place,
        env={**os.environ, "PYTHONWARNINGS": "default"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0
