"""What an S3 request's failure means to the caller: error code first, HTTP status next.

    Refused              the server's answer is an error           by its code, then by its status
    Unexpected           the answer is not one to this request     CorruptError: another range than the requested one
    Silent               no answer, or half of one                 UnavailableError
    NoCredentials        there are no credentials                  the caller asks again, unsigned
    CredentialsFailed    they could not be fetched                 AccessDeniedError
    Malformed            no request can be made of it              InvalidInputError
    WantsHttps           it was asked by http, and sends to https  InvalidInputError
    Misconfigured        a variable sets a wrong way to send it    InvalidInputError
    Ended                the interpreter ends                      InvalidStateError

The libraries that send requests raise these (`s3_by_obstore`, `s3_by_s3fs`); code above them knows
no other errors of theirs.
"""

from __future__ import annotations

import re
from typing import Any

from cowfs.base.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    NoSpaceError,
    NotFoundError,
    UnavailableError,
)
from cowfs.store.backends.backend_errors import ENDED_HINT, NOT_LISTENING_HINT, TOO_LARGE_HINT
from cowfs.store.credentials.identity import Refusal
from cowfs.store.reliability.patience import NOT_LISTENING, RETRY_AFTER
from cowfs.store.reliability.retry_after import as_text

_CREDENTIALS = "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE and ~/.aws, and the bucket's policy."
NO_CREDENTIALS = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
_WRONG_CONFIGURATION = "Correct AWS_PROFILE or ~/.aws, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead."
_EXPIRED = (
    "The temporary credentials are no longer valid. Get new ones and run this again; a mount keeps those it was started with: "
    "unmount (uncommitted work is kept) and mount again. Credentials that AWS_PROFILE names are renewed by themselves."
)
_REGION = "Put the right region or endpoint into the store's URL: s3://bucket;region=REGION;endpoint=URL/prefix."
_HOST = (
    "a proxy before the server must pass on the Host header as it was sent (nginx: proxy_set_header Host $http_host)."
)
_HTTPS = "Write https:// in the endpoint of the store's URL, or of AWS_ENDPOINT_URL or ~/.aws where that names it."
_AUTHORITY = (
    "Name the file of the authority that signed it in AWS_CA_BUNDLE, or add it to the system's. "
    "If it has expired, or is another server's, the server's operator has to replace it. Nothing is lost."
)
_PROXY = "Check the proxy that https_proxy, http_proxy or all_proxy names, and no_proxy; nothing is lost."
_LATER = "Check the endpoint and the network, then try again; nothing is lost."

ELSEWHERE = ("AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "Redirect")
"""Codes of a bucket that lies in another region."""

_BY_CODE: dict[str, tuple[type[CowfsError], str]] = {
    **dict.fromkeys(
        (
            "AccessDenied",
            "AccountProblem",
            "AllAccessDisabled",
            "Forbidden",
            "InvalidAccessKeyId",
            "InvalidSecurity",
            "InvalidToken",
            "NotSignedUp",
        ),
        (AccessDeniedError, _CREDENTIALS),
    ),
    "SignatureDoesNotMatch": (AccessDeniedError, f"{_CREDENTIALS} If they are right: {_HOST}"),
    "RequestTimeTooSkewed": (AccessDeniedError, "Set this machine's clock; uncommitted work is kept."),
    **dict.fromkeys(
        ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"),
        (AccessDeniedError, _EXPIRED),
    ),
    **dict.fromkeys(ELSEWHERE, (InvalidInputError, _REGION)),
    **dict.fromkeys(
        ("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"),
        (NoSpaceError, "Free space in the bucket; nothing acknowledged is lost."),
    ),
    "InvalidObjectState": (
        AccessDeniedError,
        "The object is archived: restore it from its storage class, then try again.",
    ),
    **dict.fromkeys(
        ("KMS.DisabledException", "KMS.InvalidStateException", "KMS.KMSInvalidStateException", "KMS.NotFoundException"),
        (InvalidInputError, "The key that the bucket's objects are encrypted with cannot be used: look for it in KMS."),
    ),
    "InvalidBucketName": (InvalidInputError, "Correct the bucket's name in the store's URL."),
    "KeyTooLongError": (InvalidInputError, "Use a shorter prefix in the store's URL."),
    "EntityTooLarge": (InvalidInputError, TOO_LARGE_HINT),
    "InvalidRange": (CorruptError, "The object is shorter than what names it says."),
    "PreconditionFailed": (ConflictError, ""),
    **dict.fromkeys(
        ("BadDigest", "IncompleteBody", "RequestTimeout"), (UnavailableError, _LATER)
    ),  # sent with status 400
    # Another conditional request for this key is in flight: which one wins is not known yet.
    "ConditionalRequestConflict": (UnavailableError, "Try again; nothing is lost."),
    "NotImplemented": (InvalidInputError, "The server does not know this request; choose another store."),
}

_NO_LONGER_VALID = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidToken",
        "InvalidTokenId",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)
"""Of credentials: keys that rotate are deleted when others have taken their place."""

_BY_STATUS: dict[int, tuple[type[CowfsError], str]] = {
    400: (
        InvalidInputError,
        "The server refuses this request. Where no reason is given, the credentials may have expired.",
    ),
    405: _BY_CODE["NotImplemented"],
    413: _BY_CODE["EntityTooLarge"],
    **dict.fromkeys((301, 308), (InvalidInputError, _REGION)),
    307: (UnavailableError, _LATER),
    401: (AccessDeniedError, _CREDENTIALS),
    403: (AccessDeniedError, _CREDENTIALS),
    407: (UnavailableError, _PROXY),
    412: (ConflictError, ""),
    416: _BY_CODE["InvalidRange"],
    501: _BY_CODE["NotImplemented"],
    507: _BY_CODE["InsufficientStorage"],
}


