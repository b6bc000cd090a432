"""Forks of topics: logs that begin with the records of other topics."""
