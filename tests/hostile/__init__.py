"""A tree that somebody else can write to: what may stand in it, and how commands meet it."""
