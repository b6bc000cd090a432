"""Records and knowledge about them: Produce, Fetch, offsets of logs, producers of partitions."""
