"""Mounts without FUSE: a folder of plain files, filled from a version, compared, and committed."""
