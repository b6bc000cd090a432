"""Freezes and scheduled changes."""
