"""Forwarding rules."""
