"""Topics, their partitions and settings, and those of brokers and groups."""
