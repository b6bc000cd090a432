"""The HTTP side. This package uses producing and consuming; they do not use this package."""
