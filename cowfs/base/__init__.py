"""The foundation of every package: errors, ids, the clock, settings, threads, forks, opening
beneath a root.

Each module is about one thing and imports none of the other packages but `native`. `cowfs.errors`
has the public names of `errors`.
"""
