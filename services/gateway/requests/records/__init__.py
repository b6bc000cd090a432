"""Records and what is known of them: Produce, Fetch, offsets of logs, producers of partitions."""
