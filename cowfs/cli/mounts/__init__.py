"""Commands about mounts."""
