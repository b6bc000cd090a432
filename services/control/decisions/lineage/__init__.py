"""Lineage: control gathers edges from traffic, keeps them, and walks them."""
