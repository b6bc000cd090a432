"""Lineage as OpenLineage events, and the places that take them."""
