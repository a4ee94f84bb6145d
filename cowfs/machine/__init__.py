"""The state of this machine: processes, the registry of mounts, working copies, the mount table,
mounting, kernel probes.

Knows no store, no engine and no FUSE protocol, so that the command line, the daemon and the library
share one answer.
"""
