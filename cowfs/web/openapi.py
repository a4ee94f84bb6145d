"""The OpenAPI document of the JSON API, made of the table of its operations, and a page that shows
it."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

import cowfs
from cowfs.web.answers import give, show
from cowfs.web.api import BYTES, OPERATIONS, PREFIX, Operation
from cowfs.web.api_values import Error, schema_of
from cowfs.web.gate import SAFE

JSON = "application/json"


@cache
def make_document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for each in OPERATIONS:
        paths.setdefault(PREFIX + each.path, {})[each.method.lower()] = _describe(each)
    answers = {each.answer.__name__: schema_of(each.answer) for each in OPERATIONS if each.answer is not bytes}
    return {
        "openapi": "3.1.0",
        "info": {"title": "cowfs web", "version": cowfs.__version__},
        "paths": paths,
        "components": {"schemas": {"Error": schema_of(Error), **answers}},
    }


def _describe(operation: Operation) -> dict[str, Any]:
    named = re.findall(r"\{(\w+)\}", operation.path)
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in named
    ]
    parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in operation.query.items()]
    if operation.method not in SAFE:
        parameters.append({"name": "X-CSRF-Token", "in": "header", "required": True, "schema": {"type": "string"}})
    is_file = operation.answer is bytes
    answer = {"schema": _refer("Error")}
    whole = {BYTES: {}} if is_file else {JSON: {"schema": _refer(operation.answer.__name__)}}
    found: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": f"{operation.method.lower()}{re.sub(r'[^a-z]+', '_', operation.path)}".rstrip("_"),
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done", "content": whole},
            "default": {"description": "An error", "content": {JSON: answer}},
        },
    }
    if operation.body:
        required = [name for name in operation.body if name not in operation.optional]
        schema = {
            "type": "object",
            "properties": dict(operation.body),
            "required": required,
            "additionalProperties": False,
        }
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    if operation.takes_bytes:
        found["requestBody"] = {"required": True, "content": {BYTES: {}}}
    return found


def _refer(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def document(request: Request) -> Response:
    return give(make_document())


def page(request: Request) -> Response:
    return show(request, "api.html", document=make_document())
