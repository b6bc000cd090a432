"""Commands about the protection of values."""
