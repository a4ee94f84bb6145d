"""Azure Blob Storage, through adlfs' connection and credentials.

    put        one request up to 64 MiB, blocks beyond that; proven by the ETag of its answer
    put_parts  in blocks, proven in the same way
    objects    all: flat, in pages. A limited number, or those after some name: level by level, since Azure's lists start at a
               prefix, and only levels that can hold a matching name
    look       HEAD; adlfs lists a directory, too
    read       as it is stored: compressed blobs are not unpacked on the way

adlfs' own calls interpret a "?" in a name and the text after it. A page of a list counts only if it
names its container.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, cast

from adlfs import AzureBlobFileSystem
from azure.core.exceptions import (
    DecodeError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob import BlobBlock
from azure.storage.blob.aio import BlobServiceClient
from fsspec.asyn import sync

from cowfs.base.errors import AccessDeniedError, InvalidInputError
from cowfs.store.backends.backend_errors import NoAnswer
from cowfs.store.backends.cloud.bodies import CONNECT_S, SILENCE_S, WatchedBody
from cowfs.store.backends.cloud.provider import NO_LIST, NO_OBJECT, NOT_FOUND_BY_OTHERS, OTHER_RANGE
from cowfs.store.contract import AcceptsSize, Data, ObjectInfo, any_size, nanoseconds
from cowfs.store.credentials.identity import Credentials
from cowfs.store.reliability.patience import silence_s

_BLOCK_BYTES = 256 << 10  # that an answer is read by
_ABSENT = ("BlobNotFound", "ContainerNotFound")
_HIDDEN = "ResourceNotFound"
_RANGE = re.compile(r"bytes (\d+)-(\d+)/")
_CONNECTION_STRING = "AZURE_STORAGE_CONNECTION_STRING"


class Azure:
    file_system = AzureBlobFileSystem
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
        except ValueError:  # its message may hold the credentials
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
            permit_redirects=False,
            transport=_Transport(
                connection_timeout=CONNECT_S,
                read_timeout=silence_s(SILENCE_S),
                connection_data_block_size=_BLOCK_BYTES,
            ),
        )
        return file_system

    def look(self, file_system: AzureBlobFileSystem, path: str) -> ObjectInfo:
        found = _ask(file_system, path, lambda blob: blob.get_blob_properties())
        if _is_stub(found):
            raise FileNotFoundError("it is a directory")
        return _info(found)

    def read(
        self,
        file_system: AzureBlobFileSystem,
        path: str,
        offset: int = 0,
        length: int | None = None,
        accepts: AcceptsSize = any_size,
    ) -> bytes:
        return self._read(file_system, path, offset, length, accepts)[0]

    def read_state(
        self, file_system: AzureBlobFileSystem, path: str, tag: str, offset: int, length: int
    ) -> bytes | None:
        data, found = self._read(file_system, path, offset, length)
        return data if found == tag else None

    def _read(
        self,
        file_system: AzureBlobFileSystem,
        path: str,
        offset: int,
        length: int | None,
        accepts: AcceptsSize = any_size,
    ) -> tuple[bytes, str]:
        """And the tag of the state that they are of. A long blob takes several requests, which are
        of one state."""
        ranges: list[str] = []

        async def read(blob: Any) -> tuple[bytes, str]:
            span = {} if length is None else {"offset": offset, "length": length}
            said = {"raw_response_hook": lambda answer: ranges.append(_range_of(answer.http_response))}
            try:
                download = await blob.download_blob(**span, **said, decompress=False)
                accepts(download.size)
                data = await download.readall()
            except ResourceModifiedError:
                raise NoAnswer("the blob was replaced while it was read") from None
            if not download.properties.blob_type:
                raise NoAnswer(NO_OBJECT)
            if not _follow_one_another(ranges, offset):
                raise NoAnswer(OTHER_RANGE)
            return data, _tag(download.properties.etag)

        return cast("tuple[bytes, str]", _ask(file_system, path, read))

    def put(self, file_system: AzureBlobFileSystem, path: str, data: Data, *, is_new: bool) -> bool:
        options = {"overwrite": not is_new, **_limits(file_system)}

        async def put(blob: Any) -> Any:
            return await blob.upload_blob(bytes(data), **options)

        try:
            said = _ask(file_system, path, put)
        except ResourceExistsError as error:
            raise FileExistsError(path) from error
        return bool(said and said.get("etag"))

    def put_parts(
        self,
        file_system: AzureBlobFileSystem,
        path: str,
        size: int,
        parts: Iterator[bytes],
        repeat: Callable[[Callable[[], Any]], Any],
    ) -> bool:
        blocks = []
        for number, part in enumerate(parts):
            blocks.append(BlobBlock(f"{number:08}"))
            repeat(partial(_ask, file_system, path, partial(_stage_block, blocks[-1].id, part, _limits(file_system))))
        said = repeat(partial(_ask, file_system, path, partial(_commit_blocks, blocks, _limits(file_system))))
        return bool(said and said.get("etag"))

    def objects(
        self, file_system: AzureBlobFileSystem, place: str, start_after: str = "", limit: int | None = None
    ) -> Iterable[ObjectInfo]:
        after = start_after.partition("/")[2]
        if limit is None and not after:
            return [info for info in self.everything(file_system, place) if not info.key.endswith("/")]
        container, _, prefix = place.partition("/")

        async def ask() -> list[ObjectInfo]:
            found: list[ObjectInfo] = []
            async with file_system.service_client.get_container_client(container) as client:
                if limit != 0:
                    async for info in _walk(client, prefix, after):
                        found.append(info)
                        if len(found) == limit:
                            break
            return found

        return cast("list[ObjectInfo]", sync(file_system.loop, ask))

    def everything(self, file_system: AzureBlobFileSystem, place: str) -> Iterable[ObjectInfo]:
        container, _, prefix = place.partition("/")

        async def ask() -> list[ObjectInfo]:
            async with file_system.service_client.get_container_client(container) as client:
                blobs = client.list_blobs(name_starts_with=prefix, include=["metadata"])
                found = [_info(blob) async for blob in _list_pages(blobs, container, prefix)]
            return sorted(found, key=lambda info: info.key)

        return cast("list[ObjectInfo]", sync(file_system.loop, ask))

    def delete(self, file_system: AzureBlobFileSystem, path: str) -> None:
        _ask(file_system, path, lambda blob: blob.delete_blob())


def _ask(file_system: AzureBlobFileSystem, path: str, request: Callable[[Any], Awaitable[Any]]) -> Any:
    """What a request of a blob's client returns."""
    container, _, name = path.partition("/")

    async def ask() -> Any:
        async with file_system.service_client.get_blob_client(container, name) as client:
            return await request(client)

    try:
        return sync(file_system.loop, ask)
    except HttpResponseError as error:
        if error.status_code == 404:
            raise _not_found(error) from None
        raise


