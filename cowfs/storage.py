"""Stores with credentials, and presets of providers.

from cowfs import Volume, storage
vol = Volume.new("data", store=storage.R2("bucket", account_id="…", access_key=…, secret_key=…))
"""

from cowfs.api.storage.definition import Credential, EncryptionKey, KeyCommand, KeyFile, Storage
from cowfs.api.storage.objects import AsyncObjects, Objects
from cowfs.api.storage.presets import GCS, PRESETS, R2, S3, Azure, Backblaze, Hyperstack, Local, MinIO, Wasabi
from cowfs.api.stores import trust_server
from cowfs.api.upkeep.accepting import AcceptedChange, accept_store
from cowfs.api.upkeep.encryption import (
    KeySummary,
    add_key,
    encrypted,
    key_of_environment,
    list_keys,
    remove_key,
    use_passphrase,
)
from cowfs.format.backends import protocols
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
    "encrypted",
    "key_of_environment",
    "list_keys",
    "list_stores",
    "protocols",
    "remove_key",
    "remove_store",
    "trust_server",
    "use_passphrase",
]
