"""A bucket of S3, or a prefix of it, as an origin: with the connections, credentials and errors of
`S3Store`, but for keys that are not ours.

    call    request                            notes
    list    ListObjectsV2                      one for each 1,000 keys
    look    HEAD                               its ETag in the form in which lists have it
    read    GET with Range and If-Match        a server that ignores If-Match is found out by the ETag of its answer
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any

from cowfs.errors import ConflictError, CorruptError, NotFoundError
from cowfs.store.origin.contract import OriginObject, changed, gone
from cowfs.store.s3 import S3Store

_PIECE_BYTES = 64 << 10


class S3Origin(S3Store):
    """`prefix` is empty, or ends in '/'."""

    def list(self) -> Iterator[OriginObject]:  # type: ignore[override] # of another contract
        arguments: dict[str, Any] = {"Prefix": self._prefix, "MaxKeys": 1000}
        while True:
            answer = self._run(partial(self._call, "list_objects_v2", **arguments), "")
            for entry in answer.get("Contents", []):
                key = entry["Key"][len(self._prefix) :]
                if key:  # else a marker of the prefix itself
                    yield _object(key, int(entry["Size"]), entry["LastModified"], entry.get("ETag"))
            if not answer.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = answer["NextContinuationToken"]

    def look(self, key: str) -> OriginObject | None:
        if not (name := self._name(key)):
            return None
        try:
            answer = self._run(partial(self._call, "head_object", Key=name), key)
        except NotFoundError:
            return None
        return _object(key, int(answer["ContentLength"]), answer["LastModified"], answer.get("ETag"))

    def read(self, found: OriginObject, offset: int, length: int) -> bytes:
        arguments: dict[str, Any] = {"Key": self._name(found.key)}
        if length < found.size:
            arguments["Range"] = f"bytes={offset}-{offset + length - 1}"
        if found.tag:
            arguments["IfMatch"] = found.tag
        try:
            tag, data = self._run(lambda: self._body(arguments), found.key)
        except NotFoundError as error:
            if error.details.get("code") == "NoSuchBucket":
                raise
            raise gone(self.url, found.key) from None
        except (ConflictError, CorruptError):  # the condition failed, or it is shorter now
            raise changed(self.url, found.key) from None
        if len(data) != length or (found.tag and tag != found.tag):
            raise changed(self.url, found.key)
        return data

    def _name(self, key: str) -> str:
        """The object's key in the bucket."""
        return self._prefix + key if key else self._prefix.rstrip("/")

    async def _body(self, arguments: dict[str, Any]) -> tuple[str, bytes]:
        answer = await self._call("get_object", **arguments)
        pieces = []
        async with answer["Body"] as body:
            while piece := await body.read(_PIECE_BYTES):
                pieces.append(piece)
        return answer.get("ETag", ""), b"".join(pieces)


def _object(key: str, size: int, modified: datetime, tag: str | None) -> OriginObject:
    return OriginObject(key, size, int(modified.timestamp()) * 1_000_000_000 + modified.microsecond * 1000, tag or "")
