"""Topics and groups over all clusters, as clients know them."""
