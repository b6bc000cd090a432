"""Audit events for a SIEM: their form, and the places that they go to."""
