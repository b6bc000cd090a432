"""Audit of the records that clients write, for topics that an operator has named."""
