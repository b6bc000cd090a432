"""State that outlives the process: the state files, and the claim of one process to them."""
