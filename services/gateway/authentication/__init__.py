"""Who a client is: the server's side of SASL, names in certificates, and users. No I/O but the file of users."""
