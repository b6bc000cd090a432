"""Records of clients older than 0.11: message sets of magic 0 and 1, to record batches of today and back."""
