"""The place of objects and the access to it: a store with its credentials, presets of providers,
and plain objects of a bucket. Public as `cowfs.storage`."""
