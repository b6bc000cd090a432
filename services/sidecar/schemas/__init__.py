"""Schemas of a schema registry: their types, their look-up, and their cache."""
