"""The folder of a mount without FUSE, as this machine remembers it: its record, its files'
stamps."""
