"""Decisions about the protection of values."""
