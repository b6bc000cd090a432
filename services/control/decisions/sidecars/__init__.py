"""Sidecars, their instances, and orders."""
