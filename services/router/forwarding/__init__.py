"""Carries out record rules: the child process of the router that moves records from cluster to cluster."""
