"""The bounds of the scans of Produce and Fetch."""

IDS_SINCE = 13
"""From this version on, Produce and Fetch name topics by id."""

MAX_ENTRIES = 200_000
"""Topics and partitions in one Produce or Fetch: more than a broker can host, and some 50 MB of notes."""
