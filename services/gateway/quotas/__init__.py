"""The uses of clients, counted against the quotas in the table. No I/O."""
