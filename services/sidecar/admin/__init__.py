"""What operators ask of one sidecar over HTTP: its logs, its modules, faults on purpose. Knows no HTTP."""
