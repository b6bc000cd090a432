"""Counters of traffic: reads reports, decides which of them count, and writes the tables."""
