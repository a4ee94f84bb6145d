"""Where objects lie and who asks for them: a store with its credentials, presets of providers, and
plain objects of a bucket. Public as `cowfs.storage`."""

from __future__ import annotations

from cowfs.api.storage.objects import AsyncObjects, Objects
from cowfs.api.storage.presets import GCS, PRESETS, R2, S3, Azure, Backblaze, Hyperstack, Local, MinIO, Wasabi
from cowfs.api.storage.storage import Credential, Storage
from cowfs.store import ObjectInfo

__all__ = [
    "GCS",
    "PRESETS",
    "R2",
    "S3",
    "AsyncObjects",
    "Azure",
    "Backblaze",
    "Credential",
    "Hyperstack",
    "Local",
    "MinIO",
    "ObjectInfo",
    "Objects",
    "Storage",
    "Wasabi",
]
