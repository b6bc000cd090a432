"""Fail-backs of clusters: from the plan to the end."""
