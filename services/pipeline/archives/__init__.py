"""The archive's folder: how it is laid out, compacted, listed and read back. `job.py` fills it."""
