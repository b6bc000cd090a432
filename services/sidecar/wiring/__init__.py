"""Composition only: each module makes the parts of the folder that has its name from the settings."""
