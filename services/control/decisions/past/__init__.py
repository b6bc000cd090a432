"""The mesh at earlier revisions."""
