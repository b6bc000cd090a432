"""Delivers batches of records to the backend, and acts on its answers.

One engine serves the reactive consumer, dead letters, replays and streams.
"""
