"""Change sets become versions: chunks, packs, index, manifest and head, in this order."""
