"""The keys of protected values: services of keys, and the data keys that the gateway keeps for a while."""
