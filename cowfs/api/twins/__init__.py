"""Async classes, made at run time from the blocking ones. Those import only `one_type` and
`volume_fields`."""
