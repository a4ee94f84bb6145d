"""Becoming a volume's writer: acquires working copy's lock, lease, pin and base, in this order."""
