"""Azure Blob Storage, by adlfs' connection and credentials.

    put      adlfs' (one request up to 64 MiB, blocks beyond that), proven by the ETag of its answer
    objects  all: flat, in pages. From some name on or a few: level by level, since Azure's lists start at a prefix, and
             only those levels that can hold one
    size     HEAD; adlfs lists a directory, too

get and delete are adlfs' own. A page of a list counts if it says of which container it is.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from typing import Any, cast

from adlfs import AzureBlobFileSystem
from azure.core.exceptions import DecodeError, ResourceNotFoundError
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob.aio import BlobServiceClient
from fsspec.asyn import sync

from cowfs.errors import InvalidInputError
from cowfs.store.bodies import CONNECT_S, SILENCE_S, WatchedBody
from cowfs.store.contract import Data, ObjectInfo, nanoseconds
from cowfs.store.errors import NoAnswer
from cowfs.store.identity import Credentials
from cowfs.store.patience import silence_s
from cowfs.store.provider import NO_LIST, NOT_FOUND_BY_OTHERS

_BLOCK_BYTES = 256 << 10  # that an answer is read by
_CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"


class Azure:
    credentials_hint = (
        "Check AZURE_STORAGE_CONNECTION_STRING or AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_SAS_TOKEN and until when "
        "it is valid; without them, `az login`."
    )

    def open(self, options: dict[str, Any], given: Credentials | None) -> AzureBlobFileSystem:
        account = options.get("account_name", "")
        if given is not None:
            options = {**options, "connection_string": connection_string(given, account)}
        try:
            file_system = AzureBlobFileSystem(use_listings_cache=False, skip_instance_cache=True, **options)
        except ValueError:  # what it says may hold what it was given
            raise _not_connected(account) from None
        adlfs_client = file_system.service_client
        if account and adlfs_client.account_name not in (None, account):
            raise InvalidInputError(
                f"{_CONNECTION_STRING} is of the account {adlfs_client.account_name}, the store's URL of {account}",
                hint="Correct one of them: locators name the account of the URL.",
            )
        file_system.service_client = BlobServiceClient(
            adlfs_client.url,
            credential=adlfs_client.credential,
            retry_total=0,
            transport=_Transport(
                connection_timeout=CONNECT_S,
                read_timeout=silence_s(SILENCE_S),
                connection_data_block_size=_BLOCK_BYTES,
            ),
        )
        return file_system

    def size(self, file_system: AzureBlobFileSystem, path: str) -> int:
        async def ask() -> int:
            container, _, name = path.partition("/")
            async with file_system.service_client.get_blob_client(container, name) as client:
                return int((await client.get_blob_properties()).size)

        return cast("int", sync(file_system.loop, ask))

    def put(self, file_system: AzureBlobFileSystem, path: str, data: Data, *, is_new: bool) -> bool:
        # One that fsspec's configuration gives is adlfs' to hand on.
        limits = {} if "read_timeout" in file_system._timeout_kwargs else {"read_timeout": SILENCE_S}
        try:
            said = file_system.pipe_file(path, bytes(data), mode="create" if is_new else "overwrite", **limits)
        except ResourceNotFoundError as error:
            raise _not_found(error) from None
        return bool(said and said.get("etag"))

    def objects(
        self, file_system: AzureBlobFileSystem, place: str, start_after: str, limit: int | None
    ) -> Iterable[ObjectInfo]:
        container, _, prefix = place.partition("/")
        after = start_after.partition("/")[2]

        async def ask() -> list[ObjectInfo]:
            async with file_system.service_client.get_container_client(container) as client:
                if limit is None and not after:
                    blobs = client.list_blobs(name_starts_with=prefix, include=["metadata"])
                    found = [_info(blob) async for blob in _listed(blobs, container, prefix) if not _is_directory(blob)]
                    return sorted(found, key=lambda info: info.key)
                found = []
                if limit != 0:
                    async for info in _walk(client, prefix, after):
                        found.append(info)
                        if len(found) == limit:
                            break
                return found

        return cast("list[ObjectInfo]", sync(file_system.loop, ask))


class _Transport(AioHttpTransport):  # type: ignore[misc]  # its package decides at run time what it is
    """Bodies are watched."""

    def _get_request_data(self, request: Any) -> Any:
        data = super()._get_request_data(request)
        return WatchedBody(data) if data and isinstance(data, bytes) else data


async def _walk(client: Any, prefix: str, after: str) -> AsyncIterator[ObjectInfo]:
    """Blobs whose names begin with prefix, in the order of their names. What cannot hold a name in
    question is not listed."""
    level = client.walk_blobs(name_starts_with=prefix, include=["metadata"], delimiter="/")
    entries = {entry.name: entry async for entry in _listed(level, client.container_name, prefix)}
    for name, entry in sorted(entries.items()):
        if name.endswith("/"):
            if name != prefix and (name > after or after.startswith(name)):
                async for info in _walk(client, name, after):
                    yield info
        elif name > after and not _is_directory(entry):
            yield _info(entry)


async def _listed(listing: Any, container: str, prefix: str) -> AsyncIterator[Any]:
    """Blobs, and what they have in common up to the delimiter, page by page."""
    pages = listing.by_page()
    while True:
        try:
            page = [entry async for entry in await anext(pages)]
        except StopAsyncIteration:
            return
        except ResourceNotFoundError as error:
            raise _not_found(error) from None
        except (DecodeError, AttributeError, TypeError, ValueError):  # of what the client made of something else
            raise NoAnswer(NO_LIST) from None
        if pages.container != container or not all((entry.name or "").startswith(prefix) for entry in page):
            raise NoAnswer(NO_LIST)
        for entry in page:
            yield entry


def _info(blob: Any) -> ObjectInfo:
    if blob.size is None or blob.last_modified is None:
        raise NoAnswer(NO_LIST)
    return ObjectInfo(blob.name, int(blob.size), nanoseconds(blob.last_modified))


def _is_directory(blob: Any) -> bool:
    """Of an account with directories."""
    said = {name.lower(): value for name, value in (blob.metadata or {}).items()}
    return blob.name.endswith("/") or "true" in (said.get("hdi_isfolder"), said.get("is_directory"))


def _not_found(error: ResourceNotFoundError) -> Exception:
    if getattr(error, "error_code", None) == "ContainerNotFound":
        return FileNotFoundError("there is no such container")
    return NoAnswer(NOT_FOUND_BY_OTHERS)


def _not_connected(account: str) -> InvalidInputError:
    if os.environ.get(_CONNECTION_STRING):
        return InvalidInputError(
            f"the value of {_CONNECTION_STRING} is no connection string",
            hint="It has the form DefaultEndpointsProtocol=https;AccountName=…;AccountKey=…; or unset it.",
        )
    if not account:
        return InvalidInputError(
            "the store's URL names no account", hint="Behind abfs:// come CONTAINER@ACCOUNT and a path."
        )
    return InvalidInputError(f"the account {account} cannot be connected to", hint=Azure.credentials_hint)


def connection_string(given: Credentials, account: str) -> str:
    """Keys, and a string of another account, in the environment come before all but such a one."""
    if given.token is not None:
        endpoint = f"BlobEndpoint=https://{account}.blob.core.windows.net"
        return f"{endpoint};SharedAccessSignature={given.token.removeprefix('?')}"
    return (
        f"DefaultEndpointsProtocol=https;AccountName={account};AccountKey={given.secret_key};"
        "EndpointSuffix=core.windows.net"
    )
