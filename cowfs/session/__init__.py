"""An opened volume or version, with or without a kernel in front of it: engine, residency, commits,
upkeep.

No trio, no pyfuse3 and no FUSE here: `daemon` puts the kernel before it.
"""
