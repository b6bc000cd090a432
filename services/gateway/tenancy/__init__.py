"""The names of a tenant's clients: full names for the mesh, the tenant's own names for its clients. No I/O."""
