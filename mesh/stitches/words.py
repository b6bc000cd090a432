"""How changes of stitched logs read in a sentence."""

from __future__ import annotations

from mesh.rpc import stitches


def log_change_text(of: stitches.StitchedLogChange) -> str:
    if not of.HasField("log"):
        return f"the log of topic {of.topic} is that of its cluster"
    return f"the log of topic {of.topic} is on {', then '.join(part.cluster_name for part in of.log.parts)}"
