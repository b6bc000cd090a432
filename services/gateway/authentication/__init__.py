"""The identity of clients: the server's side of SASL, bearer tokens, and names in certificates."""
