"""The control plane: the operators' gRPC API, and the only writer of the mesh's event log."""
