"""The log as all who read it agree on: events of any release, and the chain of hashes through them. No I/O."""

from mesh.event_log.chain import Chain
from mesh.event_log.formats import FORMAT, NewerFormatError, upcast

__all__ = ["FORMAT", "Chain", "NewerFormatError", "upcast"]