_PROOF = re.compile(r'("?)[0-9a-fA-F]{32}(-[0-9]+)?\1')
"""An ETag that S3 gives: an MD5, or what looks like one; with the number of its parts."""


class S3Failure(Exception):
    """A request that failed; `reason` may be told."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason.removesuffix(".")


class Refused(S3Failure):
    """status 0: not known. code: S3's, "" where the answer has none. retry_after_s: what the server
    asked for, 0 when it did not."""

    def __init__(self, status: int, code: str, reason: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(reason or code or f"HTTP status {status}")
        self.status, self.code, self.retry_after_s = status, code, retry_after_s

    @property
    def is_unexplained(self) -> bool:
        """Without a reason, as the answer to HEAD always is."""
        return self.status in (400, 401, 403) and self.code in ("", str(self.status))


class Unexpected(S3Failure):
    pass


class Silent(S3Failure):
    pass


class Distrusted(Silent):
    """Its certificate is not accepted. Asked again as if it were silent: a network that wants a
    login first answers so, and a server whose certificate is renewed late."""


class Absent(Silent):
    """No server listens there."""


class Blocked(Silent):
    """A proxy does not let the request through."""


class Unproven(S3Failure):
    """The server says that it has stored an object, but without an ETag of S3's: the answer may
    come from a proxy."""


def require_proof(tag: str | None) -> None:
    """tag: the ETag in the answer to a put. Unproven: it is missing, or not one of S3's. Proxies
    and their pages have ETags of their own."""
    if not is_proof(tag):
        raise Unproven(f"no ETag of S3's: {tag}" if tag else "no ETag")


def is_proof(tag: str | None) -> bool:
    return _PROOF.fullmatch(tag or "") is not None


OTHER_RANGE = "another range than was asked for"
NO_LENGTH = "no answer says how long it is (Content-Length). A proxy on the way may drop that"


class CredentialsFailed(S3Failure):
    pass


class NoCredentials(CredentialsFailed):
    pass


class Ended(S3Failure):
    pass


class Malformed(S3Failure):
    pass


class WantsHttps(S3Failure):
    pass


class Misconfigured(S3Failure):
    """setting: the variable, or what else says how the server is reached, that cannot be right."""

    def __init__(self, reason: str, setting: str) -> None:
        super().__init__(f"{setting}: {reason}")
        self.setting = setting


def from_failure(failure: S3Failure, *, url: str, key: str) -> CowfsError:
    """The error of our tree for a failed request for `key` of the store at `url`."""
    if isinstance(failure, Refused):
        return _from_refusal(failure, url, key)
    if isinstance(failure, Unexpected):
        return CorruptError(f"{url}: {key} gave {failure.reason}", details={"key": key})
    if isinstance(failure, CredentialsFailed):
        hint = NO_CREDENTIALS if isinstance(failure, NoCredentials) else _WRONG_CONFIGURATION
        return AccessDeniedError(f"{url}: {failure.reason}", hint=hint)
    if isinstance(failure, Malformed):
        return InvalidInputError(f"{url}: {failure.reason}", hint="Correct the store's URL.")
    if isinstance(failure, WantsHttps):
        return InvalidInputError(f"{url}: {failure.reason}", hint=_HTTPS)
    if isinstance(failure, Misconfigured):
        return InvalidInputError(f"{url}: {failure.reason}", hint=f"Correct {failure.setting}, or unset it.")
    if isinstance(failure, Ended):
        return InvalidStateError(f"{url}: {failure.reason}", hint=ENDED_HINT)
    kinds: dict[type[S3Failure], str] = {Distrusted: _AUTHORITY, Blocked: _PROXY, Absent: NOT_LISTENING_HINT}
    details = {"key": key, **({NOT_LISTENING: True} if isinstance(failure, Absent) else {})}
    hint = kinds.get(type(failure), _LATER)
    return UnavailableError(f"{url} does not answer: {failure.reason}", hint=hint, details=details)


def refusal_of(error: CowfsError) -> Refusal | None:
    """What a failed request says about the credentials: that they are no longer valid, that they do
    not allow this, or nothing."""
    code, status = error.details.get("code"), error.details.get("status")
    if code in _NO_LONGER_VALID or status == 401:
        return "expired"
    return "denied" if isinstance(error, AccessDeniedError) else None


def name_permission(error: AccessDeniedError, action: str) -> None:
    """Adds to the hint which permission is missing, if the server knows the credentials."""
    if error.details.get("code") == "AccessDenied":
        error.set_hint(
            f"{error.open_hint} It has to allow {action} here: docs/guide/permissions.md has one for each role."
        )


def _from_refusal(refused: Refused, url: str, key: str) -> CowfsError:
    code, status = refused.code, refused.status
    details: dict[str, Any] = {"key": key, "code": code, "status": status}
    if refused.retry_after_s > 0:
        details[RETRY_AFTER] = refused.retry_after_s
    if code == "NoSuchBucket":
        return NotFoundError(
            f"{url}: the bucket does not exist",
            hint="Create the bucket first, or correct its name or the endpoint in the store's URL.",
            details=details,
        )
    if code == "NoSuchKey" or status in (404, 410):
        return NotFoundError(f"{url}: {key} does not exist", details=details)
    cls, hint = _BY_CODE.get(code) or _BY_STATUS.get(status) or (UnavailableError, _LATER)
    if cls is ConflictError:
        return ConflictError(f"{url}: {key} exists already", details=details)
    reason = refused.reason + as_text(refused.retry_after_s)
    return cls(f"{url}: {key}: {reason}" if key else f"{url}: {reason}", hint=hint, details=details)
