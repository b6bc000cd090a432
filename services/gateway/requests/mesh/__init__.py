"""The mesh as one cluster: its topics and nodes, its versions and features."""
