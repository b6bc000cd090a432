"""Logs of topics as the brokers keep them: batches as bytes, offsets, and what takes them. Copies and proofs use it."""
