"""Garbage collection: marks needed objects, condemns and deletes the rest, while writers
continue."""
