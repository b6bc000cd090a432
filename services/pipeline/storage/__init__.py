"""Folders of Parquet files: their layout, access with and without Spark, and one writer at a time."""
