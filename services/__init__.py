"""The processes of the mesh; none imports another."""
