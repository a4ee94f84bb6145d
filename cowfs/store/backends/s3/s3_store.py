"""S3 and everything that speaks its protocol. Each call of the contract is one request (a list: one
for each 1,000 keys; a delete likewise).

    call            request                       notes
    put_if_absent   PUT with If-None-Match: *     412 is ConflictError; 409 (another one in flight) is UnavailableError
    get_range       GET with Range                a server may send less than asked: checked; a view of the received bytes
    stream_range    the same                      the body in pieces, as it arrives
    size            HEAD                          a refusal has no reason there: GET is asked for it
    list            ListObjectsV2, start-after    pages in the server's order; sorted when the whole answer has arrived
    put             PUT                           if the answer has no ETag of S3's, the object is looked for; likewise if conditional
    delete          DeleteObjects                 one by one if the server does not know it (then one is looked for), and a single key

Requests are sent by obstore (`s3_by_obstore`), or by s3fs (`s3_by_s3fs`) in a child that was forked
after obstore was used; this module depends on neither. Both send each request once, so a
conditional put is sent once; `retrying` repeats the calls that may be repeated.

Credentials: those of an `identity`; without one, those that AWS' tools find (`aws`), and none for a
server that `trust` does not know. Without credentials, requests are not signed, as for public
buckets. With an identity, every request is signed with the newest credentials, over the same
connections, and a refused one is sent again when there are others. Endpoint, region and style of
addresses: the store's URL and `Access`, else AWS' settings. If a bucket of Amazon's lies in another
region, one request asks for that region.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Protocol, Self, TypeVar

from cowfs.base.errors import (
    AccessDeniedError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from cowfs.format import object_kinds
from cowfs.format.store_url import StoreUrl
from cowfs.store.backends import forks
from cowfs.store.backends.backend_errors import refused_anonymously
from cowfs.store.backends.s3 import s3_by_obstore
from cowfs.store.backends.s3.s3_errors import (
    ELSEWHERE,
    NO_CREDENTIALS,
    Malformed,
    NoCredentials,
    Refused,
    S3Failure,
    Silent,
    Unproven,
    WantsHttps,
    from_failure,
    name_permission,
    refusal_of,
)
from cowfs.store.backends.s3.s3_place import S3Place, place_of, region_of, wants_https
from cowfs.store.contract import AcceptsSize, Data, ObjectInfo, ObjectStore, any_size, check_key
from cowfs.store.credentials import aws
from cowfs.store.credentials.identity import AMBIENT, Access, Credentials
from cowfs.store.readonly import ReadOnlyStore

T = TypeVar("T")

_DELETE_BATCH = 1000


class S3Requests(Protocol):
    """One bucket's requests, by keys below the prefix. Every failure is a S3Failure."""

    def get(self, key: str, accepts: AcceptsSize) -> bytes: ...

    def get_range(self, key: str, offset: int, length: int) -> Data: ...

    def stream_range(self, key: str, offset: int, length: int) -> Iterator[Data]:
        """The request is answered when this returns; S3Failure by any piece."""
        ...

    def size(self, key: str) -> int: ...

    def size_by_get(self, key: str) -> int: ...

    def put(self, key: str, data: Data, *, is_new: bool) -> None: ...

    def pages(self, prefix: str, start_after: str, most: int) -> Iterator[builtins.list[ObjectInfo]]: ...

    def delete_batch(self, keys: Sequence[str]) -> None: ...

    def delete_one(self, key: str) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None:
        """In a child that was just forked: nothing of the parent's is used or released."""
        ...


def open_s3_store(place: StoreUrl, *, create: bool, access: Access, untrusted_server: str | None) -> S3Store:
    return S3Store.from_place(place, access=access, untrusted_server=untrusted_server)


