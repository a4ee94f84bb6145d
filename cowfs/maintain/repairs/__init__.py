"""Repair: finds lost chunks elsewhere and stores them again under the same addresses."""
