"""The HTTP side. It knows producing and consuming; they do not know it."""
