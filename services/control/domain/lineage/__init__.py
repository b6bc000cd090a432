"""Lineage: edges that control sees in traffic, and the ways through them."""
