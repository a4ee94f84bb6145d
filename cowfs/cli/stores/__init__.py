"""Commands about whole stores."""
