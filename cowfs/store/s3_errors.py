"""What an S3 request's failure means to the caller: error code first, HTTP status next, kind of
exception last."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)

from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    NoSpaceError,
    NotFoundError,
    UnavailableError,
)
from cowfs.store.identity import Refusal
from cowfs.store.patience import RETRY_AFTER
from cowfs.store.retry_after import retry_after_s

_CREDENTIALS = "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE and ~/.aws, and the bucket's policy."
NO_CREDENTIALS = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
_EXPIRED = (
    "The temporary credentials are no longer valid. Get new ones and run this again; a mount keeps those it was started with: "
    "unmount (uncommitted work is kept) and mount again. Credentials that AWS_PROFILE names are renewed by themselves."
)
_REGION = "Put the right region or endpoint into the store's URL: s3://bucket;region=REGION;endpoint=URL/prefix."
_LATER = "Check the endpoint and the network, then try again; nothing is lost."

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
            "RequestTimeTooSkewed",
            "SignatureDoesNotMatch",
        ),
        (AccessDeniedError, _CREDENTIALS),
    ),
    **dict.fromkeys(
        ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"),
        (AccessDeniedError, _EXPIRED),
    ),
    **dict.fromkeys(
        ("AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "Redirect"),
        (InvalidInputError, _REGION),
    ),
    **dict.fromkeys(
        ("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"),
        (NoSpaceError, "Free space in the bucket; nothing acknowledged is lost."),
    ),
    "InvalidBucketName": (InvalidInputError, "Correct the bucket's name in the store's URL."),
    "KeyTooLongError": (InvalidInputError, "Use a shorter prefix in the store's URL."),
    "EntityTooLarge": (InvalidInputError, "The server does not take objects of this size."),
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
    301: (InvalidInputError, _REGION),
    307: (UnavailableError, _LATER),
    401: (AccessDeniedError, _CREDENTIALS),
    403: (AccessDeniedError, _CREDENTIALS),
    412: (ConflictError, ""),
    416: _BY_CODE["InvalidRange"],
    501: _BY_CODE["NotImplemented"],
    507: _BY_CODE["InsufficientStorage"],
}

_NO_IDENTITY = (
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)


def from_s3_error(error: BaseException, *, url: str, key: str) -> CowfsError:
    """The error of our tree for a failed request for `key` of the store at `url`."""
    answer = error if isinstance(error, ClientError) else error.__cause__
    if isinstance(answer, ClientError):
        return _from_answer(answer, url, key)
    reason = str(error) or type(error).__name__
    if isinstance(error, _NO_IDENTITY):
        return AccessDeniedError(f"{url}: {reason}", hint=NO_CREDENTIALS)
    if isinstance(error, (ParamValidationError, ValueError)):
        return InvalidInputError(f"{url}: {reason}", hint="Correct the store's URL.")
    if isinstance(error, TimeoutError):
        reason = "no complete answer in time"
    elif isinstance(error, BotoCoreError):
        reason = reason.removesuffix(".")
    return UnavailableError(f"{url} does not answer: {reason}", hint=_LATER, details={"key": key})


def refusal_of(error: CowfsError) -> Refusal | None:
    """What a failed request says about the credentials: that they are no longer valid, that they do
    not allow this, or nothing."""
    code, status = error.details.get("code"), error.details.get("status")
    if code in _NO_LONGER_VALID or status == 401:
        return "expired"
    return "denied" if isinstance(error, AccessDeniedError) else None


def is_unexplained(error: BaseException) -> bool:
    """Whether a request was refused without a reason, as HEAD always is."""
    answer = error if isinstance(error, ClientError) else error.__cause__
    if not isinstance(answer, ClientError):
        return False
    status = answer.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status in (400, 401, 403) and str(answer.response.get("Error", {}).get("Code")) == str(status)


def _from_answer(answer: ClientError, url: str, key: str) -> CowfsError:
    problem = answer.response.get("Error", {})
    code = str(problem.get("Code", ""))
    status = int(answer.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    details: dict[str, Any] = {"key": key, "code": code, "status": status}
    if (wait_s := retry_after_s(answer.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}))) > 0:
        details[RETRY_AFTER] = wait_s
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
    reason = str(problem.get("Message") or code or f"HTTP status {status}").removesuffix(".")
    return cls(f"{url}: {key}: {reason}" if key else f"{url}: {reason}", hint=hint, details=details)
