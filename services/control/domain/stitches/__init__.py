"""Logs that are stitched together from parts on several clusters: what control decides about them. No I/O."""
