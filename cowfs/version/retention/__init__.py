"""The versions that a volume keeps: retention rules, pruned heads, and protection during a fork."""
