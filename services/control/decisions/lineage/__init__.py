"""Lineage: control looks at traffic, keeps the edges, and walks them."""
