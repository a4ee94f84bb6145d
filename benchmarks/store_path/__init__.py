"""The way between an object store and its readers: cowfs, JuiceFS and the store's own speed.

`python -m benchmarks.store_path --help`
"""
