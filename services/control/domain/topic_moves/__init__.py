"""Moves of topics with their records: what control decides about them. No I/O."""
