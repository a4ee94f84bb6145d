"""What botocore reads about services, as small as our few requests need it.

botocore describes services in JSON files and keeps all it has read. S3's description and the table
of endpoints take 20 MB in memory: every operation, the documentation of every field, every endpoint
of 400 services. A mount has one process that lives on, so here everything is dropped while it is
parsed that no request of ours needs:

    documentation            of services, operations and fields
    S3's operations          but for OPERATIONS, and the shapes that only the others use
    endpoints of services    but for SERVICES, which credentials may come from; others get the general template

A process may still call other services' operations (STS, SSO): their descriptions lose the
documentation alone.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from botocore.loaders import JSONFileLoader, Loader, create_loader
from botocore.session import Session

OPERATIONS = frozenset(
    {
        "AbortMultipartUpload",
        "CompleteMultipartUpload",
        "CreateMultipartUpload",
        "CreateSession",  # directory buckets
        "DeleteObject",
        "DeleteObjects",
        "GetObject",
        "HeadBucket",  # to follow a redirection to another region
        "HeadObject",
        "ListObjectsV2",
        "PutObject",
        "UploadPart",
    }
)
SERVICES = frozenset({"oidc", "portal.sso", "s3", "sts"})
_OPENERS: dict[str, Callable[..., Any]] = {".json": open, ".json.gz": gzip.open}

Pairs = list[tuple[str, Any]]


def use_small_models(session: Session) -> None:
    """For a session that has not made a client yet."""
    loader: Loader = create_loader(session.get_config_variable("data_path"))
    loader.file_loader = _SmallModels()
    session.register_component("data_loader", loader)


class _SmallModels(JSONFileLoader):  # type: ignore[misc]  # untyped
    def load_file(self, file_path: str) -> Any:
        """None: there is no such file."""
        for extension, open_file in _OPENERS.items():
            path = Path(file_path + extension)
            if not path.is_file():
                continue
            with open_file(path, "rt", encoding="utf-8") as file:
                if path.name.startswith("endpoints.json"):
                    return json.load(file, object_pairs_hook=_endpoints)
                found = json.load(file, object_pairs_hook=_undocumented)
            return _few_operations(found) if path.parts[-3] == "s3" and "operations" in found else found
        return None


def _undocumented(pairs: Pairs) -> dict[str, Any]:
    """Without the text, but with the key, which botocore relies on. A field may be called so: its
    description is no text."""
    return {key: "" if key == "documentation" and isinstance(value, str) else value for key, value in pairs}


def _endpoints(pairs: Pairs) -> dict[str, Any]:
    found = dict(pairs)
    if isinstance(services := found.get("services"), dict):
        found["services"] = {name: services[name] for name in SERVICES & services.keys()}
    return found


def _few_operations(model: dict[str, Any]) -> dict[str, Any]:
    operations = {name: model["operations"][name] for name in OPERATIONS & model["operations"].keys()}
    shapes = model["shapes"]
    needed: set[str] = set()
    waiting = list(_shapes_in(operations))
    while waiting:
        name = waiting.pop()
        if name not in needed and name in shapes:
            needed.add(name)
            waiting.extend(_shapes_in(shapes[name]))
    return {**model, "operations": operations, "shapes": {name: shapes[name] for name in needed}}


def _shapes_in(found: Any) -> Iterable[str]:
    """Names that a description refers to."""
    if isinstance(found, dict):
        if isinstance(name := found.get("shape"), str):
            yield name
        for value in found.values():
            yield from _shapes_in(value)
    elif isinstance(found, list):
        for value in found:
            yield from _shapes_in(value)
