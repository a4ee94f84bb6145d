"""Loads rows, file contents and chunks that the engine lacks."""
