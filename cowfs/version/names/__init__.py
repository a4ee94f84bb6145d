"""Names: volumes, heads, tags, and the versions that names mean."""
