"""The requests of operators to one sidecar: its logs, its modules, faults on purpose. This package knows no HTTP."""
