"""Rehearsals of clusters: which answered produces go to a candidate as well."""
