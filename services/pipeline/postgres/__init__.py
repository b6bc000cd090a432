"""PostgreSQL as the tasks of Spark write it: tables, and their partitions by day."""
