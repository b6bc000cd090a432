"""Standbys of clusters: commands, and the loops that keep them and fail them over."""
