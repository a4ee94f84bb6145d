"""The table of backends: one entry says which protocols a backend serves, how their URLs are
written, which code opens a store or an origin, and what that code needs.

    protocols         names as store URLs have them; the first is the one that `aliases` stand for
    store             opens a store (`store.backends.imports.StoreOpener`)
    origin            opens an origin of imports (`store.backends.imports.OriginOpener`)
    address           compares and completes URLs (`store.backends.imports.Address`)
    authority         "bucket": a bucket or host[:port]; "account": also CONTAINER@ACCOUNT; "optional"; "absent": a local path
    reach             "network"; "machine": other machines cannot reach it; "process": it ends with this process
    names_server      the authority is a server, which sees the user's credentials only if the user trusts it
    has_aws_credentials
                      the environment's credentials are those of AWS' tools: variables, profile, the machine's role
    has_exact_lists   a list shows the same tag of an object as a request for that object
    settings          fields of `Storage` besides its secrets; "endpoint" and "region" are also options of the URL
    credentials       the sets of secrets of `Storage` that it takes, and the same in words for error messages
    extra             the extra of the cowfs package that installs its client

The table stands in `format` because parsing URLs and locators depends on it. It names code as
"module:object", so that reading it imports no client; `store.backends.imports` imports the module
when a store is opened. Any other protocol is opened with the defaults, through fsspec, if the user
names it; locators refuse it. A program adds a backend of its own with `register`.
"""

from __future__ import annotations

from typing import Any, Literal

from cowfs.base.fast_dataclass import dataclass

_Code = str | Any
"""A "module:object" to import, or the object itself."""


@dataclass(frozen=True, kw_only=True)
class Backend:
    protocols: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    store: _Code = "cowfs.store.backends.fsspec_store:open_fsspec_store"
    origin: _Code = "cowfs.store.origin.fsspec:open_fsspec_origin"
    address: _Code = "cowfs.store.backends.imports:PlainAddress"
    authority: Literal["bucket", "account", "optional", "absent"] = "bucket"
    reach: Literal["network", "machine", "process"] = "network"
    names_server: bool = False
    has_aws_credentials: bool = False
    has_exact_lists: bool = False
    settings: frozenset[str] = frozenset()
    credentials: tuple[frozenset[str], ...] = ()
    credentials_text: str = ""
    extra: str = ""


_BUILT_IN = (
    Backend(
        protocols=("file",),
        aliases=("local",),
        store="cowfs.store.backends.directory.directory_store:open_directory_store",
        origin="cowfs.store.origin.directory:open_directory_origin",
        authority="absent",
        reach="machine",
    ),
    Backend(
        protocols=("memory",),
        store="cowfs.store.backends.fsspec_store:open_memory_store",
        authority="optional",
        reach="process",
    ),
    Backend(
        protocols=("s3",),
        aliases=("s3a", "s3n"),
        store="cowfs.store.backends.s3.s3_store:open_s3_store",
        origin="cowfs.store.origin.s3:open_s3_origin",
        address="cowfs.store.backends.s3.s3_address:S3Address",
        has_aws_credentials=True,
        has_exact_lists=True,
        settings=frozenset({"endpoint", "region", "path_style", "credential_process"}),
        credentials=(
            frozenset({"access_key", "secret_key"}),
            frozenset({"access_key", "secret_key", "session_token"}),
        ),
        credentials_text="access_key and secret_key, and session_token for temporary ones",
    ),
    Backend(
        protocols=("gs",),
        aliases=("gcs",),
        store="cowfs.store.backends.cloud.cloud_store:open_cloud_store",
        origin="cowfs.store.origin.cloud:open_cloud_origin",
        credentials=(frozenset({"session_token"}),),
        credentials_text="session_token, an OAuth access token",
        extra="gcs",
    ),
    Backend(
        protocols=("abfs", "abfss", "az"),
        store="cowfs.store.backends.cloud.cloud_store:open_cloud_store",
        origin="cowfs.store.origin.cloud:open_cloud_origin",
        address="cowfs.store.backends.cloud.azure_address:AzureAddress",
        authority="account",
        credentials=(frozenset({"secret_key"}), frozenset({"session_token"})),
        credentials_text="secret_key, the account's key, or session_token, a SAS token",
        extra="azure",
    ),
    Backend(
        protocols=("http", "https"),
        store="cowfs.store.backends.fsspec_store:open_http_store",
        origin="cowfs.store.origin.http:open_http_origin",
        names_server=True,
    ),
)

_by_protocol: dict[str, Backend] = {}
_by_alias: dict[str, str] = {}


def register(backend: Backend) -> None:
    """Adds a backend to the table, for this process. ValueError: another one serves a protocol or
    an alias of it already."""
    names = (*backend.protocols, *backend.aliases)
    for name in names:
        if _by_protocol.get(_by_alias.get(name, name), backend) != backend:
            raise ValueError(f"{name}: is a protocol of another backend")
    _by_protocol.update(dict.fromkeys(backend.protocols, backend))
    _by_alias.update(dict.fromkeys(backend.aliases, backend.protocols[0]))


for _backend in _BUILT_IN:
    register(_backend)


def find(protocol: str) -> Backend:
    """The backend that serves a protocol; for one that is not registered, fsspec with the
    defaults."""
    return _by_protocol.get(protocol) or Backend(protocols=(protocol,))


def of_url(url: str) -> Backend:
    """The backend that serves the store at this URL."""
    return find(resolve_alias(url.partition(":")[0].lower()))


def resolve_alias(protocol: str) -> str:
    """The name that store URLs have for a protocol."""
    return _by_alias.get(protocol, protocol)


def is_registered(protocol: str) -> bool:
    return protocol in _by_protocol


def protocols() -> list[str]:
    """The protocols of all registered backends, sorted."""
    return sorted(_by_protocol)


def spellings() -> list[str]:
    """The protocols and aliases with which people write URLs of places outside this process."""
    return sorted(
        name
        for backend in {id(each): each for each in _by_protocol.values()}.values()
        if backend.reach != "process"
        for name in (*backend.protocols, *(backend.aliases if backend.reach == "network" else ()))
    )
