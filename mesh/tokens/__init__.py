"""Bearer tokens of callers: the keys of their issuers, and the verification of a token."""
