"""Records that a backend could not process, kept with the reason: written, looked at, given back."""
