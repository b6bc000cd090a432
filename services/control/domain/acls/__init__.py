"""ACLs of clients on the names that they use."""
