"""The rights of clients, by the ACLs in the routing table."""
