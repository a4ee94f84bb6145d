"""Verification: reads and checks packs, and finds the broken paths of versions."""
