"""Rehearsals of clusters: a share of the produces of some topics goes to a candidate cluster as well."""
