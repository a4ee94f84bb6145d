"""Everything cowfs stores, as pure functions between bytes and frozen dataclasses; no I/O, no
clock, no randomness.

    canonical   one JSON value, one byte string           pack        container of blobs
    fields      typed, bounded reading of JSON objects    codec       compression and verification of blobs
    records     every record type; they live in heads,    blocklist   where the pages of an index lie
                claims, moved, store_record over record   catalogue   chunks by hash prefix
    manifest    the record of a version                   locator     locators
    keys        object keys                               store_url   store URLs

All input is untrusted: hashes and bounds are checked first. CorruptError names the fault,
UnsupportedFormatError an unknown format number. Unknown optional fields are ignored, and kept when
a record is written again. `docs/format/` describes each format with an example that the tests
parse.
"""
