"""Rehearsals of clusters: beginning, course and end."""
