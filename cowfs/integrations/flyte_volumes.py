"""The transformer between volumes and Flyte's literals. `flyte.register` makes one for each of the
four classes: async and blocking, ROVolume and RWVolume.

    literal     a blob, MULTIPART, of the format `cowfs.volume/1`; its URI is the locator, its hash the content id, so
                that Flyte's cache compares contents. The tag of its type makes flyte guess ROVolume for it
    result      a writer is finalized. If that fails, it is unmounted, its work stays, and flyte's own error leaves
    argument    a writer is committed and stays mounted. Text is looked up
    read        always an ROVolume of the kind that is declared, without a request

Flyte says only by a private function whether a value is a result. Without the function every value
is taken for an argument. Threads: requests run in worker threads, so the event loop is never
blocked by them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import flyte
import flyte.errors
from flyte.types import TypeTransformer, TypeTransformerFailedError
from flyteidl2.core import literals_pb2, types_pb2

import cowfs
from cowfs import blocking
from cowfs.errors import CowfsError, InvalidStateError, UnavailableError
from cowfs.integrations import mashumaro

FORMAT = "cowfs.volume/1"
TAG = "cowfs.volume"
READ_AS: dict[type, Any] = {
    cowfs.ROVolume: cowfs.ROVolume,
    cowfs.RWVolume: cowfs.ROVolume,
    blocking.ROVolume: blocking.ROVolume,
    blocking.RWVolume: blocking.ROVolume,
}
_BLOB = types_pb2.BlobType(format=FORMAT, dimensionality=types_pb2.BlobType.BlobDimensionality.MULTIPART)
_KEPT_IDS = 10_000
_Transformer: Any = TypeTransformer

_log = logging.getLogger("cowfs.flyte")
_content_ids: dict[str, str] = {}
"""By locator, from literals: a driver that passes versions on need not read their indexes."""


class VolumeTransformer(_Transformer):  # type: ignore[misc] # untyped where flyte is not installed
    def __init__(self, kind: type) -> None:
        super().__init__(TAG, kind, enable_type_assertions=False)

    def get_literal_type(self, t: Any = None) -> types_pb2.LiteralType:
        return types_pb2.LiteralType(blob=_BLOB, structure=types_pb2.TypeStructure(tag=TAG))

    def guess_python_type(self, literal_type: types_pb2.LiteralType) -> Any:
        if literal_type.HasField("blob") and literal_type.blob.format == FORMAT:
            return cowfs.ROVolume
        raise ValueError(f"{TAG} does not describe {literal_type}")

    def schema_match(self, schema: dict[str, Any]) -> bool:
        return schema.get("format") == mashumaro.SCHEMA_FORMAT

    async def to_literal(self, python_val: Any, python_type: Any, expected: Any) -> literals_pb2.Literal:
        if find_output() is None:
            _require_readable(python_type)
            return await _to_literal(await _version_of_argument(python_val))
        if is_other_rank():
            return await _literal_of_other_rank(python_val)
        try:
            return await _to_literal(await _version_of_result(python_val))
        except (CowfsError, OSError) as error:
            raise to_flyte_error(error) from error

    async def to_python_value(self, lv: literals_pb2.Literal, expected_python_type: Any) -> Any:
        locator = _read_locator(lv)
        if lv.hash:
            _remember(locator, lv.hash)
        return READ_AS[self.python_type].deserialize({"locator": locator})


def write_field(volume: Any) -> str:
    """The text of a volume in a dataclass."""
    try:
        return mashumaro.write_volume(volume)
    except CowfsError as error:
        if find_output() is None:
            raise
        raise to_flyte_error(error) from error


def to_flyte_error(error: Exception) -> Exception:
    """The error that Flyte reports to its users. They see nothing but its text."""
    text = "\n".join([str(error), *getattr(error, "__notes__", ())])
    if isinstance(error, UnavailableError):
        return flyte.errors.RuntimeSystemError(type(error).__name__, text)
    return flyte.errors.RuntimeUserError(type(error).__name__, text)


def find_output() -> str | None:
    """The name of the output that is being converted; None: an argument is."""
    find = _find_hook()
    return None if find is None else find()


@cache
def _find_hook() -> Callable[[], str | None] | None:
    try:
        from flyte._internal.runtime.convert import current_output_name
    except ImportError:
        _log.warning(
            "this flyte (%s) does not say which values are results: volumes that tasks return are committed and "
            "stay mounted until the process ends. Put @cowfs.task below the task's decorator",
            flyte.__version__,
        )
        return None
    found: Callable[[], str | None] = current_output_name
    return found


def is_other_rank() -> bool:
    """Whether this is a worker of a clustered task whose results Flyte drops."""
    is_clustered = os.environ.get("FLYTE_CLUSTERED_WORKER") or os.environ.get("TORCHELASTIC_RUN_ID")
    return bool(is_clustered) and os.environ.get("RANK", "0") != "0"


# -- values


def _is_writer(value: object) -> bool:
    return isinstance(value, blocking.RWVolume)  # async ones are, too


def _require_readable(kind: Any) -> None:
    if isinstance(kind, type) and issubclass(kind, blocking.RWVolume):
        raise TypeError(
            "a task's parameter cannot be an RWVolume: the value that it gets is a version. Declare it as an ROVolume, "
            "and fork it in the task to write to it"
        )


async def _version_of_result(value: Any) -> Any:
    if not _is_writer(value):
        return await _looked_up(value)
    if value.is_over:
        return _last_version(value)
    try:
        return await _call(value.finalize)
    except BaseException as error:
        if isinstance(error, InvalidStateError) and value.is_over:  # it is in a list twice
            return _last_version(value)
        await _call(value.leave, error)
        raise


async def _version_of_argument(value: Any) -> Any:
    if not _is_writer(value):
        return await _looked_up(value)
    if value.is_over:
        return _last_version(value)
    return await _call(value.commit)


async def _looked_up(value: Any) -> Any:
    if isinstance(value, str):
        return await _call(blocking.Volume.version, value)
    if not isinstance(value, blocking.ROVolume):
        raise TypeTransformerFailedError(f"{value!r} is no volume")
    return value


def _last_version(writer: Any) -> Any:
    """Of one that the task has finalized itself."""
    if writer.locator is None:
        raise InvalidStateError(
            f"volume {writer.name!r} was discarded, and has no version",
            hint="Pass or return it before it is discarded, or leave it out.",
        )
    return blocking.ROVolume.deserialize({"locator": writer.locator})


async def _call(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Methods of async objects wait for a worker thread, and so does this for those of blocking
    ones: also a caller that is cancelled waits for the end of the call."""
    if inspect.iscoroutinefunction(function):
        return await function(*given, **named)
    running = asyncio.ensure_future(asyncio.to_thread(function, *given, **named))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


