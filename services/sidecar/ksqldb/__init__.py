"""ksqlDB for the backend: queries that are asked once, and one query that is followed for ever."""
