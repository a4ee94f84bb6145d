"""The public objects, and what they stand on: options, names, sources, stores, provenance, starting
daemons."""
