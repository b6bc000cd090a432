"""Upstream clusters."""
