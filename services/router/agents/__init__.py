"""From the log to the table in force: a Faust application reads, the ledger folds, the bulletin tells."""
