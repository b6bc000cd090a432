"""ksqlDB for the backend: queries that are asked once, and one that is followed for ever."""
