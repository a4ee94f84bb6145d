"""The settings of a volume's record that a writer uses: its quota (`quotas`), and whether contents
are compressed.

    setting of the record     compress     false: chunks of files are stored as they are

The first record, which is made with the volume, has neither, so that a writer that sees no other
need not read it. A writer uses the settings that it found when it opened the volume. If a record
cannot be read, there is no quota, so that no user is locked out, and nothing is compressed, so that
sizes reveal nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from cowfs.base import log
from cowfs.base.errors import CorruptError, NotFoundError, UnsupportedFormatError
from cowfs.base.fast_dataclass import dataclass
from cowfs.format.records import MetaRecord
from cowfs.store import ObjectStore
from cowfs.version.names import described, quotas
from cowfs.version.names.described import COMPRESS

_log = log.get("volumes")


@dataclass(frozen=True, slots=True)
class Settings:
    """quota_bytes: as of `quotas`."""

    quota_bytes: int = 0
    compress: bool = True


def of(record: MetaRecord | None) -> Settings:
    if record is None:
        return Settings()
    return Settings(quotas.of(record), record.settings.get(COMPRESS) is not False)


def read(store: ObjectStore, volume: str) -> Settings:
    """The settings for opening the volume. Three requests."""
    return read_or_default(volume, partial(described.read, store, volume))


def read_or_default(volume: str, read: Callable[[], MetaRecord | None]) -> Settings:
    """The settings of the record that `read` returns; defaults if it fails."""
    try:
        return of(read())
    except (CorruptError, UnsupportedFormatError, NotFoundError) as error:
        _log.warning("volume %s is opened without a quota, and nothing is compressed: %s", volume, error)
        return Settings(compress=False)


def save_compress(store: ObjectStore, volume: str, compress: bool) -> None:
    """NotFoundError: no such volume."""

    def apply_compress(meta: MetaRecord) -> MetaRecord:
        others = {name: value for name, value in meta.settings.items() if name != COMPRESS}
        return replace(meta, settings=others if compress else {**others, COMPRESS: False})

    described.change(store, volume, apply_compress)
