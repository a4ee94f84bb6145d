"""Versions: opening one, publishing the next, finding their history."""
