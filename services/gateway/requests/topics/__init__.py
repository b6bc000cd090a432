"""Topics, their partitions and settings, and the settings of brokers and groups."""
