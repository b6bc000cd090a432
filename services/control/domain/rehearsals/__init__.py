"""Rehearsals of clusters, as the log has them."""
