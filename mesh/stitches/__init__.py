"""Logs of topics that consist of parts on several clusters: offsets of clients, and those of clusters. No I/O."""

from mesh.stitches.log import LogPart, Policy, StitchedLog

__all__ = ["LogPart", "Policy", "StitchedLog"]
