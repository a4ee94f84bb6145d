"""Profiles: records what a job reads of a mount, and fetches it ahead in later jobs."""
