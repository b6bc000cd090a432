"""Decisions about listeners of gateways. No I/O."""
