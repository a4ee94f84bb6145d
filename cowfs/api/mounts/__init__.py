"""Mounts by FUSE, as folders of plain files and as scratches, and the work kept after them."""
