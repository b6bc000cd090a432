"""Users who log in to gateways with a password."""
