"""Consumer instances that the backend reads from when it likes. Knows no HTTP."""
