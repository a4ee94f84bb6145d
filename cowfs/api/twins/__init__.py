"""Async classes, made at run time from the blocking ones. `one_type` is all that those import."""
