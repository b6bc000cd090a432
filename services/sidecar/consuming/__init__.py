"""Consumer instances from which the backend reads at its own pace. This package knows no HTTP."""
