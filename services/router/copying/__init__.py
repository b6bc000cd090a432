"""Copies a topic to another cluster with its offsets: the part of a move that routers carry out."""
