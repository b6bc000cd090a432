"""Audit of what clients write, for topics that an operator has named."""
