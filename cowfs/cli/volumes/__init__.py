"""Commands about volumes and their versions."""
