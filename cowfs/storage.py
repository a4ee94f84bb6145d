"""Stores with credentials, and presets of providers.

from cowfs import Volume, storage
vol = Volume.new("data", store=storage.R2("bucket", account_id="…", access_key=…, secret_key=…))
"""

from cowfs.api.encryption import KeySummary, add_key, list_keys, remove_key
from cowfs.api.storage.objects import AsyncObjects, Objects
from cowfs.api.storage.presets import GCS, PRESETS, R2, S3, Azure, Backblaze, Hyperstack, Local, MinIO, Wasabi
from cowfs.api.storage.storage import Credential, EncryptionKey, KeyCommand, KeyFile, Storage
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
    "EncryptionKey",
    "Hyperstack",
    "KeyCommand",
    "KeyFile",
    "KeySummary",
    "Local",
    "MinIO",
    "ObjectInfo",
    "Objects",
    "Storage",
    "Wasabi",
    "add_key",
    "list_keys",
    "remove_key",
]
