"""Purging: takes the bytes of paths, versions or volumes out of a store, versions or not."""