class S3Store:
    """The objects below `prefix` (empty, or ending in '/') of a bucket."""

    def __init__(
        self,
        *,
        bucket: str,
        prefix: str,
        url: str,
        endpoint: str | None,
        region: str | None,
        untrusted_server: str | None = None,
        access: Access = AMBIENT,
    ) -> None:
        """untrusted_server: the endpoint, when it may not see credentials of the environment."""
        self._bucket, self._prefix, self._url = bucket, prefix, url
        self._endpoint, self._region = endpoint, region
        self._path_style = access.path_style
        self._identity = access.identity
        self._ambient = aws.AmbientCredentials()
        self._untrusted_server = untrusted_server
        self._lock = threading.Lock()  # guards those below; never held during a request
        self._is_anonymous = self._untrusted_server is not None
        self._requests: S3Requests | None = None
        self._careful: S3Requests | None = None  # for lists that must be believed
        self._lists_carefully = False
        self._is_sent_to_https: bool | None = None  # None: not yet asked; a race does no harm
        forks.register(self)

    @classmethod
    def from_place(cls, place: StoreUrl, *, access: Access, untrusted_server: str | None) -> Self:
        return cls(
            bucket=place.authority,
            prefix=f"{place.path}/" if place.path else "",
            url=str(place),
            endpoint=place.endpoint,
            region=place.region,
            untrusted_server=untrusted_server,
            access=access,
        )

    @property
    def url(self) -> str:
        return self._url

    def get(self, key: str) -> bytes:
        check_key(key)
        accepts = partial(object_kinds.check_read, key, url=self._url)
        return self._run(lambda requests: requests.get(key, accepts), key)

    def get_range(self, key: str, offset: int, length: int) -> Data:
        check_key(key)
        if length == 0:
            return b""
        data = self._run(lambda requests: requests.get_range(key, offset, length), key)
        if len(data) != length:
            raise CorruptError(
                f"{self._url}: {key} gave {len(data)} bytes at {offset}, {length} were expected", details={"key": key}
            )
        return data

    def stream_range(self, key: str, offset: int, length: int) -> Iterator[Data]:
        check_key(key)
        if length == 0:
            return
        pieces, done = self._run(lambda requests: requests.stream_range(key, offset, length), key), 0
        try:
            for piece in pieces:
                done += len(piece)
                yield piece
        except S3Failure as failure:
            raise self._explain(from_failure(failure, url=self._url, key=key)) from None
        if done != length:
            raise CorruptError(
                f"{self._url}: {key} gave {done} bytes at {offset}, {length} were expected", details={"key": key}
            )

    def size(self, key: str) -> int | None:
        check_key(key)
        try:
            return self._run(lambda requests: _size(requests, key), key)
        except NotFoundError:
            return None

    def put(self, key: str, data: Data) -> None:
        check_key(key)
        self._change(lambda requests: _put(requests, key, data, is_new=False), key, "s3:PutObject")

    def put_if_absent(self, key: str, data: Data) -> None:
        check_key(key)
        self._change(lambda requests: _put(requests, key, data, is_new=True), key, "s3:PutObject")

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> builtins.list[ObjectInfo]:
        def read_list(requests: S3Requests) -> builtins.list[ObjectInfo]:
            pages = requests.pages(prefix, start_after, limit or 0)
            return builtins.list(islice((info for page in pages for info in page), limit))

        found = self._run(lambda requests: self._list_with(requests, read_list), prefix)
        return found if limit is not None else sorted(found, key=lambda info: info.key)

    def list_carefully(self) -> None:
        """As of `contract.list_carefully`. obstore takes any answer of status 200 for a list, even
        for an empty one, and takes an answer without its continuation for a complete one."""
        self._lists_carefully = True

    def delete(self, keys: Iterable[str]) -> None:
        doomed = builtins.list(keys)
        for key in doomed:
            check_key(key)
        for start in range(0, len(doomed), _DELETE_BATCH):
            some = doomed[start : start + _DELETE_BATCH]
            if len(some) == 1:
                self._delete_one(some[0])
            elif not self._delete_batch(some):
                self._delete_singly(some)

    def read_only(self) -> ObjectStore:
        return ReadOnlyStore(self)

    def close(self) -> None:
        with self._lock:
            requests, self._requests = self._requests, None
            careful, self._careful = self._careful, None
        for each in (requests, careful):
            if each is not None:
                each.close()

    def reset_after_fork(self) -> None:
        """In a child that was just forked: a thread that it does not have may hold a lock or be
        renewing credentials, and connections are the parent's."""
        self._lock = threading.Lock()
        self._ambient = aws.AmbientCredentials()
        for each in (self._requests, self._careful):
            if each is not None:
                each.abandon()
        self._requests = self._careful = None

    # -- requests

    def _run(self, request: Callable[[S3Requests], T], key: str) -> T:
        """What a request returns; its failure, if any, becomes one of our errors."""
        if self._identity is not None:
            return self._identity.run(lambda _: self._attempt(request, key), refusal_of)
        try:
            if not self._is_anonymous:
                self._ambient.ready()
                return self._retry_with_renewed(request, key, self._ambient.newest)
            return self._attempt(request, key)
        except NoCredentials:  # nothing was sent
            self._give_no_name()
        except S3Failure as failure:
            raise from_failure(failure, url=self._url, key=key) from None
        return self._attempt(request, key)

    def _change(self, request: Callable[[S3Requests], None], key: str, action: str) -> None:
        try:
            self._run(request, key)
        except AccessDeniedError as error:
            name_permission(error, action)
            raise

    def _retry_with_renewed(self, request: Callable[[S3Requests], T], key: str, used: Credentials) -> T:
        """With others, if the environment's are refused as expired, and there are. A refused
        request had no effect."""
        try:
            return self._attempt(request, key)
        except CowfsError as error:
            if refusal_of(error) != "expired" or not self._ambient.renew(used):
                raise
        return self._attempt(request, key)

    def _attempt(self, request: Callable[[S3Requests], T], key: str) -> T:
        try:
            try:
                return request(self._connect())
            except Refused as refused:
                if not self._moves_to_its_region(refused):
                    if self._wants_https(refused):
                        raise WantsHttps("the server redirects to https") from None
                    raise
            return request(self._connect())
        except S3Failure as failure:  # what servers and libraries say may hold credentials: it is not chained
            raise self._explain(from_failure(failure, url=self._url, key=key)) from None

    def _list_with(self, requests: S3Requests, listed: Callable[[S3Requests], T]) -> T:
        """obstore refuses or cannot read a list that has a key such as a//b, which another program
        put among ours."""
        try:
            if not self._lists_carefully:
                return listed(requests)
        except Malformed:
            pass
        return listed(self._careful_one())

    def _careful_one(self) -> S3Requests:
        from cowfs.store.backends.s3.s3_by_s3fs import S3fsRequests

        with self._lock:
            if self._careful is None:
                self._careful = S3fsRequests(self._place(), self._credentials())
            return self._careful

    def _connect(self) -> S3Requests:
        with self._lock:
            if self._requests is None:
                self._requests = self._send_by(self._place(), self._credentials())
            return self._requests

    def _place(self) -> S3Place:
        return place_of(self._bucket, self._prefix, self._endpoint, self._region, path_style=self._path_style)

    def _credentials(self) -> Callable[[], Credentials] | None:
        """The newest ones, for each request; None: requests are not signed."""
        if (identity := self._identity) is not None:
            return lambda: identity.newest
        return None if self._is_anonymous else lambda: self._ambient.newest

    def _send_by(self, place: S3Place, credentials: Callable[[], Credentials] | None) -> S3Requests:
        if s3_by_obstore.is_usable():
            return s3_by_obstore.ObstoreRequests(place, credentials)
        from cowfs.store.backends.s3.s3_by_s3fs import S3fsRequests

        return S3fsRequests(place, credentials)

    def _give_no_name(self) -> None:
        """There are no credentials: the bucket may be public."""
        with self._lock:
            self._is_anonymous, self._requests, self._careful = True, None, None

    def _moves_to_its_region(self, refused: Refused) -> bool:
        """Whether the bucket is one of Amazon's, and lies elsewhere: then requests go there from
        now on. A refused one had no effect."""
        place = self._place()
        if refused.code not in ELSEWHERE or not place.is_amazons or (found := region_of(self._bucket)) == place.region:
            return False
        with self._lock:
            self._region, self._requests, self._careful = found, None, None
        return found is not None

    def _wants_https(self, refused: Refused) -> bool:
        """Whether that is why. A request that followed the server arrived without its signature."""
        if refused.status not in (301, 302, 307, 308, 401, 403):
            return False
        if self._is_sent_to_https is None:
            self._is_sent_to_https = wants_https(self._place())
        return self._is_sent_to_https

    def _explain(self, error: CowfsError) -> CowfsError:
        if not isinstance(error, AccessDeniedError) or not self._is_anonymous:
            return error
        return refused_anonymously(error, self._untrusted_server, hint=NO_CREDENTIALS)

    def _delete_batch(self, some: builtins.list[str]) -> bool:
        """False when they are to be deleted one by one."""
        try:
            self._change(lambda requests: requests.delete_batch(some), some[0], "s3:DeleteObject")
        except NotFoundError as error:
            if error.details.get("code") == "NoSuchBucket":
                raise
            return False
        except (InvalidInputError, CorruptError) as error:
            if isinstance(error, InvalidInputError) and error.details.get("status") not in (400, 405, 501):
                raise
            return False
        return True

    def _delete_singly(self, some: builtins.list[str]) -> None:
        """What took DeleteObjects for something else may not be the server: one is looked for."""
        for key in some:
            self._delete_one(key)
        if self.size(some[0]) is not None:
            raise UnavailableError(
                f"{self._url} does not answer: it said that it has deleted an object, and has not",
                hint="Something between this machine and the server answers in its place. Try again; nothing is lost.",
                details={"key": some[0]},
            )

    def _delete_one(self, key: str) -> None:
        try:
            self._change(lambda requests: requests.delete_one(key), key, "s3:DeleteObject")
        except NotFoundError as error:
            if error.details.get("code") == "NoSuchBucket":
                raise


def _put(requests: S3Requests, key: str, data: Data, *, is_new: bool) -> None:
    """An object that the server does not prove to have is looked for."""
    try:
        requests.put(key, data, is_new=is_new)
    except Unproven:
        try:
            is_there = requests.get(key, any_size) == data if is_new else requests.size(key) == memoryview(data).nbytes
        except Refused as refused:
            if refused.status != 404:
                raise
            is_there = False
        if not is_there:
            raise Silent("it said that it has stored an object, and has not") from None


def _size(requests: S3Requests, key: str) -> int:
    try:
        return requests.size(key)
    except Refused as refused:
        if not refused.is_unexplained:
            raise
    # Expired credentials differ from credentials without permission.
    return requests.size_by_get(key)