def _stage_block(name: str, part: bytes, limits: dict[str, float], blob: Any) -> Awaitable[Any]:
    sent: Awaitable[Any] = blob.stage_block(name, part, len(part), **limits)
    return sent


def _commit_blocks(blocks: list[BlobBlock], limits: dict[str, float], blob: Any) -> Awaitable[Any]:
    sent: Awaitable[Any] = blob.commit_block_list(blocks, **limits)
    return sent


def _limits(file_system: AzureBlobFileSystem) -> dict[str, float]:
    """Limits of requests with a body. Limits from fsspec's configuration are left for adlfs to pass
    on."""
    return {"read_timeout": SILENCE_S, **file_system._timeout_kwargs}


def _range_of(answer: Any) -> str:
    """Of the object; "": it is all of it."""
    return str(answer.headers.get("Content-Range", "")) if answer.status_code == 206 else ""


def _follow_one_another(ranges: list[str], start: int) -> bool:
    for each in filter(None, ranges):
        found = _RANGE.match(each)
        if found is None or int(found[1]) != start:
            return False
        start = int(found[2]) + 1
    return True


def _tag(etag: str | None) -> str:
    """In a list it has no quotes."""
    return (etag or "").strip('"')


class _Transport(AioHttpTransport):  # type: ignore[misc]  # its package chooses the class at run time
    """Bodies are watched."""

    def _get_request_data(self, request: Any) -> Any:
        data = super()._get_request_data(request)
        return WatchedBody(data) if data and isinstance(data, bytes) else data


async def _walk(client: Any, prefix: str, after: str) -> AsyncIterator[ObjectInfo]:
    """Blobs whose names begin with prefix, in the order of their names. Levels that cannot hold a
    matching name are not listed."""
    level = client.walk_blobs(name_starts_with=prefix, include=["metadata"], delimiter="/")
    entries = {entry.name: entry async for entry in _list_pages(level, client.container_name, prefix)}
    for name, entry in sorted(entries.items()):
        if name.endswith("/"):
            if name != prefix and (name > after or after.startswith(name)):
                async for info in _walk(client, name, after):
                    yield info
        elif name > after and not _is_directory(entry):
            yield _info(entry)


async def _list_pages(listing: Any, container: str, prefix: str) -> AsyncIterator[Any]:
    """Blobs, and the prefixes that blobs share up to the delimiter, page by page."""
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
    name = f"{blob.name.rstrip('/')}/" if _is_directory(blob) else blob.name
    return ObjectInfo(name, int(blob.size), nanoseconds(blob.last_modified), _tag(blob.etag))


def _is_directory(blob: Any) -> bool:
    return blob.name.endswith("/") or _is_stub(blob)


def _is_stub(blob: Any) -> bool:
    """Of a directory, in an account that has them."""
    said = {name.lower(): value for name, value in (blob.metadata or {}).items()}
    return "true" in (said.get("hdi_isfolder"), said.get("is_directory"))


def _not_found(error: HttpResponseError) -> Exception:
    if getattr(error, "error_code", None) in _ABSENT:
        return FileNotFoundError("there is no such blob or container")
    if getattr(error, "error_code", None) == _HIDDEN:
        return AccessDeniedError(
            "there is no such container or blob, or these credentials may not see it", hint=Azure.credentials_hint
        )
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
