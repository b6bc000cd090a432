"""Drains of clusters: from the plan to the end."""
