"""From the log to the table in force: a follower reads, the ledger folds, the bulletin publishes the result."""
