"""Fail-backs of clusters: what control decides about them. No I/O."""
