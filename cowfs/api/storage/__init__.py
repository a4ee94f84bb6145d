"""Where objects lie and who asks for them: a store with its credentials, presets of providers, and
plain objects of a bucket. Public as `cowfs.storage`."""
