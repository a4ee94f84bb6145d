"""Three-way merges: branches of a volume become one change set on top of a target."""
