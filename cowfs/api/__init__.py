"""The public objects `Store`, `Volume`, `RWVolume` and `ROVolume`, and the functions that do their
work, in packages by subject. Modules beside the objects are shared: stores, sources, names, claims,
arguments and hints."""
