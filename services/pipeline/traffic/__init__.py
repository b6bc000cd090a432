"""Counters of traffic: how reports are read, which of them count, and what stands in the tables."""
