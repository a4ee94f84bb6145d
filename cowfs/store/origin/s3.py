"""A bucket of S3, or a prefix of it, as an origin: with the connections, credentials and errors of
`S3Store`. s3fs sends its requests, since obstore changes or refuses keys such as `a//b`, which
origins may have.

    call    request                            notes
    list    ListObjectsV2                      one for each 1,000 keys
    look    HEAD                               its ETag in the form in which lists have it
    read    GET with Range and If-Match        the ETag of the answer reveals a server that ignores If-Match
    put     PUT, or a multipart upload         in parts of PART_BYTES and more, one after the other; a failed one is aborted;
                                               if the answer has no ETag of S3's, the object is looked for
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from cowfs.base.errors import ConflictError, CorruptError, CowfsError, NotFoundError, UnavailableError
from cowfs.format.store_url import StoreUrl
from cowfs.store.backends.s3.s3_by_s3fs import S3fsRequests
from cowfs.store.backends.s3.s3_errors import is_proof
from cowfs.store.backends.s3.s3_place import S3Place
from cowfs.store.backends.s3.s3_store import S3Requests, S3Store
from cowfs.store.credentials.identity import Access, Credentials
from cowfs.store.origin.contract import (
    OriginObject,
    Repeat,
    cut,
    etag_missing,
    mtime_of,
    require_unchanged,
    source_changed,
    source_gone,
    split_parts,
)

PART_BYTES = 16 << 20
PARTS_MAX = 9000  # S3 takes 10,000
DELETED_AT_ONCE = 1000


def open_s3_origin(place: StoreUrl, *, is_page: bool, access: Access, untrusted_server: str | None) -> S3Origin:
    return S3Origin.from_place(place, access=access, untrusted_server=untrusted_server)


class S3Origin(S3Store):
    """`prefix` is empty, or ends in '/'."""

    def list(self) -> Iterator[OriginObject]:  # type: ignore[override] # of another contract
        arguments: dict[str, Any] = {"Prefix": self._prefix, "MaxKeys": 1000}
        while True:
            answer = self._run(lambda _: self._sender().list_page(**arguments), "")
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
            answer = self._run(lambda _: self._sender().head(Key=name), key)
        except NotFoundError:
            return None
        return _object(key, int(answer["ContentLength"]), answer.get("LastModified"), answer.get("ETag"))

    def read(self, found: OriginObject, offset: int, length: int) -> bytes:
        arguments: dict[str, Any] = {"Key": self._name(found.key)}
        if length < found.size:
            arguments["Range"] = f"bytes={offset}-{offset + length - 1}"
        if found.tag:
            arguments["IfMatch"] = found.tag
        try:
            tag, data = self._run(lambda _: self._sender().get_object(**arguments), found.key)
        except NotFoundError as error:
            if error.details.get("code") == "NoSuchBucket":
                raise
            raise source_gone(self.url, found.key) from None
        except ConflictError:  # the condition failed
            raise source_changed(self.url, found.key) from None
        except CorruptError as error:
            if error.details.get("status") != 416:
                require_unchanged(self, found)
                raise
            tag, data = found.tag, b""  # there is no such range
        if found.tag and not tag:
            raise etag_missing(self.url, found.key)
        if found.tag and tag != found.tag:
            raise source_changed(self.url, found.key)
        if len(data) == length:
            return data
        require_unchanged(self, found)
        raise cut(self.url, found.key, length, len(data))

    def put(  # type: ignore[override] # of another contract
        self, key: str, size: int, pieces: Callable[[], Iterator[bytes]], repeat: Repeat[Any]
    ) -> OriginObject:
        where = {"Key": self._name(key)}
        if size <= PART_BYTES:
            body = b"".join(pieces())
            expected = _digest(body)
            made: OriginObject = repeat(
                lambda: self._confirm_put(key, size, self._call(key, "put_object", **where, Body=body), expected)
            )
            return made
        where["UploadId"] = repeat(partial(self._begin_upload, key, **where))
        try:
            parts = []
            for number, body in enumerate(split_parts(pieces(), max(PART_BYTES, size // PARTS_MAX)), 1):
                part = partial(self._part, key, **where, PartNumber=number, Body=body)
                parts.append({"PartNumber": number, "ETag": repeat(part)})
            whole: OriginObject = repeat(partial(self._complete_upload, key, size, where, parts))
            return whole
        except BaseException:
            with suppress(CowfsError):
                self._call(key, "abort_multipart_upload", **where)
            raise

    def delete(self, keys: Sequence[str], repeat: Repeat[Any]) -> None:  # type: ignore[override]
        for start in range(0, len(keys), DELETED_AT_ONCE):
            some = [*keys[start : start + DELETED_AT_ONCE]]
            if not repeat(partial(self._delete_batch, some)):
                for key in some:
                    repeat(partial(self._call, key, "delete_object", Key=self._name(key)))
                if self.look(some[0]) is not None:
                    raise self._untrue(some[0], "deleted, and is still there")

    def _begin_upload(self, key: str, **arguments: Any) -> str:
        """The id of an upload in parts."""
        id: str = self._call(key, "create_multipart_upload", **arguments).get("UploadId", "")
        if not id:
            raise self._untrue(key)
        return id

    def _complete_upload(
        self, key: str, size: int, where: dict[str, Any], parts: Sequence[dict[str, Any]]
    ) -> OriginObject:
        expected = _tag_of([part["ETag"] for part in parts])
        try:
            answer = self._call(key, "complete_multipart_upload", **where, MultipartUpload={"Parts": [*parts]})
        except NotFoundError:  # there is no such upload any more: it was completed, and the answer was lost
            made = self.look(key)
            if made is None or made.size != size or not expected or _bare(made.tag) != expected:
                raise
            return OriginObject(key, size, 0, made.tag)
        return self._confirm_put(key, size, answer, expected)

    def _part(self, key: str, **arguments: Any) -> str:
        """Its ETag."""
        tag: str = self._call(key, "upload_part", **arguments).get("ETag", "")
        if not tag:
            raise self._untrue(key)
        return tag

    def _confirm_put(self, key: str, size: int, answer: dict[str, Any], expected: str) -> OriginObject:
        """The object after a put. expected: its ETag, if ETags are MD5s. UnavailableError: it is
        not there, although the answer says so."""
        tag = answer.get("ETag", "")
        if is_proof(tag):
            return OriginObject(key, size, 0, tag)
        made = self.look(key)
        if made is None or made.size != size:
            raise self._untrue(key)
        is_its = bool(made.tag) and _bare(made.tag) == _bare(tag)
        if made.tag and expected and not is_its and _bare(made.tag) != expected:
            raise self._untrue(key)
        return OriginObject(key, size, 0, made.tag if expected or is_its else "")  # "": the next export puts it again

    def _untrue(self, key: str, what: str = "acknowledged, and is not there") -> UnavailableError:
        return UnavailableError(
            f"{self.url}: {key} was {what}",
            hint="Something between this machine and the server answers in its place. Try again; nothing is lost.",
        )

    def _name(self, key: str) -> str:
        """The object's key in the bucket."""
        return self._prefix + key if key else self._prefix.rstrip("/")

    def _call(self, key: str, operation: str, **arguments: Any) -> dict[str, Any]:
        return self._run(lambda _: self._sender().call(operation, **arguments), key)

    def _sender(self) -> S3fsRequests:
        sender = self._connect()
        assert isinstance(sender, S3fsRequests)
        return sender

    def _send_by(self, place: S3Place, credentials: Callable[[], Credentials] | None) -> S3Requests:
        return S3fsRequests(place, credentials)


def _tag_of(parts: Sequence[str]) -> str:
    """The ETag of an object of these parts, where ETags are MD5s; "": they are not."""
    try:
        digests = b"".join(bytes.fromhex(tag.strip('"')) for tag in parts)
    except ValueError:
        return ""
    return f"{_digest(digests)}-{len(parts)}"


def _bare(tag: str) -> str:
    """What servers and proxies give now with quotes or as a weak one, now without."""
    return tag.removeprefix("W/").strip('"')


def _digest(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _object(key: str, size: int, modified: datetime | None, tag: str | None) -> OriginObject:
    """modified: None where the server does not say, as of an object without a time."""
    return OriginObject(key, size, 0 if modified is None else mtime_of(modified), tag or "")
