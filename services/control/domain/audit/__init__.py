"""Audit events of records."""
