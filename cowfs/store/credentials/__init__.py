"""Credentials of stores and keys of encrypted ones: where they come from, and who may see them."""
