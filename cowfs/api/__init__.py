"""The public objects and their shared parts: options, names, sources, stores, provenance, starting
daemons."""
