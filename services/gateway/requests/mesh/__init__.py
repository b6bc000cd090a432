"""The mesh as one cluster: its topics and nodes, and what it can do."""
