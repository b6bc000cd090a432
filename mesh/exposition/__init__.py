"""Formats of /metrics and native histograms, beside those that prometheus_client has."""
