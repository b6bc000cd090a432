"""Topics and groups over all clusters, as their clusters answer."""
