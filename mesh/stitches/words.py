"""How changes of stitched logs read in a sentence."""

from __future__ import annotations

from mesh.rpc import stitches


def log_change_text(of: stitches.StitchedLogChange) -> str:
    if not of.HasField("log"):
        return f"the log of topic {of.topic} is that of its cluster"
    if of.log.fork_of:
        own = [part.cluster_name for part in of.log.parts if not part.is_past]
        past = "" if len(of.log.parts) > len(own) else " without a past"
        return f"topic {of.topic} is a fork of {of.log.fork_of}{past}, on {', then '.join(own)}"
    return f"the log of topic {of.topic} is on {', then '.join(part.cluster_name for part in of.log.parts)}"