# -- literals


async def _to_literal(version: Any) -> literals_pb2.Literal:
    locator = (await _call(version.serialize))["locator"]
    content_id = _content_ids.get(locator) or await _call(version.content_id)
    _remember(locator, content_id)
    return _make_literal(locator, content_id)


def _remember(locator: str, content_id: str) -> None:
    if len(_content_ids) < _KEPT_IDS:
        _content_ids[locator] = content_id


async def _literal_of_other_rank(value: Any) -> literals_pb2.Literal:
    """Publishes nothing. The literal has no hash; Flyte drops it."""
    if _is_writer(value) and value.is_mounted:
        try:
            await _call(value.unmount)
        except CowfsError as error:
            _log.warning("volume %s of this rank stays mounted: %s", value.name, error)
    return _make_literal((value if isinstance(value, str) else value.locator) or "", "")


def _make_literal(uri: str, content_id: str) -> literals_pb2.Literal:
    blob = literals_pb2.Blob(metadata=literals_pb2.BlobMetadata(type=_BLOB), uri=uri)
    return literals_pb2.Literal(scalar=literals_pb2.Scalar(blob=blob), hash=content_id)


def _read_locator(literal: literals_pb2.Literal) -> str:
    scalar = literal.scalar
    if scalar.HasField("blob") and scalar.blob.metadata.type.format == FORMAT:
        return str(scalar.blob.uri)
    if scalar.HasField("primitive") and scalar.primitive.HasField("string_value"):
        return str(scalar.primitive.string_value)
    raise TypeTransformerFailedError("the value is no volume: no blob of the format cowfs.volume/1, and no text")
