"""What clients may do, by the ACLs in the routing table."""
