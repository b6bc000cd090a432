"""Profiles of a topic's records: formats, fields, and the order of a profile. `jobs/profile.py` combines them."""
