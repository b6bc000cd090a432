"""Stitched logs: their parts as clusters have them, and their dissolution."""
