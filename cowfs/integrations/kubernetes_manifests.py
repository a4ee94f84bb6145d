"""`allow_fuse` for YAML with several documents, as files for `kubectl apply` have it.

Documents without a pod stay as they are, byte for byte. In a changed document, every scalar keeps
its text and its quotes, so `0644` and `12:30` mean what they meant to Kubernetes; comments and
layout are lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import yaml

from cowfs.errors import InvalidInputError
from cowfs.integrations.kubernetes import FUSE_RESOURCE, Wanted, change_manifest, path_to_pod

_MARK = re.compile(r"^(?=---(?:\s|$))", re.MULTILINE)
"""The beginnings of documents. YAML permits no such line within one."""
_KEPT_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("bool", "merge", "null")}
_WORD = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[A-Za-z][A-Za-z0-9_./-]*", re.IGNORECASE)
"""A text of `allow_fuse` that means itself without quotes."""


class Patched(NamedTuple):
    """text: all documents. changed: KIND/NAME of those that were changed."""

    text: str
    changed: list[str]


def allow_fuse_in_manifests(
    text: str, *, resource: str = FUSE_RESOURCE, privileged: bool = False, container: str | None = None
) -> Patched:
    """Changes the pod of every document that has one, and of the items of a List.

    InvalidInputError: the text is not YAML, or as of `allow_fuse`."""
    changed: list[str] = []

    def change(manifest: dict[str, Any]) -> dict[str, Any]:
        try:
            new = change_manifest(manifest, Wanted(resource, privileged, container))
        except InvalidInputError as error:
            raise InvalidInputError(f"{_name(manifest)}: {error.message}", hint=error.hint) from error
        except (AttributeError, TypeError) as error:
            raise InvalidInputError(
                f"{_name(manifest)}: a field of the pod has a value of another kind than Kubernetes expects: {error}",
                hint="Compare it with `kubectl explain pod.spec`.",
            ) from error
        if new != manifest:
            changed.append(_name(manifest))
        return new

    return Patched("".join(_patch(each, change) for each in _MARK.split(text)), changed)


def _patch(document: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> str:
    if all(line.startswith(("#", "%")) or not line.strip() for line in document.splitlines()):
        return document
    try:
        manifest = yaml.load(document, Loader=_Loader)
    except (yaml.YAMLError, ValueError, LookupError, AttributeError) as error:  # the latter by wrong values of tags
        raise InvalidInputError(
            f"this is not a manifest in YAML: {' '.join(str(error).split())}",
            hint="Fill in templates before, as with `helm template` or `kustomize build`.",
        ) from error
    except RecursionError as error:
        raise _recursion() from error
    try:
        new = _change_items(manifest, change)
        if new == manifest:
            return document
    except RecursionError as error:
        raise _recursion() from error
    start = "---\n" if document.startswith("---") else ""
    return start + yaml.dump(new, Dumper=_Dumper, sort_keys=False, width=4096)


def _recursion() -> InvalidInputError:
    return InvalidInputError(
        "this is no manifest: it is nested too deeply, or contains itself", hint="Remove what is nested in it."
    )


def _change_items(manifest: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    if not isinstance(manifest, dict):
        return manifest
    if isinstance(items := manifest.get("items"), list) and str(manifest.get("kind")).endswith("List"):
        return {**manifest, "items": [_change_items(each, change) for each in items]}
    return manifest if path_to_pod(manifest) is None else change(manifest)


def _name(manifest: dict[str, Any]) -> str:
    metadata = manifest.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    return f"{manifest.get('kind', 'pod')}/{known.get('name') or known.get('generateName') or '?'}"


class _Text(str):
    """A scalar as it was written. style: its quotes; None: none."""

    style: str | None = None


class _Loader(yaml.SafeLoader):
    """Leaves numbers and times as text."""


class _Dumper(yaml.SafeDumper):
    pass


_Loader.yaml_implicit_resolvers = _Dumper.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag in _KEPT_TAGS]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _construct(_: yaml.SafeLoader, node: yaml.ScalarNode) -> _Text:
    text = _Text(node.value)
    text.style = node.style
    return text


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = text.style if isinstance(text, _Text) else None if _WORD.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Loader.add_constructor("tag:yaml.org,2002:str", _construct)
_Dumper.add_representer(_Text, _represent)
_Dumper.add_representer(str, _represent)
