"""Imports: objects of a bucket or members of an archive as files of a version, copied or linked."""
