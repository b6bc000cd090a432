"""Transactions over clusters."""
