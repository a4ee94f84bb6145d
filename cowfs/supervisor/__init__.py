"""The supervisor: a process that keeps what a mount needs to outlive its daemon, and starts the
daemon again. `process` runs in it; `client` and `wire` are for the processes that talk to it.

One process serves all mounts of a user, so it stays small: nothing here imports other packages of
cowfs, or anything but the standard library.
"""
