"""Stores with credentials, and presets of providers.

from cowfs import Volume, storage
vol = Volume.new("data", store=storage.R2("bucket", account_id="…", access_key=…, secret_key=…))
"""

from cowfs.api.storage.definition import Credential, EncryptionKey, KeyCommand, KeyFile, Storage
from cowfs.api.storage.objects import AsyncObjects, Objects
from cowfs.api.storage.presets import GCS, PRESETS, R2, S3, Azure, Backblaze, Hyperstack, Local, MinIO, Wasabi
from cowfs.api.upkeep.accepting import AcceptedChange, accept_store
from cowfs.api.upkeep.encryption import KeySummary, add_key, list_keys, remove_key
from cowfs.store import ObjectInfo
from cowfs.store.store_names import NamedStore, add_store, list_stores, remove_store

__all__ = [
    "GCS",
    "PRESETS",
    "R2",
    "S3",
    "AcceptedChange",
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
    "NamedStore",
    "ObjectInfo",
    "Objects",
    "Storage",
    "Wasabi",
    "accept_store",
    "add_key",
    "add_store",
    "list_keys",
    "list_stores",
    "remove_key",
    "remove_store",
]
