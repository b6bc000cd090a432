"""Schemas that live in a schema registry: what they are, how they are found, how long they are kept."""
