"""Profiles of a topic's records: formats, fields, and the order of a profile. `job.py` combines them."""
