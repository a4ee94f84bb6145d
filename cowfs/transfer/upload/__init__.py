"""Uploads: a directory or a file of this machine as the next version of a volume."""
